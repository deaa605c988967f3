"""`auditor faults`: what went wrong with a corpus as a whole: shifts, mixed-up blocks, bad shards, boilerplate."""

import click

from auditor.commands.output import open_audit, output_options, show
from auditor.say import say

SHOWN = ("kind", "rows", "p_value", "sentence")


@click.command()
@click.argument("audit")
@click.option("--by", default="shard", show_default=True, help="Column whose values are compared: shard, topic, ...")
@output_options
def command(audit: str, by: str, as_json: bool, as_csv: bool, parquet: str | None) -> None:
    """Faults of AUDIT that come in patterns, from its stored embeddings; no medium is read.

    Stretches whose captions belong some places further on, exchanged, reversed or mixed-up captions, shards whose
    captions belong to another shard, shards with many bad rows, and captions that repeat. Kept in faults.parquet.

    \b
    auditor faults audit/
    auditor faults audit/ --by topic
    auditor faults audit/ --json
    """
    found = open_audit(audit).faults(by)
    rows = [fault.to_dict() for fault in found]
    if not rows and not (as_json or as_csv or parquet):
        say("no faults found")
        return
    show(rows, title=f"{len(rows)} faults", as_json=as_json, as_csv=as_csv, parquet=parquet, columns=SHOWN)

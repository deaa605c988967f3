"""`auditor faults`: faults of a corpus that come in patterns: shifts, mixed-up blocks, bad shards, boilerplate."""

import click

from auditor.commands.options import GroupedCommand
from auditor.commands.output import open_audit, output_options, show_rows
from auditor.terminal import print_line

SHOWN = ("kind", "rows", "p_value", "sentence")


@click.command(cls=GroupedCommand)
@click.argument("audit")
@click.option("--by", default="shard", show_default=True, help="Column whose values are compared: shard, topic, ...")
@output_options
def command(audit: str, by: str, as_json: bool, as_csv: bool, parquet: str | None) -> None:
    """Find faults of AUDIT that come in patterns, from its stored embeddings alone.

    Finds shifted, exchanged, reversed and mixed-up captions, shards whose captions belong to another shard, shards
    with many bad rows, and repeated captions. The result is stored in faults.parquet.

    \b
    auditor faults audit/
    auditor faults audit/ --by topic
    auditor faults audit/ --json
    """
    rows = [fault.to_dict() for fault in open_audit(audit).faults(by)]
    if not rows and not (as_json or as_csv or parquet):
        print_line("no faults found")
        return
    show_rows(rows, title=f"{len(rows)} faults", as_json=as_json, as_csv=as_csv, parquet=parquet, columns=SHOWN)

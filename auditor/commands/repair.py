"""`auditor repair`: put captions back to the media and the spans they belong to."""

from typing import TYPE_CHECKING

import click

from auditor.commands.output import CORPUS_HELP, open_audit
from auditor.say import say, say_json

if TYPE_CHECKING:
    from auditor.faults.repair import Repair


@click.command()
@click.argument("audit")
@click.option("--out", help="Folder for repairs.parquet and, with --apply, the repaired shards.")
@click.option("--apply", "write", is_flag=True, help="Write the repaired shards.")
@click.option("--parquet", type=click.Path(dir_okay=False), help="Write the list of repairs to this file.")
@click.option(
    "--confidence",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.9,
    show_default=True,
    help="Repair only what is right with at least this probability.",
)
@click.option("--corpus", help=CORPUS_HELP)
@click.option("--json", "as_json", is_flag=True, help="Print the repairs as JSON.")
def command(
    audit: str, out: str | None, write: bool, parquet: str | None, confidence: float, corpus: str | None, as_json: bool
) -> None:
    """Propose which medium the displaced captions of AUDIT belong to, and how sure that is.

    Shifted, reversed, exchanged and mixed-up captions are found as by `auditor faults`. Timed captions that are out of
    step with their video get a new span. --apply writes repaired copies of the shards with such captions, and never
    touches the corpus.

    \b
    auditor repair audit/ --out repairs/
    auditor repair audit/ --out repaired/ --apply --confidence 0.95
    """
    from auditor.commands.output import write_parquet
    from auditor.faults.apply_repair import apply_repairs, refuse_target, write_list
    from auditor.faults.repair import to_table

    if not (out or parquet or as_json) or (write and not out):
        raise click.UsageError("say where to with --out FOLDER, or --parquet FILE for the list alone")
    opened = open_audit(audit, corpus)
    if out:
        refuse_target(opened.database, out)
    found = opened.repairs(confidence)
    if parquet:
        write_parquet(to_table(found), parquet)
    if out and write:
        done = apply_repairs(opened.database, found, out)
        said = f"{done.target}: {done.moved:,} captions moved in {done.shards:,} shards of {done.samples:,} samples"
        spans = f", {done.shifted:,} spans shifted" if done.shifted else ""
        say(f"{said}, {done.left_out:,} media without a caption left out{spans}", err=as_json)
    elif out:
        write_list(out, found)
    if as_json:
        say_json([repair.to_dict() for repair in found])
    else:
        show_patterns(found, confidence)


def show_patterns(repairs: "list[Repair]", confidence: float) -> None:
    from auditor import console

    rows = []
    for pattern in sorted({repair.pattern for repair in repairs}):
        sure = [repair.confidence for repair in repairs if repair.pattern == pattern]
        rows.append({"pattern": pattern, "captions": len(sure), "expected right": f"{sum(sure) / len(sure):.1%}"})
    if not rows:
        say(f"nothing to repair that is right with a probability of {confidence:g}")
        return
    console.table(rows, f"{len(repairs):,} captions to move in the corpus or in time")

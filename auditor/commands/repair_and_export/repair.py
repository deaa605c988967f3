"""`auditor repair`: return captions to the media and the spans they belong to."""

from typing import TYPE_CHECKING

import click

from auditor.commands.options import CORPUS_HELP, audit_command, json_option, option
from auditor.commands.output import open_audit, write_rows_to_parquet
from auditor.terminal import print_json, print_line

if TYPE_CHECKING:
    from auditor.faults.repair import Repair

PROBABILITY = click.FloatRange(0, 1, min_open=True, max_open=True)


@audit_command
@option("--out", help="Folder for repairs.parquet and, with --apply, the repaired shards.")
@option("--apply", "write", is_flag=True, help="Write the repaired shards.")
@option("--parquet", type=click.Path(dir_okay=False), help="Write the list of repairs to this file.")
@option(
    "--confidence",
    type=PROBABILITY,
    default=0.9,
    help="Apply a repair only if it is right with at least this probability.",
)
@option("--no-edits", is_flag=True, help="Write captions as they were audited, not as people have edited them.")
@option("--corpus", help=CORPUS_HELP)
@json_option("Print the repairs as JSON.")
def command(
    audit: str,
    out: str | None,
    write: bool,
    parquet: str | None,
    confidence: float,
    no_edits: bool,
    corpus: str | None,
    as_json: bool,
) -> None:
    """Propose which medium each displaced caption of AUDIT belongs to, with its probability.

    Shifted, reversed, exchanged and mixed-up captions are those that `auditor faults` finds. Timed captions that are
    out of sync with their video get a new span. --apply writes repaired copies of the affected shards and never
    changes the corpus. Captions that people have edited stay with their media and are written as edited.

    \b
    auditor repair audit/ --out repairs/
    auditor repair audit/ --out repaired/ --apply --confidence 0.95
    """
    from auditor.faults.apply_repair import apply_repairs, check_repair_target, write_repair_list
    from auditor.faults.repair import build_repair_table

    if not (out or parquet or as_json) or (write and not out):
        raise click.UsageError("name a target with --out FOLDER, or --parquet FILE for the list alone")
    opened = open_audit(audit, corpus)
    if out:
        check_repair_target(opened.database, out)
    repairs = opened.repairs(confidence)
    if parquet:
        write_rows_to_parquet(build_repair_table(repairs), parquet)
    if out and write:
        result = apply_repairs(opened.database, repairs, out, no_edits=no_edits)
        moved = f"{result.moved:,} captions moved in {result.shards:,} shards ({result.samples:,} samples)"
        spans = f", {result.shifted:,} spans shifted" if result.shifted else ""
        edited = f", {result.edited:,} captions written as edited" if result.edited else ""
        line = f"{result.target}: {moved}, {result.left_out:,} media without a caption left out{spans}{edited}"
        print_line(line, err=as_json)
    elif out:
        write_repair_list(out, repairs)
    if as_json:
        print_json([repair.to_dict() for repair in repairs])
    else:
        print_repairs(repairs, confidence)


def print_repairs(repairs: "list[Repair]", confidence: float) -> None:
    from auditor import console

    if not repairs:
        print_line(f"no repair is right with a probability of {confidence:g} or more")
        return
    rows = []
    for pattern in sorted({repair.pattern for repair in repairs}):
        confidences = [repair.confidence for repair in repairs if repair.pattern == pattern]
        right = f"{sum(confidences) / len(confidences):.1%}"
        rows.append({"pattern": pattern, "captions": len(confidences), "expected right": right})
    console.print_table(rows, f"{len(repairs):,} captions to move in the corpus or in time")

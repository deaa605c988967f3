"""`auditor compare`: two audits side by side."""

from typing import TYPE_CHECKING, Any

import click

from auditor.commands.options import GroupedCommand
from auditor.commands.output import open_audit, output_options, show_rows
from auditor.errors import AuditorError
from auditor.terminal import print_json

if TYPE_CHECKING:
    from auditor.query.compare import Comparison

MOVED = ("key", "caption", "p_first", "p_second")


@click.command(cls=GroupedCommand)
@click.argument("first")
@click.argument("second")
@click.option("-n", "count", type=click.IntRange(min=1), default=10, show_default=True, help="Number of rows.")
@output_options
def command(first: str, second: str, count: int, as_json: bool, as_csv: bool, parquet: str | None) -> None:
    """Compare audits FIRST and SECOND of one corpus, or of two versions of a corpus.

    --csv and --parquet write the rows whose p_mismatch moved most.

    \b
    auditor compare audit-b32/ audit-l14/
    auditor compare audit-monday/ audit-friday/ -n 100 --csv
    """

    comparison = open_audit(first).compare(open_audit(second), count)
    if as_json:
        print_json(comparison.to_dict())
    elif not comparison.matched:
        raise AuditorError(
            f"{first} and {second} have no row in common by uid, nor by shard, key and caption: "
            f"{comparison.only_first:,} rows are only in the first, {comparison.only_second:,} only in the second"
        )
    elif as_csv or parquet:
        show_rows(comparison.moved, as_csv=as_csv, parquet=parquet)
    else:
        show_rows(tabulate_comparison(comparison), title=f"{comparison.first} -> {comparison.second}")
        show_rows([{"column": name, "rank correlation": value} for name, value in comparison.correlation.items()])
        show_rows([{"flag": f.flag, "both": f.both, "newly": f.newly, "gone": f.gone} for f in comparison.flags])
        if comparison.status_changes:
            show_rows(comparison.status_changes, title="status changed")
        if comparison.moved:
            show_rows(comparison.moved, title="moved most", columns=MOVED)


def tabulate_comparison(comparison: "Comparison") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {"what": f"matched by {comparison.matched_by}", "value": f"{comparison.matched:,}"},
        {"what": "only in the first", "value": f"{comparison.only_first:,}"},
        {"what": "only in the second", "value": f"{comparison.only_second:,}"},
    ]
    for position, noise in (("first", comparison.noise_first), ("second", comparison.noise_second)):
        rows += [
            {"what": f"mismatched {n.kind}s, {position}", "value": f"{n.share:.1%} ({n.low:.1%} - {n.high:.1%})"}
            for n in noise
        ]
    return rows

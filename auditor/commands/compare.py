"""`auditor compare`: two audits side by side."""

from typing import TYPE_CHECKING, Any

import click

from auditor.commands.output import open_audit, output_options, show
from auditor.errors import AuditorError
from auditor.say import say_json

if TYPE_CHECKING:
    from auditor.query.compare import Comparison

MOVED = ("key", "caption", "p_first", "p_second")


@click.command()
@click.argument("first")
@click.argument("second")
@click.option("-n", "count", type=click.IntRange(min=1), default=10, show_default=True, help="Rows that moved most.")
@output_options
def command(first: str, second: str, count: int, as_json: bool, as_csv: bool, parquet: str | None) -> None:
    """Compare audits FIRST and SECOND of one corpus, or of two versions of a corpus.

    --csv and --parquet give the rows whose p_mismatch moved most.

    \b
    auditor compare audit-b32/ audit-l14/
    auditor compare audit-monday/ audit-friday/ -n 100 --csv
    """

    found = open_audit(first).compare(open_audit(second), count)
    if as_json:
        say_json(found.to_dict())
    elif not found.matched:
        raise AuditorError(
            f"{first} and {second} have no row in common, neither by uid nor by shard, key and caption: "
            f"{found.only_first:,} rows are only in the first, {found.only_second:,} only in the second"
        )
    elif as_csv or parquet:
        show(found.moved, as_csv=as_csv, parquet=parquet)
    else:
        show(overview(found), title=f"{found.first} -> {found.second}")
        show([{"column": name, "rank correlation": value} for name, value in found.correlation.items()])
        show([{"flag": f.flag, "both": f.both, "newly": f.newly, "gone": f.gone} for f in found.flags])
        if found.status_changes:
            show(found.status_changes, title="status changed")
        if found.moved:
            show(found.moved, title="moved most", columns=MOVED)


def overview(found: "Comparison") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {"what": f"matched by {found.matched_by}", "value": f"{found.matched:,}"},
        {"what": "only in the first", "value": f"{found.only_first:,}"},
        {"what": "only in the second", "value": f"{found.only_second:,}"},
    ]
    for which, noise in (("first", found.noise_first), ("second", found.noise_second)):
        rows += [
            {"what": f"mismatched {n.kind}s, {which}", "value": f"{n.share:.1%} ({n.low:.1%} - {n.high:.1%})"}
            for n in noise
        ]
    return rows

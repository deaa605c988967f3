"""`auditor thresholds`: show what each cut-off of p_mismatch removes, and what it costs."""

from typing import TYPE_CHECKING, Any

import click

from auditor.commands.options import SHARE, SMALL_SHARE, GroupedCommand
from auditor.commands.output import open_audit, output_options, show_rows

if TYPE_CHECKING:
    from auditor.keep.thresholds import Cut, PairCounts


@click.command(cls=GroupedCommand)
@click.argument("audit")
@click.option("--at", "cut_offs", type=SHARE, multiple=True, help="A cut-off to show (may be repeated).")
@click.option("--lose-at-most", type=SMALL_SHARE, help="Show the cut-off that loses at most this share of good pairs.")
@click.option("--expect-precision", type=SHARE, help="Show only the cut-off whose removed pairs have this precision.")
@click.option("--where", help="Only rows that satisfy this SQL condition.")
@output_options
def command(
    audit: str,
    cut_offs: tuple[float, ...],
    lose_at_most: float | None,
    expect_precision: float | None,
    where: str | None,
    as_json: bool,
    as_csv: bool,
    parquet: str | None,
) -> None:
    """Show the effect of removing the pairs of AUDIT with p_mismatch >= cut, for each cut-off, with 90% intervals.

    mismatched: expected share of mismatched pairs among those removed. caught: share of all mismatched pairs that is
    removed. good lost: share of the good pairs that is removed with them. left: share of mismatched pairs among those
    kept. Related captions look right to an encoder: of those, fewer are caught and more are left.

    \b
    auditor thresholds audit/
    auditor thresholds audit/ --lose-at-most 2%
    auditor thresholds audit/ --expect-precision 0.9 --where "kind = 'video'"
    """
    from auditor.keep.thresholds import SHOWN, choose_cut, compute_cuts, count_pairs

    counts = count_pairs(open_audit(audit).database, where)
    if lose_at_most is not None or expect_precision is not None:
        shown_cuts = [choose_cut(counts, lose_at_most=lose_at_most, expect_precision=expect_precision)]
    else:
        shown_cuts = compute_cuts(counts, cut_offs or SHOWN)
    machine = as_json or as_csv or parquet
    rows = [{**cut.to_dict(), "unscored": counts.unscored} if machine else tabulate_cut(cut) for cut in shown_cuts]
    show_rows(rows, title=describe_share(counts), as_json=as_json, as_csv=as_csv, parquet=parquet)


def describe_share(counts: "PairCounts") -> str:
    """The number of pairs and the share of them that is mismatched, which is the share left if nothing is removed."""
    from auditor.keep.thresholds import NOTHING, compute_cuts

    [whole] = compute_cuts(counts, [NOTHING])
    share = format_interval(whole.left, whole.left_low, whole.left_high)
    unscored = f"; no estimate: {counts.unscored:,}, which no cut removes" if counts.unscored else ""
    return f"{counts.pairs.sum():,.0f} pairs, at least {share} of them mismatched{unscored}"


def tabulate_cut(cut: "Cut") -> dict[str, Any]:
    return {
        "cut": f"{cut.p:g}",
        "removed": cut.removed,
        "share": f"{cut.removed_share:.1%}",
        "mismatched": format_interval(cut.precision, cut.precision_low, cut.precision_high),
        "caught": format_interval(cut.caught, cut.caught_low, cut.caught_high),
        "good lost": format_interval(cut.lost, cut.lost_low, cut.lost_high),
        "left": format_interval(cut.left, cut.left_low, cut.left_high),
    }


def format_interval(value: float | None, low: float | None, high: float | None) -> str:
    """A share with its interval, or an empty text if there is none."""
    if value is None or low is None or high is None:
        return ""
    return f"{value:.1%} ({100 * low:.1f}-{100 * high:.1f})"

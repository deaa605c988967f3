"""`auditor thresholds`: show what each cut-off of p_mismatch removes, and what it costs."""

from typing import TYPE_CHECKING, Any

from auditor.commands.options import SHARE, SMALL_SHARE, audit_command, option, where_option
from auditor.commands.output import Output, open_audit, output_options

if TYPE_CHECKING:
    from auditor.keep.thresholds import Cut, PairCounts


@audit_command
@option("--at", "cut_offs", type=SHARE, multiple=True, help="A cut-off to show (may be repeated).")
@option("--lose-at-most", type=SMALL_SHARE, help="Show the cut-off that loses at most this share of good pairs.")
@option("--expect-precision", type=SHARE, help="Show only the cut-off whose removed pairs have this precision.")
@where_option
@output_options
def command(audit: str, cut_offs: tuple[float, ...], where: str | None, output: Output, **goal: float | None) -> None:
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
    if any(share is not None for share in goal.values()):
        cuts = [choose_cut(counts, **goal)]
    else:
        cuts = compute_cuts(counts, cut_offs or SHOWN)
    if output.for_machines:
        output.show([{**cut.to_dict(), "unscored": counts.unscored} for cut in cuts])
    else:
        output.show([tabulate_cut(cut) for cut in cuts], describe_share(counts))


def describe_share(counts: "PairCounts") -> str:
    """The number of pairs and the share of them that is mismatched, which is the share left if nothing is removed."""
    from auditor.keep.thresholds import NOTHING, compute_cuts
    from auditor.query.summary import NOT_COUNTED, format_points

    [whole] = compute_cuts(counts, [NOTHING])
    unscored = f"; no estimate: {counts.unscored:,}, which no cut removes" if counts.unscored else ""
    share, low, high = (format_points(value or 0) for value in (whole.left, whole.left_low, whole.left_high))
    return (
        f"{counts.pairs.sum():,.0f} pairs, about {share}% ({low} to {high}) of them mismatched, {NOT_COUNTED}{unscored}"
    )


def tabulate_cut(cut: "Cut") -> dict[str, Any]:
    row: dict[str, Any] = {"cut": f"{cut.p:g}", "removed": cut.removed, "share": f"{cut.removed_share:.1%}"}
    names = {"mismatched": "precision", "caught": "caught", "good lost": "lost", "left": "left"}
    return row | {title: format_cut_share(cut, name) for title, name in names.items()}


def format_cut_share(cut: "Cut", name: str) -> str:
    """A share of a cut with its interval, or an empty text if there is none."""
    value, low, high = (getattr(cut, f"{name}{end}") for end in ("", "_low", "_high"))
    return "" if None in (value, low, high) else f"{value:.1%} ({100 * low:.1f}-{100 * high:.1f})"

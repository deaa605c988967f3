"""`auditor thresholds`: what each cut-off of p_mismatch removes, and what it costs."""

from typing import TYPE_CHECKING, Any

import click

from auditor.commands.output import SHARE, SMALL_SHARE, open_audit, output_options, show

if TYPE_CHECKING:
    from auditor.keep.thresholds import Cut, PairCounts


@click.command()
@click.argument("audit")
@click.option("--at", "given", type=SHARE, multiple=True, help="This cut-off (may be repeated).")
@click.option("--lose-at-most", type=SMALL_SHARE, help="Only the cut that loses at most this share of the good pairs.")
@click.option("--expect-precision", type=SHARE, help="Only the cut whose removed pairs are this pure.")
@click.option("--where", help="Only rows that meet this SQL condition.")
@output_options
def command(
    audit: str,
    given: tuple[float, ...],
    lose_at_most: float | None,
    expect_precision: float | None,
    where: str | None,
    as_json: bool,
    as_csv: bool,
    parquet: str | None,
) -> None:
    """What removing the pairs of AUDIT with p_mismatch >= cut does, for each cut-off; 90% intervals in brackets.

    mismatched: expected share of mismatched pairs among the removed. caught: share of all mismatched pairs that goes.
    good lost: share of the good pairs that goes with them. left: share of mismatched pairs among the kept. Captions of
    something related look right to an encoder: of those, fewer are caught and more are left.

    \b
    auditor thresholds audit/
    auditor thresholds audit/ --lose-at-most 2%
    auditor thresholds audit/ --expect-precision 0.9 --where "kind = 'video'"
    """
    from auditor.keep.thresholds import SHOWN, choose_cut, count_pairs, cuts

    found = count_pairs(open_audit(audit).database, where)
    if lose_at_most is not None or expect_precision is not None:
        listed = [choose_cut(found, lose_at_most=lose_at_most, expect_precision=expect_precision)]
    else:
        listed = cuts(found, given or SHOWN)
    machine = as_json or as_csv or parquet
    rows = [{**cut.to_dict(), "unscored": found.unscored} if machine else shown(cut) for cut in listed]
    show(rows, title=overview(found), as_json=as_json, as_csv=as_csv, parquet=parquet)


def overview(found: "PairCounts") -> str:
    """How many pairs there are, and what share of them is mismatched: what is left where nothing is removed."""
    from auditor.keep.thresholds import NOTHING, cuts

    [whole] = cuts(found, [NOTHING])
    share = between(whole.left, whole.left_low, whole.left_high)
    unscored = f"; no estimate: {found.unscored:,}, which no cut removes" if found.unscored else ""
    return f"{found.pairs.sum():,.0f} pairs, at least {share} of them mismatched{unscored}"


def shown(cut: "Cut") -> dict[str, Any]:
    return {
        "cut": f"{cut.p:g}",
        "removed": cut.removed,
        "share": f"{cut.removed_share:.1%}",
        "mismatched": between(cut.precision, cut.precision_low, cut.precision_high),
        "caught": between(cut.caught, cut.caught_low, cut.caught_high),
        "good lost": between(cut.lost, cut.lost_low, cut.lost_high),
        "left": between(cut.left, cut.left_low, cut.left_high),
    }


def between(value: float | None, low: float | None, high: float | None) -> str:
    """A share with its interval; empty where there is nothing to take a share of."""
    if value is None or low is None or high is None:
        return ""
    return f"{value:.1%} ({100 * low:.1f}-{100 * high:.1f})"

"""`auditor thresholds`: what each cut-off of p_mismatch removes, and what it costs."""

from typing import TYPE_CHECKING, Any

import click

from auditor.commands.output import open_audit, output_options, parse_loss, show

if TYPE_CHECKING:
    from auditor.query.thresholds import Cut


@click.command()
@click.argument("audit")
@click.option("--at", "given", type=click.FloatRange(0, 1), multiple=True, help="This cut-off (may be repeated).")
@click.option("--lose-at-most", help="Only the cut that loses at most this share (2%) of the good pairs.")
@click.option("--expect-precision", type=click.FloatRange(0, 1), help="Only the cut whose removed pairs are this pure.")
@click.option("--where", help="Only rows that meet this SQL condition.")
@output_options
def command(
    audit: str,
    given: tuple[float, ...],
    lose_at_most: str | None,
    expect_precision: float | None,
    where: str | None,
    as_json: bool,
    as_csv: bool,
    parquet: str | None,
) -> None:
    """What removing the pairs of AUDIT with p_mismatch >= cut does, for each cut-off; 90% intervals in brackets.

    mismatched: expected share of mismatched pairs among the removed. caught: share of all mismatched pairs that goes.
    good lost: share of the good pairs that goes with them.

    \b
    auditor thresholds audit/
    auditor thresholds audit/ --lose-at-most 2%
    auditor thresholds audit/ --expect-precision 0.9 --where "kind = 'video'"
    """
    from auditor.query.thresholds import SHOWN, choose_cut, count_pairs, cuts

    found = count_pairs(open_audit(audit).database, where)
    if lose_at_most is not None or expect_precision is not None:
        share = parse_loss(lose_at_most) if lose_at_most is not None else None
        listed = [choose_cut(found, lose_at_most=share, expect_precision=expect_precision)]
    else:
        listed = cuts(found, given or SHOWN)
    machine = as_json or as_csv or parquet
    rows = [cut.to_dict() if machine else shown(cut) for cut in listed]
    pairs, mismatched = found.pairs.sum(), (found.pairs * found.p).sum()
    title = (
        f"{pairs:,.0f} pairs, at least {mismatched:,.0f} of them ({mismatched / pairs:.1%}) expected to be mismatched"
    )
    if found.unscored:
        title += f"; no estimate: {found.unscored:,}, which no cut removes"
    show(rows, title=title, as_json=as_json, as_csv=as_csv, parquet=parquet)


def shown(cut: "Cut") -> dict[str, Any]:
    nothing = cut.precision is None
    return {
        "cut": f"{cut.p:g}",
        "removed": cut.removed,
        "share": f"{cut.removed_share:.1%}",
        "mismatched": "" if nothing else between(cut.precision, cut.precision_low, cut.precision_high),
        "caught": f"{cut.caught:.1%}",
        "good lost": between(cut.lost, cut.lost_low, cut.lost_high),
    }


def between(value: float | None, low: float | None, high: float | None) -> str:
    return f"{value or 0:.1%} ({100 * (low or 0):.1f}-{100 * (high or 0):.1f})"

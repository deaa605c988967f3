"""`auditor thresholds`: show what each cut-off of p_mismatch or of an uncertainty removes, and what it costs."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from auditor.commands.options import SHARE, SMALL_SHARE, audit_command, option, where_option
from auditor.commands.output import Output, open_database, output_options
from auditor.schema import FAILURES

if TYPE_CHECKING:
    from auditor.keep.thresholds import Cut, PairCounts
    from auditor.query.database import AuditDatabase


@audit_command
@option("--by", type=click.Choice(["p_mismatch", *FAILURES]), default="p_mismatch", help="The column to cut.")
@option("--at", "cut_offs", metavar="X", multiple=True, help="A cut-off to show (may be repeated).")
@option("--lose-at-most", type=SMALL_SHARE, help="Show the cut-off that loses at most this share of good pairs.")
@option("--expect-precision", type=SHARE, help="Show only the cut-off whose removed pairs have this precision.")
@where_option
@output_options
def command(audit: str, by: str, cut_offs: tuple[str, ...], where: str | None, output: Output, **goal: Any) -> None:
    """Show the effect of removing the pairs of AUDIT with p_mismatch >= cut, for each cut-off, with 90% intervals.

    mismatched: expected share of mismatched pairs among those removed. caught: share of all mismatched pairs that is
    removed. good lost: share of the good pairs that is removed with them. left: share of mismatched pairs among those
    kept. Related captions look right to an encoder: of those, fewer are caught and more are left.

    With --by, the pairs with a value above the cut are removed. removed fail, kept fail: share of them that fails in
    retrieval, because another medium or caption of the reference sample fits better than the own one. others lost:
    share of the pairs that do not fail that is removed. Then: the flags of the removed, and the topics that lose most.

    \b
    auditor thresholds audit/
    auditor thresholds audit/ --lose-at-most 2%
    auditor thresholds audit/ --by uncertainty_text --at 0.6
    auditor thresholds audit/ --expect-precision 0.9 --where "kind = 'video'"
    """
    from auditor.keep.caption_choice import list_sources
    from auditor.keep.thresholds import SHOWN, ThresholdError, choose_cut, compute_cuts, count_pairs
    from auditor.query.rules import RuleError, parse_limit
    from auditor.query.sandbox import quote_literal

    if cut_offs and any(share is not None for share in goal.values()):
        raise RuleError("give cut-offs with --at, or a goal with --lose-at-most or --expect-precision, not both")
    try:
        limits = [parse_limit(f"max_{by}", text) for text in cut_offs]
    except RuleError as error:
        raise RuleError(f"--at: {error}") from None
    if by != "p_mismatch":
        show_uncertainty_cuts(open_database(audit), by, limits, where, output, **goal)
        return
    database = open_database(audit)
    counts = count_pairs(database, where)
    if any(share is not None for share in goal.values()):
        cuts = [choose_cut(counts, **goal)]
    else:
        cuts = compute_cuts(counts, limits or SHOWN)
    tables = [("", counts, cuts)]
    for source in [] if where else list_sources(database):
        with suppress(ThresholdError):  # no pair of it has p_mismatch
            counts = count_pairs(database, f"caption_source = {quote_literal(source)}")
            tables.append((source, counts, compute_cuts(counts, [cut.p for cut in cuts])))
    if output.for_machines:
        output.show([build_cut_record(cut, *table[:2]) for table in tables for cut in table[2]])
        return
    for source, counts, cuts in tables:
        output.show([cut.tabulate() for cut in cuts], f"{source}: {describe_share(counts)}".removeprefix(": "))


def build_cut_record(cut: "Cut", source: str, counts: "PairCounts") -> dict[str, Any]:
    """A cut for machines; those of one source of captions name it."""
    return {**cut.to_dict(), "unscored": counts.unscored, **({"caption_source": source} if source else {})}


def show_uncertainty_cuts(
    database: "AuditDatabase", by: str, limits: list[float], where: str | None, output: Output, **goal: float | None
) -> None:
    from auditor.keep.uncertainty_cuts import choose_uncertainty_cut, measure_cuts

    if any(share is not None for share in goal.values()):
        cuts = [choose_uncertainty_cut(database, by, where=where, **goal)]
    else:
        cuts = measure_cuts(database, by, limits, where)
    if output.for_machines:
        output.show([cut.to_dict() for cut in cuts])
    else:
        output.show([cut.tabulate() for cut in cuts], cuts[0].describe_failures())


def describe_share(counts: "PairCounts") -> str:
    from auditor.keep.thresholds import estimate_mismatched

    noise = estimate_mismatched(counts)
    unscored = f"; no estimate: {counts.unscored:,}, which no cut removes" if counts.unscored else ""
    return f"{noise.pairs:,} pairs; mismatched: {noise.words()}{unscored}"

"""Options that choose rows of an audit, the same for `filter`, `weigh` and `export`."""

from typing import TYPE_CHECKING, Any

import click

from auditor.commands.output import Function, parse_loss
from auditor.query.rules import CHOICES
from auditor.say import say
from auditor.schema import RULES

if TYPE_CHECKING:
    from auditor.audit import Audit
    from auditor.keep.subset import Subset

# one for each column that declares a rule, in the order of the columns
BOUNDS = [
    click.option("--" + rule.replace("_", "-"), rule, type=float, help=column.rule) for rule, column in RULES.items()
]
OPTIONS = [
    *BOUNDS,
    click.option("--max", "at_most", multiple=True, metavar="COLUMN=X", help="Keep rows with at most X in any column."),
    click.option("--min", "at_least", multiple=True, metavar="COLUMN=X",
                 help="Keep rows with at least X in any column."),
    click.option("--where", help="Keep rows that meet this SQL condition."),
    click.option("--no-duplicates", is_flag=True, help="Of each group of duplicates keep one."),
    click.option("--no-overlap", metavar="OTHER", help="Leave out media that `auditor overlap` found in OTHER too."),
    click.option("--unscored", type=click.Choice(CHOICES["unscored"]), default="keep", show_default=True,
                 help="What to do with pairs that have no estimate for a limit, such as those of a kind with too few "
                 "pairs."),
    click.option("--per-medium", type=click.Choice(CHOICES["per_medium"]),
                 help="Keep or remove all captions of a medium together: when any or all of them meet the rules, or by "
                 "the mean or the worst of their numbers."),
    click.option("--lose-at-most", help="Choose the cut of p_mismatch that loses at most this share (2%) of good "
                 "pairs."),
    click.option("--expect-precision", type=float, help="Choose the cut at which this share of the removed is "
                 "mismatched."),
]  # fmt: skip


def rule_options(function: Function) -> Function:
    """The bounds alone."""
    for option in reversed(BOUNDS):
        function = option(function)
    return function


def selection_options(function: Function) -> Function:
    for option in reversed(OPTIONS):
        function = option(function)
    return function


def selected(audit: "Audit", rules: dict[str, Any]) -> "Subset":
    """What the values of OPTIONS, and further rules, keep of an audit."""
    rules = dict(rules)
    lose_at_most, expect_precision = rules.pop("lose_at_most"), rules.pop("expect_precision")
    if lose_at_most is not None or expect_precision is not None:
        rules["max_p_mismatch"] = chosen_cut(audit, lose_at_most, expect_precision, rules["max_p_mismatch"])
    bounds = {end: bounds_on(end, rules.pop(given)) for end, given in (("max", "at_most"), ("min", "at_least"))}
    return audit.keep(**rules, **bounds)


def bounds_on(end: str, given: tuple[str, ...]) -> dict[str, float]:
    """What COLUMN=X says, by column."""
    from auditor.query.rules import RuleError

    found = {}
    for text in given:
        column, _, value = text.partition("=")
        try:
            found[column.strip()] = float(value)
        except ValueError:
            raise RuleError(f"--{end} {text!r}: write it like --{end} aesthetics_score=5") from None
    return found


def chosen_cut(audit: "Audit", lose_at_most: str | None, expect_precision: float | None, given: float | None) -> float:
    """The cut of p_mismatch within the limits; the stricter of it and a bound that was given too."""
    from auditor.query.thresholds import choose_cut

    share = parse_loss(lose_at_most) if lose_at_most is not None else None
    cut = float(choose_cut(audit.database, lose_at_most=share, expect_precision=expect_precision))
    say(f"cut: p_mismatch <= {cut:.4g}", err=True)
    return cut if given is None else min(cut, given)

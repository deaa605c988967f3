"""Options that choose rows of an audit, the same for `filter`, `weigh`, `export` and `certify`."""

from typing import TYPE_CHECKING, Any

import click

from auditor.commands.output import SHARE, SMALL_SHARE, Function
from auditor.query.rules import CHOICES
from auditor.say import say
from auditor.schema import RULES

if TYPE_CHECKING:
    from auditor.audit import Audit
    from auditor.keep.subset import Subset

# one for each column that declares a rule, in the order of the columns
BOUNDS = [
    click.option(
        "--" + rule.replace("_", "-"), rule, metavar="X or X%" if column.range == (0, 1) else "X", help=column.rule
    )
    for rule, column in RULES.items()
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
    click.option("--lose-at-most", type=SMALL_SHARE, help="Choose the cut of p_mismatch that loses at most this share "
                 "(2%) of good pairs."),
    click.option("--expect-precision", type=SHARE, help="Choose the cut at which this share of the removed is "
                 "mismatched."),
]  # fmt: skip


def selection_options(function: Function) -> Function:
    for option in reversed(OPTIONS):
        function = option(function)
    return function


def selected(audit: "Audit", rules: dict[str, Any]) -> "Subset":
    """What the values of OPTIONS, and further rules, keep of an audit."""
    return audit.keep(**chosen_rules(audit, rules))


def chosen_rules(audit: "Audit", given: dict[str, Any]) -> dict[str, Any]:
    """The values of OPTIONS as arguments of `Audit.keep`."""
    rules = dict(given)
    lose_at_most, expect_precision = rules.pop("lose_at_most"), rules.pop("expect_precision")
    if lose_at_most is not None or expect_precision is not None:
        rules["max_p_mismatch"] = chosen_cut(audit, lose_at_most, expect_precision, rules["max_p_mismatch"])
    most, least = bounds_on("max", rules.pop("at_most")), bounds_on("min", rules.pop("at_least"))
    return {**rules, "max": most, "min": least}


def bounds_on(end: str, given: tuple[str, ...]) -> dict[str, float]:
    """What COLUMN=X says, by column."""
    from auditor.query.rules import RuleError, parse_limit

    found = {}
    for text in given:
        column, _, value = text.partition("=")
        try:
            found[column.strip()] = parse_limit(f"{end}_{column.strip()}", value)
        except RuleError as error:
            raise RuleError(f"--{end} {text!r}: {error}; write it like --{end} aesthetics_score=5") from None
    return found


def chosen_cut(audit: "Audit", lose_at_most: float | None, expect_precision: float | None, given: str | None) -> float:
    """The cut of p_mismatch within the limits; the stricter of it and a bound that was given too."""
    from auditor.keep.thresholds import choose_cut
    from auditor.query.rules import parse_limit

    cut = float(choose_cut(audit.database, lose_at_most=lose_at_most, expect_precision=expect_precision))
    say(f"cut: p_mismatch <= {cut:.4g}", err=True)
    return cut if given is None else min(cut, parse_limit("max_p_mismatch", given))

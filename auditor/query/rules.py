"""What the flags and the filter rules mean, each defined once, as SQL over the measurements of an audit.

A flag says "suspicious" and is false where a measurement is missing; a rule says "keep", and `unscored` decides then.
"""

import difflib
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar, get_type_hints

from auditor.errors import AuditorError
from auditor.query.sandbox import literal, name
from auditor.schema import COLUMNS, FLAGS, RULES, Flag
from auditor.schema.rule_arguments import ColumnLimits, Limit


class RuleError(AuditorError):
    """A rule that makes no sense."""


# One number for all rows, or one for each kind of medium: what is much for 200 clips is little for 2,000 photos.
Threshold = float | Mapping[str, float] | None


def overridden(saved: Mapping[str, Threshold], given: Mapping[str, Threshold]) -> dict[str, Threshold]:
    """The thresholds of an audit with those that were given; whatever else raised the same flag counts no more."""
    kept = dict(saved)
    for flag in FLAGS.values():
        names = {name for name in (flag.name, flag.paper_measure, flag.share_measure, flag.second_measure) if name}
        if names & set(given):
            kept = {name: cut for name, cut in kept.items() if name not in names}
    return {**kept, **given}


def flag_sql(thresholds: Mapping[str, Threshold]) -> dict[str, str]:
    """SQL of each flag. A threshold named after a measurement (`uncertainty_text`) cuts that one instead."""
    flags = {}
    for flag in FLAGS.values():
        column, threshold = flag_cut(flag, thresholds)
        flags[flag.name] = at_least(column, threshold)
        second = flag.second_measure if column == flag.measure else None
        if second and thresholds.get(second) is not None:
            flags[flag.name] = f"({flags[flag.name]} OR {at_least(second, thresholds[second])})"
    return flags


def flag_cut(flag: Flag, thresholds: Mapping[str, Threshold]) -> tuple[str, Threshold]:
    """The column that a flag goes by, and where it is cut."""
    share_measure = (flag.share_measure, flag.share_measure)
    for column, threshold in ((flag.paper_measure, flag.paper_measure), (flag.measure, flag.name), share_measure):
        if column and threshold and thresholds.get(threshold) is not None:
            return column, thresholds[threshold]
    return flag.measure, None


def at_least(column: str, threshold: Threshold) -> str:
    if threshold is None:
        return "FALSE"
    if isinstance(threshold, Mapping):
        kinds = [f"(kind = {literal(kind)} AND {at_least(column, cut)})" for kind, cut in sorted(threshold.items())]
        return f"coalesce({' OR '.join(kinds) or 'FALSE'}, FALSE)"
    return bound_sql(column, ">=", threshold)


Unscored = Literal["keep", "drop"]
PerMedium = Literal["any", "all", "mean", "worst"]
CHOICES = {"unscored": ("keep", "drop"), "per_medium": ("any", "all", "mean", "worst")}


BOUNDS = ("max", "min")  # of any column of numbers, as a mapping: max={"aesthetics_score": 5}


@dataclass(frozen=True, slots=True)
class Rules:
    """What to keep: all that are given must hold. `keep_top` is a share ('30%', 0.3) of the usable rows or a count.

    `unscored` decides on rows that have no value for a limit, as videos of a corpus with too few of them have no
    p_mismatch. `per_medium` decides on all captions of a medium together: see auditor/keep/rule_effects.py.
    """

    limits: Mapping[str, float] = field(default_factory=dict)  # by rule of auditor.schema.RULES: max_p_mismatch, ...
    keep_top: str | float | int | None = None
    by: str | None = None
    where: str | None = None
    no_duplicates: bool = False
    no_overlap: str | None = None  # another corpus, as `auditor overlap` was given it
    unscored: Unscored = "keep"
    per_medium: PerMedium | None = None

    def __post_init__(self) -> None:
        if (self.keep_top is None) != (self.by is None):
            raise RuleError("keep_top and by go together: --keep-top 30% --by similarity")
        if self.keep_top is not None:
            parse_share(self.keep_top)
        if not isinstance(self.no_duplicates, bool):
            raise RuleError(f"no_duplicates is True or False, not {self.no_duplicates!r}")
        for rule, choices in CHOICES.items():
            if getattr(self, rule) not in (*choices, None):
                raise RuleError(f"{rule} is one of {', '.join(choices)}, not {getattr(self, rule)!r}")

    @classmethod
    def of(cls, given: "Rules | Mapping[str, Any] | None" = None, /, **more: Any) -> "Rules":
        """Rules from a mapping or keyword arguments; None means not set, unknown ones are refused."""
        if isinstance(given, Rules):
            return given
        rules = {**(given or {}), **more}
        known = [*RULES, *OTHER_RULES]
        bounds = {f"{end}_{column}": x for end in BOUNDS for column, x in mapped(end, rules.pop(end, None)).items()}
        if unknown := sorted(set(rules) - set(known)):
            near = difflib.get_close_matches(unknown[0], known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the rules are {', '.join(sorted([*known, *BOUNDS]))}"
            raise RuleError(f"there is no rule {unknown[0]!r}; {hint}")
        limits = {rule: parse_limit(rule, rules[rule]) for rule in RULES if rules.get(rule) is not None}
        limits |= {rule: parse_limit(rule, x) for rule, x in bounds.items()}
        return cls(limits, **{rule: rules[rule] for rule in OTHER_RULES if rules.get(rule) is not None})

    def bounds(self) -> dict[str, tuple[str, str, float]]:
        """Rule -> (column, comparison that keeps, threshold) for the rules that are plain bounds."""
        comparisons = {"max_": "<=", "min_": ">="}
        return {rule: (rule[4:], comparisons[rule[:4]], limit) for rule, limit in self.limits.items()}

    def to_dict(self) -> dict[str, Any]:
        """The rules that are set."""
        others = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "limits"}
        defaults = {field.name: field.default for field in fields(self)}
        return {**self.limits, **{rule: value for rule, value in others.items() if value != defaults[rule]}}

    def command_line(self) -> list[str]:
        """The same rules as options of `auditor filter`."""
        options = []
        for rule, value in self.to_dict().items():
            if rule in self.limits and rule not in RULES:
                options += [f"--{rule[:3]}", f"{rule[4:]}={value}"]
                continue
            options.append("--" + rule.replace("_", "-"))
            if value is not True:
                options.append(str(value))
        return options


def mapped(end: str, given: Any) -> Mapping[str, Any]:
    """The bounds that `max` or `min` gives for columns."""
    if given is not None and not isinstance(given, Mapping):
        raise RuleError(f'{end} names its columns, {end}={{"similarity": 0.3}}, and is not {given!r}')
    return given or {}


OTHER_RULES = tuple(field.name for field in fields(Rules) if field.name != "limits")


class KeepRules(ColumnLimits, total=False):
    """All rules as keyword arguments, for type checkers and editors; a test holds them to `Rules`."""

    max: Mapping[str, Limit] | None
    min: Mapping[str, Limit] | None
    keep_top: str | float | int | None
    by: str | None
    where: str | None
    no_duplicates: bool
    no_overlap: str | None
    unscored: Unscored
    per_medium: PerMedium | None


F = TypeVar("F", bound=Callable[..., Any])


def with_rules(function: F) -> F:
    """Names every rule in the signature of a function that takes **rules: for help() and completion."""
    named = inspect.signature(function)
    plain = [p for p in named.parameters.values() if p.kind is not p.VAR_KEYWORD]
    hints = get_type_hints(KeepRules)
    rules = [
        inspect.Parameter(rule, inspect.Parameter.KEYWORD_ONLY, default=USUAL.get(rule), annotation=hint)
        for rule, hint in hints.items()
    ]
    function.__signature__ = named.replace(parameters=[*plain, *rules])  # type: ignore[attr-defined]
    return function


USUAL = {rule.name: rule.default for rule in fields(Rules) if rule.name != "limits"}


def bound_sql(column: str, comparison: str, threshold: float, missing: bool = False) -> str:
    """A comparison that is `missing` where there is no value."""
    # measurements are 32-bit: compared as such, as NumPy does, and so that Parquet statistics can skip row groups
    return f"coalesce({name(column)} {comparison} CAST('{float(threshold)}' AS FLOAT), {str(missing).upper()})"


def parse_limit(rule: str, given: str | float) -> float:
    """The number of a limit: 0.3 and, of shares and probabilities, '30%'; refused where no row could have it."""
    column = COLUMNS.get(rule[4:])
    low, high = (column.value_range if column else None) or (-math.inf, math.inf)
    text = str(given).strip()
    share = (low, high) == (0, 1)
    try:
        value = float(text[:-1]) / 100 if share and text.endswith("%") else float(given)
    except (TypeError, ValueError):
        raise RuleError(f"{rule} needs a number{' or a share' if share else ''}, not {given!r}") from None
    if math.isnan(value):
        raise RuleError(f"{rule} needs a number, not nan")
    if not low <= value <= high:
        hint = f"; {value:g}% is written {value:g}% or {value / 100:g}" if share and 1 < value <= 100 else ""
        raise RuleError(f"{rule} is between {low:g} and {high:g}, not {text}{hint}")
    return value


def parse_share(given: str | float | int) -> float | int:
    """'30%' and 0.3 -> 0.3 (a share); 1000 and '1000' -> 1000 (a count)."""
    text = str(given).strip()
    try:
        if text.endswith("%"):
            value: float | int = float(text[:-1]) / 100
        elif any(mark in text for mark in ".e"):
            value = float(text)
        else:
            value = int(text)
    except ValueError:
        raise RuleError(f"keep_top: {given!r} is neither a share like 30% nor a count") from None
    if isinstance(value, float) and not 0 < value <= 1:
        raise RuleError(f"keep_top: {given!r} is not a share between 0 and 100%")
    if isinstance(value, int) and value < 1:
        raise RuleError(f"keep_top: {given!r} keeps nothing")
    return value

"""The flags and the filter rules as SQL over the measurements of an audit.

A flag marks a row as suspicious; it is false if the measurement is missing. A rule keeps a row; if the measurement is
missing, `unscored` decides.
"""

import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar, get_args, get_type_hints

from auditor.errors import AuditorError, explain_unknown_name
from auditor.query.sandbox import quote_name
from auditor.schema import COLUMNS, FLAG_THRESHOLD, FLAGS, RULES
from auditor.schema.rule_arguments import ColumnLimits, Limit
from auditor.schema.setting import setting


class RuleError(AuditorError):
    """A rule that is not valid."""


def override_thresholds(saved: Mapping[str, float], overrides: Mapping[str, float]) -> dict[str, float]:
    """Return the threshold of each flag: the user's, or else the audit's."""
    unknown = sorted(set(overrides) - set(FLAGS))
    if unknown:
        raise RuleError(f"there is no flag {unknown[0]!r}; thresholds are those of {', '.join(FLAGS)}")
    return {name: overrides.get(name, saved.get(name, FLAG_THRESHOLD)) for name in FLAGS}


def build_flag_sql(thresholds: Mapping[str, float]) -> dict[str, str]:
    return {name: build_bound_sql(flag.measure, ">=", thresholds[name]) for name, flag in FLAGS.items()}


Unscored = Literal["keep", "drop"]
PerMedium = Literal["any", "all", "mean", "worst"]
CHOICES = {"unscored": get_args(Unscored), "per_medium": get_args(PerMedium)}
LAST_RULES = ("balance", "diverse", "count", "share", "towards")
MOST_TOPICS = 10_000
BOUNDS = ("max", "min")  # on any column of numbers, as a mapping: max={"aesthetics_score": 5}


@dataclass(frozen=True, slots=True)
class Rules:
    """The rows to keep: those that meet all rules. `keep_top` is a share ('30%', 0.3) of the usable rows or a count.

    `count` or `share` come last and choose among the rows that meet all other rules (auditor/keep/ranked_rows.py).
    `unscored` applies to rows without a value for a limit: too few videos, for example, have no p_mismatch.
    `per_medium` decides on all captions of a medium together: see auditor/keep/rule_effects.py. What is written of kept
    captions (`drop_weak_parts`, `strip_preamble`, `no_edits`) is in auditor/keep/caption_changes.py.
    """

    limits: Mapping[str, float] = field(default_factory=dict)  # by rule of auditor.schema.RULES: max_p_mismatch, ...
    keep_top: str | float | int | None = None
    by: str | None = None
    count: int | None = setting(
        None,
        "Keep this number of the rows that satisfy all other rules, the best by --by [default: p_mismatch; with "
        "--towards or --balance similarity_normalised].",
        advanced=False,
        flag="--keep-count",
        metavar="N",
    )
    share: str | float | None = setting(
        None,
        "Keep this share of the rows that satisfy all other rules.",
        advanced=False,
        flag="--keep-share",
        metavar="X%",
    )
    towards: str | None = setting(
        None,
        "Prefer media like those of OTHER (see `auditor towards`; or a column that it stored): a tenth of the rank by "
        "that similarity is added to the rank by --by.",
        advanced=False,
        metavar="OTHER",
    )
    balance: str | None = setting(
        None,
        "Keep them in balance: at most as many of each value of COLUMN as gives that number. COLUMN is topic, "
        "topic:1000 (a thousand topics), language, or any other. "
        "Topics choose from the best 1.5 times as many by --by.",
        advanced=False,
        metavar="COLUMN",
    )
    diverse: bool = setting(
        False, "Choose media that represent the others of their topic, or value of --balance, instead of the best."
    )
    where: str | None = setting(None, "Keep rows that satisfy this SQL condition.", advanced=False)
    no_duplicates: bool = setting(False, "Keep one medium of each group of duplicates.", advanced=False)
    no_generated_defects: bool = setting(
        False, "Leave out captions with a defect of generated text: refusals, prompts, loops, cut-off ends, ..."
    )
    no_overlap: str | None = setting(
        None, "Leave out media that `auditor overlap` has found in OTHER.", metavar="OTHER"
    )
    prefer: tuple[str, ...] = setting(
        (),
        "Sources of captions, the best first: keep the captions of the first one that has captions which satisfy the "
        "other rules.",
    )
    best_caption: bool = setting(
        False, "Keep one caption of each medium, and of each time span: the one that describes it best.", advanced=False
    )
    drop_weak_parts: float | None = setting(
        None,
        "Drop the parts of a caption that are mismatched with more than this probability, and captions that have no "
        "other part.",
        share=True,
        metavar="P",
    )
    strip_preamble: bool = setting(False, "Write captions without openings such as 'The image shows'.")
    no_edits: bool = setting(False, "Write captions as they were audited, not as people have edited them.")
    unscored: Unscored = setting(
        "keep", "What to do with pairs that have no estimate, for example because their kind has too few pairs."
    )
    per_medium: PerMedium | None = setting(
        None,
        "Keep or remove all captions of a medium together: if any or all satisfy the rules, or by their mean or worst "
        "value.",
    )

    def __post_init__(self) -> None:
        if self.by is None if self.keep_top is not None else self.by is not None and not self.last_rule:
            raise RuleError("keep_top and by must be used together: --keep-top 30% --by similarity")
        if self.keep_top is not None:
            parse_share(self.keep_top)
        self._check_last_rule()
        names: Any = self.prefer
        names = names.split(",") if isinstance(names, str) else names  # as on the command line
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            raise RuleError(f"prefer lists sources of captions, and is not {self.prefer!r}")
        object.__setattr__(self, "prefer", tuple(names))
        for rule in ("diverse", "no_duplicates", "no_generated_defects", "best_caption", "strip_preamble", "no_edits"):
            if not isinstance(getattr(self, rule), bool):
                raise RuleError(f"{rule} is True or False, not {getattr(self, rule)!r}")
        for rule, choices in CHOICES.items():
            if getattr(self, rule) not in (*choices, None):
                raise RuleError(f"{rule} is one of {', '.join(choices)}, not {getattr(self, rule)!r}")

    def _check_last_rule(self) -> None:
        if self.count is not None and self.share is not None:
            raise RuleError("count and share both say how much to keep: give one of them")
        if self.count is not None and (type(self.count) is not int or self.count < 1):
            raise RuleError(f"count is a whole number of at least 1, not {self.count!r}")
        if self.share is not None and not parse_number("share", self.share, 0, 1):
            raise RuleError(f"share: {self.share!r} keeps nothing")
        if self.last_rule and self.count is None and self.share is None:
            raise RuleError(f"{self.last_rule} needs the number or share to keep: --keep-count 10000, --keep-share 30%")
        if self.diverse and self.towards:
            raise RuleError("diverse chooses media that represent the others, not the best ones: leave out towards")
        if self.topic_count is not None and not 2 <= self.topic_count <= MOST_TOPICS:
            raise RuleError(f"balance: from 2 to {MOST_TOPICS:,} topics are possible, not {self.topic_count:,}")

    @property
    def last_rule(self) -> str:
        """The name of the rule that chooses among the rows that meet all other rules, or an empty text."""
        return next((rule for rule in LAST_RULES if getattr(self, rule) not in (None, False)), "")

    @property
    def topic_count(self) -> int | None:
        """The number of topics if `balance` names one: 1000 of topic:1000."""
        topics, _, count = (self.balance or "").partition(":")
        return int(count) if topics == "topic" and count.isdecimal() else None

    @property
    def cell_column(self) -> str:
        """The column whose values are balanced: topic_1000 for topic:1000; topics unless `balance` says otherwise."""
        return name_topic_column(self.topic_count) if self.topic_count is not None else self.balance or "topic"

    @property
    def balances_topics(self) -> bool:
        return re.fullmatch(r"topic(_\d+)?", self.cell_column) is not None

    @classmethod
    def of(cls, mapping: "Rules | Mapping[str, Any] | None" = None, /, **keywords: Any) -> "Rules":
        """Make rules from a mapping or keyword arguments; None means not set, and unknown rules are refused."""
        if isinstance(mapping, Rules):
            return mapping
        rules = {**(mapping or {}), **keywords}
        names = [*RULES, *OTHER_RULES]
        bounds: dict[str, Any] = {}
        for end in BOUNDS:
            columns = rules.pop(end, None)
            if not isinstance(columns, Mapping | None):
                raise RuleError(f'{end} names its columns, {end}={{"similarity": 0.3}}, and is not {columns!r}')
            bounds |= {f"{end}_{column}": x for column, x in (columns or {}).items()}
        if unknown := sorted(set(rules) - set(names)):
            raise RuleError(explain_unknown_name("rule", unknown[0], sorted([*names, *BOUNDS])))
        bounds = {rule: rules[rule] for rule in RULES if rules.get(rule) is not None} | bounds
        limits = {rule: parse_limit(rule, x) for rule, x in bounds.items()}
        if (probability := rules.get("drop_weak_parts")) is not None:
            rules["drop_weak_parts"] = parse_number("drop_weak_parts", probability, 0, 1)
        return cls(limits, **{rule: rules[rule] for rule in OTHER_RULES if rules.get(rule) is not None})

    def bounds(self) -> dict[str, tuple[str, str, float]]:
        """Return {rule: (column, comparison, threshold)} of the rules that are bounds; the comparison keeps a row."""
        comparisons = {"max_": "<=", "min_": ">="}
        return {rule: (rule[4:], comparisons[rule[:4]], limit) for rule, limit in self.limits.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return the rules that are set."""
        values = {rule: getattr(self, rule) for rule in DEFAULT_RULES}
        return {**self.limits, **{rule: x for rule, x in values.items() if x != DEFAULT_RULES[rule]}}

    def command_line(self) -> list[str]:
        """Return the rules as options of `auditor filter`."""
        options = []
        for rule, value in self.to_dict().items():
            if rule in self.limits and rule not in RULES:
                options += [f"--{rule[:3]}", f"{rule[4:]}={value}"]
                continue
            options.append(FLAGS_OF_RULES.get(rule) or "--" + rule.replace("_", "-"))
            if value is not True:
                options.append(",".join(value) if isinstance(value, tuple) else str(value))
        return options


DEFAULT_RULES = {rule.name: rule.default for rule in fields(Rules) if rule.name != "limits"}
OTHER_RULES = tuple(DEFAULT_RULES)
FLAGS_OF_RULES = {rule.name: rule.metadata.get("flag") for rule in fields(Rules)}


class KeepRules(ColumnLimits, total=False):
    """All rules as keyword arguments, for type checkers and editors; a test compares them with `Rules`."""

    max: Mapping[str, Limit] | None
    min: Mapping[str, Limit] | None
    keep_top: str | float | int | None
    by: str | None
    count: int | None
    share: str | float | None
    towards: str | None
    balance: str | None
    diverse: bool
    where: str | None
    no_duplicates: bool
    no_generated_defects: bool
    no_overlap: str | None
    prefer: Sequence[str]
    best_caption: bool
    drop_weak_parts: float | None
    strip_preamble: bool
    no_edits: bool
    unscored: Unscored
    per_medium: PerMedium | None


def name_topic_column(count: int) -> str:
    return f"topic_{count}"


F = TypeVar("F", bound=Callable[..., Any])


def with_rules(function: F) -> F:
    """Add every rule to the signature of a function that takes **rules, for help() and completion."""
    signature = inspect.signature(function)
    plain = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    hints = get_type_hints(KeepRules)
    keyword = inspect.Parameter.KEYWORD_ONLY
    rules = [inspect.Parameter(n, keyword, default=DEFAULT_RULES.get(n), annotation=hint) for n, hint in hints.items()]
    function.__signature__ = signature.replace(parameters=[*plain, *rules])  # type: ignore[attr-defined]
    return function


def build_bound_sql(column: str, comparison: str, threshold: float, missing: bool = False) -> str:
    """Build the SQL of a comparison whose result is `missing` if there is no value."""
    # measurements are 32-bit: compared as such, as NumPy does, and so that Parquet statistics can skip row groups
    return f"coalesce({quote_name(column)} {comparison} CAST('{float(threshold)}' AS FLOAT), {str(missing).upper()})"


def parse_limit(rule: str, limit: str | float) -> float:
    """Parse a limit: 0.3 or, for shares and probabilities, '30%'; refuse a value outside the column's range."""
    column = COLUMNS.get(rule[4:])
    return parse_number(rule, limit, *((column.value_range if column else None) or (-math.inf, math.inf)))


def parse_number(rule: str, limit: str | float, low: float, high: float) -> float:
    text = str(limit).strip()
    share = (low, high) == (0, 1)
    try:
        value = float(text[:-1]) / 100 if share and text.endswith("%") else float(limit)
    except (TypeError, ValueError):
        raise RuleError(f"{rule} needs a number{' or a share' if share else ''}, not {limit!r}") from None
    if math.isnan(value):
        raise RuleError(f"{rule} needs a number, not nan")
    if not low <= value <= high:
        hint = f"; {value:g}% is written {value:g}% or {value / 100:g}" if share and 1 < value <= 100 else ""
        raise RuleError(f"{rule} is between {low:g} and {high:g}, not {text}{hint}")
    return value


def parse_share(share: str | float | int) -> float | int:
    """Parse '30%' and 0.3 as a share (0.3), 1000 and '1000' as a count (1000)."""
    text = str(share).strip()
    try:
        if text.endswith("%"):
            value: float | int = float(text[:-1]) / 100
        elif any(mark in text for mark in ".e"):
            value = float(text)
        else:
            value = int(text)
    except ValueError:
        raise RuleError(f"keep_top: {share!r} is neither a share like 30% nor a count") from None
    if isinstance(value, float) and not 0 < value <= 1:
        raise RuleError(f"keep_top: {share!r} is not a share between 0 and 100%")
    if isinstance(value, int) and value < 1:
        raise RuleError(f"keep_top: {share!r} keeps nothing")
    return value

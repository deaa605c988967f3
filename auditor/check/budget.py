"""A budget: limits on shares of rows in a TOML file; docs/check.md explains its keys."""

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any

from auditor.errors import AuditorError, explain_unknown_name
from auditor.query.rules import parse_number

MISMATCHED, OVERLAP = "mismatched", "overlap"
BOUNDS = ("at_most", "at_least", "worse_by_at_most")


class BudgetError(AuditorError):
    """A budget that is not valid or does not fit the audit."""


@dataclass(frozen=True, slots=True)
class BudgetLimit:
    """Bounds of the share of rows that meet `where`, or of a share with a name."""

    name: str
    share: str = ""  # the name of the limit unless it has a `where`
    where: str = ""
    among: str = ""
    per: str = ""  # column: the bounds hold in each of its groups
    other: str = ""  # corpus, of `overlap`
    at_most: float | None = None
    at_least: float | None = None
    worse_by_at_most: float | None = None  # than the share in the baseline

    @property
    def bounds(self) -> dict[str, float]:
        return {bound: value for bound in BOUNDS if (value := getattr(self, bound)) is not None}


def read_budget(path: str | Path) -> list[BudgetLimit]:
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        refuse_unknown_names(content, ["limits"], "table")
        tables = content.get("limits")
        if not tables or not isinstance(tables, dict):
            raise BudgetError("it has no table [limits]")
        limits = [parse_budget_limit(name, value) for name, value in tables.items()]
        refuse_contradictions(limits)
    except FileNotFoundError:
        raise BudgetError(f"there is no budget {path}; `auditor check AUDIT --init {path}` writes one") from None
    except (AuditorError, ValueError) as error:
        raise BudgetError(f"{path}: {error}") from None
    return limits


def refuse_unknown_names(names: Iterable[str], choices: Sequence[str], noun: str) -> None:
    if unknown := [name for name in names if name not in choices]:
        raise BudgetError(explain_unknown_name(noun, unknown[0], choices))


def parse_budget_limit(name: str, value: Any) -> BudgetLimit:
    table = value if isinstance(value, dict) else {"at_most": value}
    try:
        refuse_unknown_names(table, [field.name for field in fields(BudgetLimit)][1:], "key")
        values: dict[str, Any] = {} if "where" in table else {"share": name}
        values |= {key: parse_number(key, str(x), 0, 1) if key in BOUNDS else str(x) for key, x in table.items()}
        limit = BudgetLimit(name, **values)
        refuse_misuse(limit)
    except AuditorError as error:
        raise BudgetError(f"limits.{name}: {error}") from None
    return limit


def refuse_misuse(limit: BudgetLimit) -> None:
    is_change, is_part = limit.worse_by_at_most is not None, limit.share == MISMATCHED and limit.among
    problems = {
        f"it has no bound: {', '.join(BOUNDS)}": not limit.bounds,
        "it has both share and where": limit.share and limit.where,
        'overlap needs other = "CORPUS", and nothing else does': (limit.share == OVERLAP) != bool(limit.other),
        "per excludes worse_by_at_most, and `among` of mismatched": limit.per and (is_change or is_part),
    }
    for problem, is_present in problems.items():
        if is_present:
            raise BudgetError(problem)


def refuse_contradictions(limits: Sequence[BudgetLimit]) -> None:
    """Refuse an at_least above an at_most of the same share; what holds in every group also holds in the whole."""
    for first, second in product(limits, limits):
        subjects = {(limit.share, limit.where, limit.among, limit.other) for limit in (first, second)}
        low, high = first.at_least, second.at_most
        if len(subjects) == 1 and low is not None and high is not None and low > high:
            names = " and ".join(dict.fromkeys([first.name, second.name]))
            raise BudgetError(f"limits contradict each other ({names}): at_least {low:g} is above at_most {high:g}")

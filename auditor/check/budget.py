"""A budget: limits on shares of rows, read from a TOML file whose keys are the words of findings and columns.

    [limits]
    mismatched = "3%"
    duplicates = { at_most = "5%", per = "shard" }
    small = { where = "width < 200", among = "kind = 'image'", at_most = "1%" }

docs/check.md explains every key.
"""

import difflib
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any

from auditor.errors import AuditorError

MISMATCHED = "mismatched"  # the only share that is estimated; all others are counted
OVERLAP = "overlap"
BOUNDS = ("at_most", "at_least", "worse_by_at_most")


class BudgetError(AuditorError):
    """A budget that is not valid, or cannot be applied to an audit."""


@dataclass(frozen=True, slots=True)
class BudgetLimit:
    """Bounds of one share: of the rows that meet `where`, or that a named share counts, `among` others."""

    name: str
    share: str = ""  # the name of the limit unless there is a `where`
    where: str = ""
    among: str = ""
    per: str = ""  # column: the bounds hold in every group
    other: str = ""  # of `overlap`: the other corpus
    at_most: float | None = None
    at_least: float | None = None
    worse_by_at_most: float | None = None  # than the share in the baseline

    @property
    def bounds(self) -> dict[str, float]:
        return {bound: value for bound in BOUNDS if (value := getattr(self, bound)) is not None}


KEYS = tuple(field.name for field in fields(BudgetLimit) if field.name != "name")


@dataclass(frozen=True, slots=True)
class Budget:
    path: str
    limits: tuple[BudgetLimit, ...]
    baseline: str | None = None


def read_budget(path: str | Path) -> Budget:
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        refuse_unknown_names(content, ("limits", "baseline"), "key")
        limits, baseline = content.get("limits"), content.get("baseline")
        if not isinstance(limits, dict) or not limits:
            raise BudgetError("it has no [limits]; `auditor check AUDIT --init FILE` writes some")
        if not isinstance(baseline, str | None):
            raise BudgetError(f"baseline is the path of an audit, not {baseline!r}")
        parsed = tuple(parse_budget_limit(name, value) for name, value in limits.items())
        refuse_contradictions(parsed)
        return Budget(str(path), parsed, baseline)
    except FileNotFoundError:
        raise BudgetError(f"there is no budget {path}; `auditor check AUDIT --init {path}` writes one") from None
    except (BudgetError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BudgetError(f"{path}: {error}") from None


def refuse_unknown_names(names: Iterable[str], choices: Iterable[str], noun: str) -> None:
    """Refuse a name that is not among the choices, with the nearest one."""
    choices = list(choices)
    if unknown := sorted(set(names) - set(choices)):
        similar = difflib.get_close_matches(unknown[0], choices, n=1)
        hint = f"did you mean {similar[0]}?" if similar else f"use one of {', '.join(sorted(choices))}"
        raise BudgetError(f"there is no {noun} {unknown[0]!r}; {hint}")


def parse_budget_limit(name: str, value: Any) -> BudgetLimit:
    table = value if isinstance(value, dict) else {"at_most": value}
    try:
        refuse_unknown_names(table, KEYS, "key")
        bounds = {bound: parse_budget_share(bound, table[bound]) for bound in BOUNDS if bound in table}
        texts: dict[str, Any] = {key: text for key, text in table.items() if key not in BOUNDS}
        if wrong := next((key for key, text in texts.items() if not isinstance(text, str) or not text.strip()), None):
            raise BudgetError(f"{wrong} is a text, not {texts[wrong]!r}")
        if "where" not in texts:
            texts.setdefault("share", name)
        limit = BudgetLimit(name, **{**texts, **bounds})
        check_combination(limit)
    except BudgetError as error:
        raise BudgetError(f"limits.{name}: {error}") from None
    return limit


def parse_budget_share(bound: str, value: Any) -> float:
    """Parse "3%" or 0.03."""
    text = str(value).strip()
    try:
        share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        share = -1.0
    if isinstance(value, bool) or not 0 <= share <= 1:
        raise BudgetError(f'{bound} is a share like "3%" or 0.03, not {value!r}')
    return share


def check_combination(limit: BudgetLimit) -> None:
    if not limit.bounds:
        raise BudgetError(f"it has no bound; use {', '.join(BOUNDS[:-1])} or {BOUNDS[-1]}")
    if limit.share and limit.where:
        raise BudgetError("use share or where, not both")
    if (limit.share == OVERLAP) != bool(limit.other):
        raise BudgetError(f'share = "{OVERLAP}" and other = "CORPUS" must be used together')
    if limit.per and (limit.worse_by_at_most is not None or (limit.share == MISMATCHED and limit.among)):
        clash = "worse_by_at_most" if limit.worse_by_at_most is not None else f"{MISMATCHED} and among"
        raise BudgetError(f"per cannot be combined with {clash}")


def refuse_contradictions(limits: Sequence[BudgetLimit]) -> None:
    """Refuse an at_least above an at_most of the same share; what holds in every group also holds in the whole."""
    for first, second in product(limits, limits):
        subjects = [(limit.share, limit.where, limit.among, limit.other) for limit in (first, second)]
        low, high = first.at_least, second.at_most
        if subjects[0] == subjects[1] and low is not None and high is not None and low > high:
            names = " and ".join(dict.fromkeys(f"limits.{limit.name}" for limit in (first, second)))
            raise BudgetError(f"{names} cannot both hold: at_least {low:g} is above at_most {high:g}")

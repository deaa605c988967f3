"""Check an audit against a budget: a verdict for each bound, and one for the whole.

A bound is broken if the whole 90% interval is beyond it, and holds if none of it is; otherwise the verdict is "cannot
tell", with the number of labels or rows that would settle it. Strict verdicts compare the estimate alone. A bound of
many groups is broken only if an interval that is widened for their number (Bonferroni) is beyond it.
"""

import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal

from auditor.check.budget import Budget, BudgetError, BudgetLimit, read_budget
from auditor.check.named_shares import UnmeasuredError
from auditor.check.share_estimates import ShareEstimate, Z, estimate_change, estimate_shares
from auditor.query.database import AuditDatabase
from auditor.query.sandbox import QueryError
from auditor.report.findings import quote_for_shell

LimitVerdict = Literal["fail", "cannot tell", "pass"]
EXIT_CODES: dict[LimitVerdict, int] = {"pass": 0, "fail": 1, "cannot tell": 2}
MOST_LABELS = 20_000  # that anybody would judge
UNKNOWN_COLUMN = re.compile(r'Referenced column "([^"]+)" not found')  # DuckDB's words
ROUNDING = 1e-12  # 58 of 1,000 rows are not above 5.8%


def format_percent(share: float) -> str:
    return f"{100 * share:.3g}%"


@dataclass(frozen=True, slots=True)
class LimitResult:
    """The verdict on one bound, with the estimate of the group that is nearest to it or farthest beyond."""

    name: str
    bound: str  # at_most, at_least or worse_by_at_most
    value: float
    verdict: LimitVerdict
    estimate: ShareEstimate | None
    note: str  # what would settle it, or which groups break it

    @property
    def bound_words(self) -> str:
        return f"{self.bound.replace('_', ' ')} {format_percent(self.value)}"

    @property
    def share_words(self) -> str:
        """For example: 12.8% (12.1 to 13.2)."""
        if self.estimate is None:
            return ""
        share, low, high = (f"{100 * end:.3g}" for end in (self.estimate.share, self.estimate.low, self.estimate.high))
        is_change, is_exact = self.bound == "worse_by_at_most", self.estimate.low == self.estimate.high
        sign = "+" if is_change and self.estimate.share > 0 else ""
        return f"{sign}{share}%" + ("" if is_exact else f" ({low} to {high})")

    def tabulate(self) -> dict[str, Any]:
        """A row of a table for people."""
        rows, group = (self.estimate.rows, self.estimate.group) if self.estimate else (None, "")
        name = f"{self.name}: {group}" if group else self.name
        share = {"limit": self.bound_words, "is": self.share_words, "rows": rows}
        return {"verdict": self.verdict, "share": name, **share, "note": self.note}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The verdicts of a budget, worst first."""

    audit: str
    budget: str
    strict: bool
    results: tuple[LimitResult, ...]

    @property
    def verdict(self) -> LimitVerdict:
        verdicts = [result.verdict for result in self.results]
        return next((verdict for verdict in ("fail", "cannot tell") if verdict in verdicts), "pass")

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]

    def count(self, verdict: LimitVerdict) -> int:
        return sum(result.verdict == verdict for result in self.results)

    def describe(self) -> str:
        """For example: fail: 3 limits, 1 broken, 2 met."""
        total = f"{len(self.results)} limit{'s' * (len(self.results) != 1)}"
        parts = [total, *(f"{n} {word}" for v, word in WORDS.items() if (n := self.count(v)))]
        return f"{self.verdict}: {', '.join(parts)}"

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "verdict": self.verdict}


WORDS: dict[LimitVerdict, str] = {"fail": "broken", "cannot tell": "undecided", "pass": "met"}


def check_audit(
    database: AuditDatabase, budget: str | Path | Budget, *, baseline: str | Path | None = None, strict: bool = False
) -> CheckResult:
    """Compare the shares of an audit with the limits of a budget, and with a baseline audit if it names one."""
    budget = budget if isinstance(budget, Budget) else read_budget(budget)
    path = baseline or budget.baseline
    with ExitStack() as stack:
        other = stack.enter_context(AuditDatabase(path, limits=database.limits)) if path else None
        results = [
            check_bound(database, other, limit, bound, value, strict)
            for limit in budget.limits
            for bound, value in limit.bounds.items()
        ]
    order = list(WORDS)
    results.sort(key=lambda result: order.index(result.verdict))
    return CheckResult(database.path, budget.path, strict, tuple(results))


def check_bound(
    database: AuditDatabase,
    baseline: AuditDatabase | None,
    limit: BudgetLimit,
    bound: str,
    value: float,
    strict: bool,
) -> LimitResult:
    try:
        if bound != "worse_by_at_most":
            estimates = estimate_shares(database, limit)
        elif baseline is None:
            raise BudgetError("worse_by_at_most needs a baseline: name one in the budget or with --baseline")
        else:
            estimates = [estimate_change(database, baseline, limit)]
        if not estimates:
            raise UnmeasuredError("there is no row to count")
    except UnmeasuredError as reason:
        return LimitResult(limit.name, bound, value, "cannot tell", None, str(reason))
    except (BudgetError, QueryError) as error:
        raise BudgetError(f"limits.{limit.name}: {describe_query_error(database, error)}") from None
    return decide_groups(database.path, limit, bound, value, estimates, strict)


def describe_query_error(database: AuditDatabase, error: Exception) -> str:
    """The message; of a condition with an unknown column, the nearest name."""
    if match := UNKNOWN_COLUMN.search(str(error)):
        try:
            database.column(match[1], "where")
        except QueryError as nearest:
            return str(nearest)
    return str(error)


def decide_groups(
    path: str, limit: BudgetLimit, bound: str, value: float, estimates: Sequence[ShareEstimate], strict: bool
) -> LimitResult:
    """The verdict on all groups together; the whole corpus is one group."""
    verdicts = [decide_bound(estimate, bound, value, strict, len(estimates)) for estimate in estimates]
    verdict: LimitVerdict = min(verdicts, key=list(WORDS).index)
    sign = -1 if bound == "at_least" else 1
    worst = max(
        (estimate for estimate, v in zip(estimates, verdicts, strict=True) if v == verdict),
        key=lambda estimate: sign * estimate.share,
    )
    notes = []
    if len(estimates) > 1:
        notes.append(f"{verdicts.count(verdict):,} of {len(estimates):,} groups by {limit.per}")
    if verdict == "cannot tell":
        notes.append(describe_settling(path, worst, value))
    elif worst.basis:
        notes.append(worst.basis)
    return LimitResult(limit.name, bound, value, verdict, worst, "; ".join(notes))


def decide_bound(estimate: ShareEstimate, bound: str, value: float, strict: bool, groups: int) -> LimitVerdict:
    sign = -1 if bound == "at_least" else 1
    share, (low, high) = sign * estimate.share, sorted((sign * estimate.low, sign * estimate.high))
    limit = sign * value + ROUNDING
    if strict:
        return "fail" if share > limit else "pass"
    widening = NormalDist().inv_cdf(1 - 0.05 / groups) / Z
    if share - widening * (share - low) > limit:
        return "fail"
    return "pass" if high <= limit else "cannot tell"


def describe_settling(path: str, estimate: ShareEstimate, bound: float) -> str:
    count = estimate.count_to_settle(bound)
    if count is None or (estimate.unit == "labels" and count > MOST_LABELS):
        return "the share is too near the limit to be settled"
    if estimate.unit == "labels":
        return f"about {count:,} labels would settle it: auditor certify {quote_for_shell(path)} --labels {count}"
    return f"about {count:,} rows would settle it"

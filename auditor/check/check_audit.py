"""Check an audit against a budget: a verdict on each bound, and one on the whole.

A bound is broken if the whole 90% interval is beyond it, and met if none of it is. In groups, the interval is widened
for their number (Bonferroni) before a bound counts as broken.
"""

import math
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

from auditor.check.budget import BudgetError, BudgetLimit, read_budget
from auditor.check.share_estimates import ShareEstimate, Z, estimate_change, estimate_shares
from auditor.errors import AuditError
from auditor.query.database import AuditDatabase
from auditor.query.sandbox import QueryError
from auditor.report.findings import quote_for_shell

VERDICTS = {"fail": 1, "cannot tell": 2, "pass": 0}  # worst first, with the exit code
ROUNDING = 1e-12  # 58 of 1,000 rows are not above 5.8%


@dataclass(frozen=True, slots=True)
class LimitResult:
    name: str
    bound: str  # in words
    verdict: str
    estimate: ShareEstimate | None  # of the worst group
    note: str

    def tabulate(self) -> dict[str, str]:
        row = {"verdict": self.verdict, "share": self.name, "limit": self.bound, "is": "unknown", "note": self.note}
        if estimate := self.estimate:
            share, low, high = (f"{100 * x:.3g}" for x in (estimate.share, estimate.low, estimate.high))
            row["is"] = f"{share}%" + (f" ({low} to {high})" if low != high else "")
            row["share"] += f": {estimate.group}" if estimate.group else ""
        return row


@dataclass(frozen=True, slots=True)
class BudgetResult:
    """The results of all bounds, worst first."""

    audit: str
    budget: str
    verdict: str
    results: list[LimitResult]


def check_audit(
    database: AuditDatabase, budget: str | Path, *, baseline: str | None = None, strict: bool = False
) -> BudgetResult:
    """Compare shares with the limits of a budget; `strict` compares the estimates alone, without their intervals."""
    limits = read_budget(budget)
    with AuditDatabase(baseline, limits=database.limits) if baseline else nullcontext() as other:
        results = [check_bound(database, other, limit, bound, strict) for limit in limits for bound in limit.bounds]
    results.sort(key=lambda result: list(VERDICTS).index(result.verdict))
    return BudgetResult(database.path, str(budget), results[0].verdict, results)


def check_bound(
    database: AuditDatabase, baseline: AuditDatabase | None, limit: BudgetLimit, bound: str, strict: bool
) -> LimitResult:
    value = limit.bounds[bound]
    words = f"{bound.replace('_', ' ')} {100 * value:.3g}%"
    try:
        if bound != "worse_by_at_most":
            estimates = estimate_shares(database, limit)
        elif baseline is None:
            raise BudgetError(f"{bound} needs --baseline AUDIT")
        else:
            estimates = [estimate_change(database, baseline, limit)]
        if not estimates:
            raise AuditError("no row counts, or no pair has an estimate")
    except AuditError as reason:
        return LimitResult(limit.name, words, "cannot tell", None, str(reason))
    except (BudgetError, QueryError) as error:
        raise BudgetError(f"limits.{limit.name}: {error}") from None
    sign = -1 if bound == "at_least" else 1
    estimates.sort(key=lambda estimate: -sign * estimate.share)  # the worst group first
    verdicts = [decide_bound(estimate, sign, value, strict, len(estimates)) for estimate in estimates]
    verdict = min(verdicts, key=list(VERDICTS).index)
    worst = estimates[verdicts.index(verdict)]
    basis = describe_settling(database.path, worst, value) if verdict == "cannot tell" else worst.basis
    groups = f"{verdicts.count(verdict):,} of {len(estimates):,} groups by {limit.per}" if limit.per else ""
    return LimitResult(limit.name, words, verdict, worst, "; ".join(filter(None, (groups, basis))))


def decide_bound(estimate: ShareEstimate, sign: int, value: float, strict: bool, groups: int) -> str:
    share, ends = sign * estimate.share, sorted((sign * estimate.low, sign * estimate.high))
    low, high = (share, share) if strict else ends
    limit, widening = sign * value + ROUNDING, NormalDist().inv_cdf(1 - 0.05 / groups) / Z
    if share - widening * (share - low) > limit:
        return "fail"
    return "pass" if high <= limit else "cannot tell"


def describe_settling(path: str, estimate: ShareEstimate, bound: float) -> str:
    """How many labels of random rows, or more rows, would separate the interval from a bound."""
    gap = max(abs(estimate.share - bound), 1e-9)
    if not estimate.basis:
        return f"about {((estimate.high - estimate.low) / 2 / gap) ** 2 * estimate.rows:,.0f} rows would settle it"
    labels = Z**2 * estimate.share * (1 - estimate.share) / gap**2
    count = math.ceil(labels / (1 + labels / estimate.rows))  # without replacement
    return f"about {count:,} labels would settle it: auditor certify {quote_for_shell(path)} --labels {count}"

"""The share of mismatched, ambiguous and unusable rows of each shard, source, topic or any other column.

Shares of small groups are shrunk towards the whole by a Beta prior fitted to the spread of all groups; those that stand
out against the usual group are named. Nothing but counts is needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from auditor.query.database import AuditDatabase
from auditor.store.faults import Fault

Doubles = npt.NDArray[np.float64]
INTERVAL = (0.05, 0.95)
P_VALUE = 1e-3
AT_LEAST = 0.05  # above the usual share
TIMES = 2.0  # the usual share, that the lower end of the interval must reach
WORDS = {
    "mismatched": "mismatched",
    "ambiguous": "ambiguous",
    "unusable": "unusable",
}


@dataclass(frozen=True, slots=True)
class Share:
    """What part of a group has a defect, shrunk, with its 90% interval; `p_value` that it is a usual group."""

    group: str
    rows: int
    share: float
    low: float
    high: float
    p_value: float

    def stands_out(self, usual: float) -> bool:
        return self.p_value <= P_VALUE and self.low >= TIMES * usual and self.share >= usual + AT_LEAST


def shares(groups: Sequence[str], events: Doubles, rows: Doubles) -> tuple[list[Share], float]:
    """The shares of all groups, and the usual one: the median over rows. `events` may be sums of probabilities."""
    from scipy.stats import beta, binom

    rate = events / np.maximum(rows, 1)
    usual = weighted_median(rate, rows)
    strength = prior_strength(events, rows)
    whole = float(events.sum() / max(rows.sum(), 1))
    a, b = whole * strength + events, (1 - whole) * strength + np.maximum(rows - events, 0)
    a, b = np.maximum(a, 1e-6), np.maximum(b, 1e-6)
    chance = np.clip(usual, 0.5 / max(rows.sum(), 1), 1)
    p_value = np.minimum(1, len(rows) * binom.sf(np.floor(events) - 1, rows, chance))
    low, high = beta.ppf(INTERVAL[0], a, b), beta.ppf(INTERVAL[1], a, b)
    columns = zip(groups, rows, a / (a + b), low, high, p_value, strict=True)
    return [Share(group, int(count), *map(float, values)) for group, count, *values in columns], usual


def weighted_median(values: Doubles, weights: Doubles) -> float:
    order = np.argsort(values)
    at = np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)
    return float(values[order[min(int(at), len(order) - 1)]])


def prior_strength(events: Doubles, rows: Doubles) -> float:
    """Rows that the prior counts for: few where groups differ by more than chance (method of moments)."""
    total = rows.sum()
    whole = events.sum() / max(total, 1)
    spread = (rows * (events / np.maximum(rows, 1) - whole) ** 2).sum() - (len(rows) - 1) * whole * (1 - whole)
    between = spread / max(total - (rows**2).sum() / max(total, 1), 1e-9)
    if between <= 0 or not 0 < whole < 1:
        return 1000.0
    return float(np.clip(whole * (1 - whole) / between - 1, 1, 1000))


def group_shares(database: AuditDatabase, by: str) -> dict[str, tuple[list[Share], float]]:
    """The shares of each value of a column, by defect."""
    column = database.column(by)
    table = database.run(
        f"SELECT CAST({column} AS VARCHAR) AS value, count(*) AS rows, "
        "count(p_mismatch) AS scored, coalesce(sum(p_mismatch), 0) AS mismatched, "
        "count(*) FILTER (ambiguous_visual OR ambiguous_text) AS ambiguous, "
        "count(*) FILTER (status <> 'ok') AS unusable, count(*) FILTER (status = 'ok') AS usable "
        f"FROM {database.table(column)} WHERE {column} IS NOT NULL GROUP BY value ORDER BY value"
    )
    numbers = {c: table.column(c).to_numpy().astype(np.float64) for c in table.column_names if c != "value"}
    groups = table.column("value").to_pylist()
    of = {"mismatched": "scored", "ambiguous": "usable", "unusable": "rows"}
    return {defect: shares(groups, numbers[defect], numbers[rows]) for defect, rows in of.items()}


def shard_faults(database: AuditDatabase, by: str = "shard") -> list[Fault]:
    """The groups that stand out, the worst first."""
    found = []
    for defect, (listed, usual) in group_shares(database, by).items():
        if len(listed) < 3:
            continue
        for share in sorted(listed, key=lambda share: -share.share):
            if share.stands_out(usual):
                found.append(_fault(share, defect, usual, by))
    return found


def _fault(share: Share, defect: str, usual: float, by: str) -> Fault:
    sentence = (
        f"{by} {share.group}: {share.share:.0%} {WORDS[defect]} ({share.low:.0%} to {share.high:.0%}), "
        f"usually {usual:.1%}"
    )
    shard = share.group if by == "shard" else None
    return Fault("shard", defect, shard, None, None, None, share.rows, share.p_value, sentence)

"""What part of each group of rows has a defect, shrunk towards the whole, and which groups stand out.

Shares of small groups are shrunk by a Beta prior fitted to the spread of all groups; those that stand out against the
usual group are named. Nothing but counts is needed. NumPy and SciPy.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
INTERVAL = (0.05, 0.95)
P_VALUE = 1e-3
AT_LEAST = 0.05  # above the usual share
TIMES = 2.0  # the usual share, that the lower end of the interval must reach
FEWEST_GROUPS = 3  # of two, neither is the usual one


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

"""Shares of rows with a defect, by group, shrunk toward the overall share; and which groups are outliers.

Shares of small groups are shrunk by a Beta prior fitted to the variance between groups (empirical Bayes). Outliers are
groups with a significantly larger share than the typical group. Needs only counts. NumPy and SciPy.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
INTERVAL = (0.05, 0.95)
P_VALUE = 1e-3
SMALLEST_EXCESS = 0.05  # over the typical share
SMALLEST_RATIO = 2.0  # of the lower end of the interval to the typical share
FEWEST_GROUPS = 3  # of two groups, neither is typical


@dataclass(frozen=True, slots=True)
class GroupShare:
    """Shrunk share of a group's rows with a defect, its 90% interval, and the p-value against the typical share."""

    group: str
    rows: int
    share: float
    low: float
    high: float
    p_value: float

    def stands_out(self, typical: float) -> bool:
        significant = self.p_value <= P_VALUE and self.low >= SMALLEST_RATIO * typical
        return significant and self.share >= typical + SMALLEST_EXCESS


def estimate_group_shares(groups: Sequence[str], events: Doubles, rows: Doubles) -> tuple[list[GroupShare], float]:
    """The shares of all groups, and the typical share: the median over rows. `events` may be sums of probabilities.

    Posterior Beta(m k + events, (1 - m) k + rows - events) with overall share m and prior strength k; p-values of the
    binomial test against the typical share, with Bonferroni correction.
    """
    from scipy.special import betaincinv

    typical = compute_weighted_median(events / np.maximum(rows, 1), rows)
    strength = fit_prior_strength(events, rows)
    mean = float(events.sum() / max(rows.sum(), 1))
    a, b = mean * strength + events, (1 - mean) * strength + np.maximum(rows - events, 0)
    a, b = np.maximum(a, 1e-6), np.maximum(b, 1e-6)
    null_share = np.clip(typical, 0.5 / max(rows.sum(), 1), 1)
    p_value = np.minimum(1, len(rows) * compute_binomial_tail(events, rows, null_share))
    low, high = betaincinv(a, b, INTERVAL[0]), betaincinv(a, b, INTERVAL[1])
    columns = zip(groups, rows, a / (a + b), low, high, p_value, strict=True)
    return [GroupShare(group, int(count), *map(float, values)) for group, count, *values in columns], typical


def compute_binomial_tail(events: npt.ArrayLike, rows: npt.ArrayLike, share: npt.ArrayLike) -> Doubles:
    """P(X >= events) for X from Binomial(rows, share): `scipy.stats.binom.sf` without scipy.stats, a slow import."""
    from scipy.special import betainc

    least = np.floor(events)
    tail = betainc(np.maximum(least, 1), np.maximum(rows - least, 0) + 1, share)
    return np.where(least > 0, tail, 1.0)


def compute_weighted_median(values: Doubles, weights: Doubles) -> float:
    order = np.argsort(values)
    position = np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)
    return float(values[order[min(int(position), len(order) - 1)]])


def fit_prior_strength(events: Doubles, rows: Doubles) -> float:
    """Pseudo-count of the Beta prior by the method of moments: small if groups differ by more than sampling error."""
    total = rows.sum()
    mean = events.sum() / max(total, 1)
    excess = (rows * (events / np.maximum(rows, 1) - mean) ** 2).sum() - (len(rows) - 1) * mean * (1 - mean)
    variance = excess / max(total - (rows**2).sum() / max(total, 1), 1e-9)  # between groups
    if variance <= 0 or not 0 < mean < 1:
        return 1000.0
    return float(np.clip(mean * (1 - mean) / variance - 1, 1, 1000))

"""Drift of a growing corpus: how the new rows differ from the old ones in shares, means and topics."""

from dataclasses import dataclass

import numpy as np

from auditor.vectors import Floats, Ints

Z = 1.96
ROUNDS = 400  # of the bootstrap


@dataclass(frozen=True, slots=True)
class CorpusDrift:
    """One measure of the old and of the new rows, and the difference with its 95% interval."""

    what: str
    old: float
    new: float
    difference: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether the interval excludes zero."""
        return not self.low <= 0 <= self.high


def compare_means(name: str, old: Floats, new: Floats) -> CorpusDrift:
    """Difference of two means with its normal interval; missing values do not count."""
    old_values, new_values = (rows[np.isfinite(rows)].astype(np.float64) for rows in (old, new))
    old_mean, new_mean = float(old_values.mean()), float(new_values.mean())
    difference = new_mean - old_mean
    error = float(np.sqrt(old_values.var() / len(old_values) + new_values.var() / len(new_values)))
    return CorpusDrift(name, old_mean, new_mean, difference, difference - Z * error, difference + Z * error)


def compare_topics(old: Ints, new: Ints, seed: int = 0) -> CorpusDrift:
    """Total variation distance of the topics of old and new rows, which are counted by topic.

    Two samples from one distribution also have a positive distance. The 95th percentile of that null distribution is
    subtracted from the lower end, so that an interval above 0 is a real change.
    """
    generator = np.random.default_rng(seed)
    old_shares, new_shares = old / old.sum(), new / new.sum()
    distance = total_variation(old_shares, new_shares)
    common = (old + new) / (old.sum() + new.sum())

    def draw_distance(*shares: Floats) -> float:
        rows = zip((old.sum(), new.sum()), shares, strict=True)
        return total_variation(*((generator.multinomial(n, p) / n).astype(np.float32) for n, p in rows))

    null = [draw_distance(common, common) for _ in range(ROUNDS)]
    bootstrap = [draw_distance(old_shares, new_shares) for _ in range(ROUNDS)]
    low = float(np.quantile(bootstrap, 0.025)) - float(np.quantile(null, 0.95))
    high = float(np.quantile(bootstrap, 0.975))
    return CorpusDrift("topics that differ", 0.0, distance, distance, max(0.0, low), high)


def total_variation(p: Floats, q: Floats) -> float:
    """Half the sum of absolute differences: the share of rows that would have to change their topic."""
    return float(np.abs(p - q).sum() / 2)

"""How far new rows of a growing corpus are from the old ones: shares and means with intervals, topics as a distance."""

from dataclasses import dataclass

import numpy as np

from auditor.vectors import Floats, Ints

Z = 1.96
ROUNDS = 400  # of the bootstrap


@dataclass(frozen=True, slots=True)
class Drift:
    """One number of the old and of the new rows, and the difference with its 95% interval."""

    what: str
    old: float
    new: float
    difference: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out that nothing has changed."""
        return not self.low <= 0 <= self.high


def mean_drift(what: str, old: Floats, new: Floats) -> Drift:
    """Difference of two means; values that are not there do not count."""
    before, after = (rows[np.isfinite(rows)].astype(np.float64) for rows in (old, new))
    difference = float(after.mean() - before.mean())
    error = float(np.sqrt(before.var() / len(before) + after.var() / len(after)))
    return Drift(
        what, float(before.mean()), float(after.mean()), difference, difference - Z * error, difference + Z * error
    )


def topic_drift(old: Ints, new: Ints, seed: int = 0) -> Drift:
    """Share of the new rows that would have to change their topic to be spread as the old ones, above chance.

    `old` and `new` count rows by topic. Chance is the distance of samples of that size from one common spread; its
    95th percentile is taken off the lower end, so that an interval that begins above 0 is a real change.
    """
    generator = np.random.default_rng(seed)
    before, after = old / old.sum(), new / new.sum()
    found = distance(before, after)
    common = (old + new) / (old.sum() + new.sum())
    chance = [
        distance(resample(generator, common, int(old.sum())), resample(generator, common, int(new.sum())))
        for _ in range(ROUNDS)
    ]
    again = [
        distance(resample(generator, before, int(old.sum())), resample(generator, after, int(new.sum())))
        for _ in range(ROUNDS)
    ]
    usual = float(np.quantile(chance, 0.95))
    low = float(np.quantile(again, 0.025)) - usual
    return Drift("topics that differ", 0.0, found, found, max(0.0, low), float(np.quantile(again, 0.975)))


def distance(left: Floats, right: Floats) -> float:
    """Total variation: half the sum of the differences."""
    return float(np.abs(left - right).sum() / 2)


def resample(generator: np.random.Generator, shares: Floats, count: int) -> Floats:
    found: Floats = (generator.multinomial(count, shares) / count).astype(np.float32)
    return found

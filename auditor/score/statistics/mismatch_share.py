"""The share of mismatched pairs: pi0 in f = pi0 f0 + (1 - pi0) f1, where f0 is known from random re-pairings.

f1, the density of pairs that belong together, is taken to be skew-normal, and all four numbers are fitted by maximum
likelihood to the histogram of the pairs. Unlike a ratio read off where "only mismatched pairs are left" this uses every
pair, so that no single low bin decides. NumPy only.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]

BINS = 100
STARTS = tuple((share, shape) for share in (0.02, 0.2, 0.5) for shape in (-3.0, -1.0, 0.0, 1.0))
STEPS = 60
UNSEEN = 0.02  # re-pairings that a bin is thought to hold where none fell into it
SMALL = 1e-300
WORTH = 2.7  # twice the gain in log-likelihood by which a share above 0 must be better than 0: 90% of chi-squared
NOTHING_ELSE = 13.3  # by which a mixture must be better than re-pairings alone: 99% of chi-squared, four numbers
_erfc = np.frompyfunc(math.erfc, 1, 1)


@dataclass(frozen=True, slots=True)
class Bins:
    """Equally wide bins of the statistic."""

    edges: Doubles  # (B + 1,)

    @staticmethod
    def over(observed: Doubles, null: Doubles, count: int = BINS) -> "Bins":
        low, high = min(observed.min(), null.min()), max(observed.max(), null.max())
        wide = max(high - low, 1e-9)
        return Bins(np.linspace(low - 1e-6 * wide, high + 1e-6 * wide, count + 1))

    @property
    def middle(self) -> Doubles:  # (B,)
        return (self.edges[1:] + self.edges[:-1]) / 2

    def place(self, scores: Doubles) -> npt.NDArray[np.intp]:
        """The bin of each score."""
        return np.searchsorted(self.edges[1:-1], scores, "right")

    def counts(self, scores: Doubles) -> Doubles:
        return np.bincount(self.place(scores), minlength=len(self.middle)).astype(np.float64)


@dataclass(frozen=True, slots=True)
class Binned:
    """Scores of pairs and of re-pairings in common bins, each with its weight."""

    bins: Bins
    seen: npt.NDArray[np.intp]  # (N,) bin of each pair
    drawn: npt.NDArray[np.intp]  # (M,) bin of each re-pairing

    @staticmethod
    def of(observed: Doubles, null: Doubles) -> "Binned":
        bins = Bins.over(observed, null)
        return Binned(bins, bins.place(observed), bins.place(null))

    def counts(self, weight: Doubles | None = None, null_weight: Doubles | None = None) -> tuple[Doubles, Doubles]:
        """Pairs in each bin, and the density of re-pairings."""
        size = len(self.bins.middle)
        null = np.bincount(self.drawn, null_weight, size) + UNSEEN
        return np.bincount(self.seen, weight, size).astype(np.float64), null / null.sum()


@dataclass(frozen=True, slots=True)
class Mixture:
    """Logit of pi0, and location, log of the scale and shape of the skew-normal f1."""

    numbers: Doubles  # (4,)
    likelihood: float  # logarithm

    @property
    def pi0(self) -> float:
        return float(1 / (1 + np.exp(-self.numbers[0])))

    @property
    def deviation(self) -> float:
        """Of the scores of pairs that belong together."""
        scale, shape = math.exp(self.numbers[2]), float(self.numbers[3])
        return scale * math.sqrt(1 - 2 / math.pi * shape**2 / (1 + shape**2))


def logit(share: float) -> float:
    """Within the bounds of what is fitted."""
    inside = min(max(share, 1e-5), 1 - 1e-5)
    return math.log(inside / (1 - inside))


def skew_normal(numbers: Doubles, at: Doubles) -> tuple[Doubles, Doubles]:
    """Probabilities (B,) of bins around `at`, and their derivatives (B, 3)."""
    location, log_scale, shape = numbers
    scale = math.exp(log_scale)
    z = (at - location) / scale
    below = np.maximum(_erfc(-shape * z / math.sqrt(2)).astype(np.float64) / 2, SMALL)
    logarithm = np.log(below) - z**2 / 2
    density = np.exp(logarithm - logarithm.max())
    density /= density.sum()
    # phi / Phi, by its limit where both vanish
    slope = shape * z
    mills = np.where(slope < -30, -slope, np.exp(-(slope**2) / 2) / math.sqrt(2 * math.pi) / below)
    change = np.stack([(z - shape * mills) / scale, z**2 - slope * mills, z * mills], axis=1)
    return density, density[:, None] * (change - density @ change)


def climb(counts: Doubles, null: Doubles, at: Doubles, start: Doubles, share: float | None = None) -> Mixture:
    """Maximum likelihood from a start by damped Fisher scoring; pi0 is `share` where that is given."""
    numbers, damping = start.copy(), 1e-3
    if share is not None:
        numbers[0] = logit(share)
    active = slice(0 if share is None else 1, 4)

    def judged(trial: Doubles) -> tuple[float, Doubles, Doubles]:
        pi0 = 1 / (1 + math.exp(-trial[0])) if share is None else share
        good, change = skew_normal(trial[1:], at)
        mixed = np.maximum(pi0 * null + (1 - pi0) * good, SMALL)
        of_share = (null - good) * pi0 * (1 - pi0)
        slopes = np.concatenate([of_share[:, None], (1 - pi0) * change], axis=1)[:, active]
        return float(counts @ np.log(mixed)), mixed, slopes

    best, mixed, slopes = judged(numbers)
    for _ in range(STEPS):
        gradient = slopes.T @ (counts / mixed)
        curvature = (slopes * (counts.sum() / mixed)[:, None]).T @ slopes
        gained = -1.0
        while gained < 0 and damping < 1e8:
            damped = curvature + np.diag(damping * np.diag(curvature) + 1e-9)
            trial = numbers.copy()
            trial[active] += np.clip(np.linalg.solve(damped, gradient), -1.5, 1.5)
            trial = np.clip(trial, [-12, -np.inf, -12, -12], [12, np.inf, 12, 12])
            found = judged(trial)
            gained = found[0] - best
            damping = damping * 10 if gained < 0 else max(damping / 10, 1e-9)
        if gained < 0:
            break
        numbers, (best, mixed, slopes) = trial, found
        if gained < 1e-6:
            break
    return Mixture(numbers, best)


def fit_share(counts: Doubles, null: Doubles, at: Doubles) -> Mixture:
    """The best of several starts; the location from the scores above nine tenths of the re-pairings."""
    high = np.searchsorted(np.cumsum(null), 0.9)
    weight = counts[high:] if counts[high:].sum() > 1 else counts
    place = at[high:] if counts[high:].sum() > 1 else at
    mean = float(weight @ place / weight.sum())
    spread = max(math.sqrt(float(weight @ (place - mean) ** 2 / weight.sum())), float(at[1] - at[0]))
    found = [
        climb(counts, null, at, np.array([logit(share), mean, math.log(spread), shape])) for share, shape in STARTS
    ]
    return max(found, key=lambda mixture: mixture.likelihood)


def settled(mixture: Mixture, alone: Mixture | None, counts: Doubles, null: Doubles, at: Doubles) -> Mixture:
    """The mixture of scores with siblings, its share corrected by that of the scores `alone`, without them.

    The more captions are wrong, the more siblings disagree: good pairs then fall into lumps by how many of their
    siblings are right, which no skew-normal density has. Where few are wrong, siblings make the share more exact.
    """
    if alone is None:
        return mixture
    weight = min(1.0, 2 * alone.pi0)
    return climb(counts, null, at, mixture.numbers, share=(1 - weight) * mixture.pi0 + weight * alone.pi0)


def mixture_of(observed: npt.ArrayLike, null: npt.ArrayLike) -> Mixture | None:
    """The mixture of plain scores of pairs and of re-pairings; None where all of them are like re-pairings."""
    binned = Binned.of(np.asarray(observed, np.float64), np.asarray(null, np.float64))
    counts, density = binned.counts()
    found = fit_share(counts, density, binned.bins.middle)
    return None if is_all_random(found, counts, density) else found


def is_all_random(mixture: Mixture, counts: Doubles, null: Doubles) -> bool:
    """Whether re-pairings alone explain the pairs as well as any mixture does."""
    return 2 * (mixture.likelihood - float(counts @ np.log(np.maximum(null, SMALL)))) <= NOTHING_ELSE


def is_above_zero(mixture: Mixture, counts: Doubles, null: Doubles, at: Doubles) -> bool:
    """Whether the pairs say that there are mismatched ones at all, by the ratio of likelihoods."""
    starts = [np.array([0.0, *mixture.numbers[1:3], shape]) for shape in (mixture.numbers[3], -3.0, 0.0)]
    without = max(climb(counts, null, at, start, share=0.0).likelihood for start in starts)
    return 2 * (mixture.likelihood - without) > WORTH


def group_weights(groups: int, rounds: int, seed: int) -> Iterator[Doubles]:
    """How often each group is drawn when as many are drawn with replacement, again and again."""
    generator = np.random.default_rng([seed, 1])
    even = np.full(groups, 1 / groups)
    for _ in range(rounds):
        yield generator.multinomial(groups, even).astype(np.float64)

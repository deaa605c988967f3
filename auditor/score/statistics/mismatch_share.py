"""The share of mismatched pairs: pi0 in f = pi0 f0 + (1 - pi0) f1, where random re-pairings give the null density f0.

f1, the density of matched pairs, is modeled as skew-normal, and all four parameters are fitted by maximum likelihood to
the histogram of the pairs. Unlike a ratio taken from the region in which "only mismatched pairs are left", this uses
every pair, so that no single low bin decides. NumPy only.
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
PSEUDO_COUNT = 0.02  # re-pairings added to each bin
SMALL = 1e-300
ZERO_SHARE_CUT = 2.7  # likelihood-ratio statistic above which pi0 > 0: 90% quantile of chi-squared, 1 parameter
NULL_ONLY_CUT = 13.3  # likelihood-ratio statistic of a mixture over the null alone: 99% quantile, 4 parameters
_erfc = np.frompyfunc(math.erfc, 1, 1)


@dataclass(frozen=True, slots=True)
class Bins:
    """Bins of equal width over the statistic."""

    edges: Doubles  # (B + 1,)

    @staticmethod
    def spanning(observed: Doubles, null: Doubles, count: int = BINS) -> "Bins":
        low, high = min(observed.min(), null.min()), max(observed.max(), null.max())
        width = max(high - low, 1e-9)
        return Bins(np.linspace(low - 1e-6 * width, high + 1e-6 * width, count + 1))

    @property
    def centers(self) -> Doubles:  # (B,)
        return (self.edges[1:] + self.edges[:-1]) / 2

    def assign(self, scores: Doubles) -> npt.NDArray[np.intp]:
        """The bin of each score."""
        return np.searchsorted(self.edges[1:-1], scores, "right")


@dataclass(frozen=True, slots=True)
class BinnedScores:
    """Scores of pairs and of re-pairings in common bins."""

    bins: Bins
    pair_bins: npt.NDArray[np.intp]  # (N,) bin of each pair
    null_bins: npt.NDArray[np.intp]  # (M,) bin of each re-pairing

    @staticmethod
    def bin(observed: Doubles, null: Doubles) -> "BinnedScores":
        bins = Bins.spanning(observed, null)
        return BinnedScores(bins, bins.assign(observed), bins.assign(null))

    def count(self, weight: Doubles | None = None, null_weight: Doubles | None = None) -> tuple[Doubles, Doubles]:
        """Weighted number of pairs in each bin, and the null density."""
        size = len(self.bins.centers)
        null = np.bincount(self.null_bins, null_weight, size) + PSEUDO_COUNT
        return np.bincount(self.pair_bins, weight, size).astype(np.float64), null / null.sum()


@dataclass(frozen=True, slots=True)
class Mixture:
    """A fitted mixture: logit of pi0, and location, log scale and shape of the skew-normal f1."""

    parameters: Doubles  # (4,)
    log_likelihood: float

    @property
    def pi0(self) -> float:
        return float(1 / (1 + np.exp(-self.parameters[0])))

    @property
    def deviation(self) -> float:
        """Standard deviation of f1: sigma sqrt(1 - 2 delta^2 / pi) with delta = shape / sqrt(1 + shape^2)."""
        scale, shape = math.exp(self.parameters[2]), float(self.parameters[3])
        return scale * math.sqrt(1 - 2 / math.pi * shape**2 / (1 + shape**2))


def bounded_logit(share: float) -> float:
    """log(p / (1 - p)), with p kept inside the bounds of the fit."""
    inside = min(max(share, 1e-5), 1 - 1e-5)
    return math.log(inside / (1 - inside))


def skew_normal_probabilities(parameters: Doubles, centers: Doubles) -> tuple[Doubles, Doubles]:
    """Probabilities (B,) of the bins under 2 phi(z) Phi(shape z) / scale, and their derivatives (B, 3)."""
    location, log_scale, shape = parameters
    scale = math.exp(log_scale)
    z = (centers - location) / scale
    below = np.maximum(_erfc(-shape * z / math.sqrt(2)).astype(np.float64) / 2, SMALL)
    logarithm = np.log(below) - z**2 / 2
    density = np.exp(logarithm - logarithm.max())
    density /= density.sum()
    # inverse Mills ratio phi / Phi, by its limit if both underflow
    slope = shape * z
    mills = np.where(slope < -30, -slope, np.exp(-(slope**2) / 2) / math.sqrt(2 * math.pi) / below)
    change = np.stack([(z - shape * mills) / scale, z**2 - slope * mills, z * mills], axis=1)
    return density, density[:, None] * (change - density @ change)


def maximize_likelihood(
    counts: Doubles, null: Doubles, centers: Doubles, start: Doubles, share: float | None = None
) -> Mixture:
    """Maximum likelihood from a starting point by damped Fisher scoring; `share` fixes pi0."""
    parameters, damping = start.copy(), 1e-3
    if share is not None:
        parameters[0] = bounded_logit(share)
    active = slice(0 if share is None else 1, 4)

    def evaluate(candidate: Doubles) -> tuple[float, Doubles, Doubles]:
        pi0 = 1 / (1 + math.exp(-candidate[0])) if share is None else share
        matched, change = skew_normal_probabilities(candidate[1:], centers)
        mixed = np.maximum(pi0 * null + (1 - pi0) * matched, SMALL)
        share_slope = (null - matched) * pi0 * (1 - pi0)
        slopes = np.concatenate([share_slope[:, None], (1 - pi0) * change], axis=1)[:, active]
        return float(counts @ np.log(mixed)), mixed, slopes

    best, mixed, slopes = evaluate(parameters)
    for _ in range(STEPS):
        gradient = slopes.T @ (counts / mixed)
        curvature = (slopes * (counts.sum() / mixed)[:, None]).T @ slopes
        gain = -1.0
        while gain < 0 and damping < 1e8:
            damped = curvature + np.diag(damping * np.diag(curvature) + 1e-9)
            candidate = parameters.copy()
            candidate[active] += np.clip(np.linalg.solve(damped, gradient), -1.5, 1.5)
            candidate = np.clip(candidate, [-12, -np.inf, -12, -12], [12, np.inf, 12, 12])
            evaluation = evaluate(candidate)
            gain = evaluation[0] - best
            damping = damping * 10 if gain < 0 else max(damping / 10, 1e-9)
        if gain < 0:
            break
        parameters, (best, mixed, slopes) = candidate, evaluation
        if gain < 1e-6:
            break
    return Mixture(parameters, best)


def fit_mixture(counts: Doubles, null: Doubles, centers: Doubles) -> Mixture:
    """The best fit of several starts; their location is the mean score above the 90% quantile of the null."""
    high = np.searchsorted(np.cumsum(null), 0.9)
    weight = counts[high:] if counts[high:].sum() > 1 else counts
    scores = centers[high:] if counts[high:].sum() > 1 else centers
    mean = float(weight @ scores / weight.sum())
    spread = max(math.sqrt(float(weight @ (scores - mean) ** 2 / weight.sum())), float(centers[1] - centers[0]))
    starts = [np.array([bounded_logit(share), mean, math.log(spread), shape]) for share, shape in STARTS]
    mixtures = [maximize_likelihood(counts, null, centers, start) for start in starts]
    return max(mixtures, key=lambda mixture: mixture.log_likelihood)


def correct_share(
    mixture: Mixture, without_siblings: Mixture | None, counts: Doubles, null: Doubles, centers: Doubles
) -> Mixture:
    """Correct pi0 of the scores with sibling evidence by pi0 of the scores without it.

    The more captions are wrong, the more siblings disagree: matched pairs then form clusters by the number of their
    siblings that are right, which a skew-normal density cannot fit. If few captions are wrong, siblings make the share
    more exact.
    """
    if without_siblings is None:
        return mixture
    weight = min(1.0, 2 * without_siblings.pi0)
    share = (1 - weight) * mixture.pi0 + weight * without_siblings.pi0
    return maximize_likelihood(counts, null, centers, mixture.parameters, share=share)


def fit_score_mixture(observed: npt.ArrayLike, null: npt.ArrayLike) -> Mixture | None:
    """The mixture of scores of pairs and of re-pairings; None if all pairs look like re-pairings."""
    binned = BinnedScores.bin(np.asarray(observed, np.float64), np.asarray(null, np.float64))
    counts, density = binned.count()
    mixture = fit_mixture(counts, density, binned.bins.centers)
    return None if is_null_only(mixture, counts, density) else mixture


def is_null_only(mixture: Mixture, counts: Doubles, null: Doubles) -> bool:
    """Likelihood-ratio test: whether the null alone explains the pairs as well as the mixture."""
    return 2 * (mixture.log_likelihood - float(counts @ np.log(np.maximum(null, SMALL)))) <= NULL_ONLY_CUT


def is_share_above_zero(mixture: Mixture, counts: Doubles, null: Doubles, centers: Doubles) -> bool:
    """Likelihood-ratio test: whether the pairs are evidence of any mismatch at all."""
    starts = [np.array([0.0, *mixture.parameters[1:3], shape]) for shape in (mixture.parameters[3], -3.0, 0.0)]
    without = max(maximize_likelihood(counts, null, centers, start, share=0.0).log_likelihood for start in starts)
    return 2 * (mixture.log_likelihood - without) > ZERO_SHARE_CUT


def draw_group_weights(groups: int, rounds: int, seed: int) -> Iterator[Doubles]:
    """Bootstrap weights: how often each group is drawn if as many groups are drawn with replacement."""
    generator = np.random.default_rng([seed, 1])
    probabilities = np.full(groups, 1 / groups)
    for _ in range(rounds):
        yield generator.multinomial(groups, probabilities).astype(np.float64)

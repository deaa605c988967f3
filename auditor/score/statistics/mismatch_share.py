"""The share of mismatched pairs: pi0 in f = pi0 f0 + (1 - pi0) f1, where random re-pairings give the null density f0.

f1, the density of matched pairs, is modeled as skew-normal, and all four parameters are fitted by maximum likelihood to
the histogram of the pairs. Unlike a ratio taken from the region in which "only mismatched pairs are left", this uses
every pair, so that no single low bin decides. NumPy only.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

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


class ScoreHistogram(NamedTuple):
    """Pairs and re-pairings in common bins of the statistic."""

    counts: Doubles  # (B,) number of pairs, which may be weighted
    null: Doubles  # (B,) density of the re-pairings
    centers: Doubles  # (B,)


@dataclass(frozen=True, slots=True)
class BinnedScores:
    """Scores of pairs and of re-pairings in common bins of equal width."""

    centers: Doubles  # (B,)
    pair_bins: npt.NDArray[np.intp]  # (N,) bin of each pair
    null_bins: npt.NDArray[np.intp]  # (M,) bin of each re-pairing

    @staticmethod
    def bin(observed: Doubles, null: Doubles) -> "BinnedScores":
        low, high = min(observed.min(), null.min()), max(observed.max(), null.max())
        width = max(high - low, 1e-9)
        edges = np.linspace(low - 1e-6 * width, high + 1e-6 * width, BINS + 1)
        pair_bins, null_bins = (np.searchsorted(edges[1:-1], scores, "right") for scores in (observed, null))
        return BinnedScores((edges[1:] + edges[:-1]) / 2, pair_bins, null_bins)

    def count(self, weight: Doubles | None = None, null_weight: Doubles | None = None) -> ScoreHistogram:
        null = np.bincount(self.null_bins, null_weight, BINS) + PSEUDO_COUNT
        counts = np.bincount(self.pair_bins, weight, BINS).astype(np.float64)
        return ScoreHistogram(counts, null / null.sum(), self.centers)


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


def maximize_likelihood(histogram: ScoreHistogram, start: Doubles, share: float | None = None) -> Mixture:
    """Maximum likelihood from a starting point by damped Fisher scoring; `share` fixes pi0."""
    counts, null, centers = histogram
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


def fit_mixture(histogram: ScoreHistogram) -> Mixture:
    """The best fit of several starts; their location is the mean score above the 90% quantile of the null."""
    counts, null, centers = histogram
    high = np.searchsorted(np.cumsum(null), 0.9)
    above = slice(high, None) if counts[high:].sum() > 1 else slice(None)
    weight, scores = counts[above], centers[above]
    mean = float(weight @ scores / weight.sum())
    spread = max(math.sqrt(float(weight @ (scores - mean) ** 2 / weight.sum())), float(centers[1] - centers[0]))
    starts = [np.array([bounded_logit(share), mean, math.log(spread), shape]) for share, shape in STARTS]
    return max((maximize_likelihood(histogram, start) for start in starts), key=lambda fit: fit.log_likelihood)


def correct_share(histogram: ScoreHistogram, mixture: Mixture, without_siblings: Mixture | None = None) -> Mixture:
    """Correct pi0 of the scores with sibling evidence by pi0 of the scores without it.

    The more captions are wrong, the more siblings disagree: matched pairs then form clusters by the number of their
    siblings that are right, which a skew-normal density cannot fit. If few captions are wrong, siblings make the share
    more exact.
    """
    if without_siblings is None:
        return mixture
    weight = min(1.0, 2 * without_siblings.pi0)
    share = (1 - weight) * mixture.pi0 + weight * without_siblings.pi0
    return maximize_likelihood(histogram, mixture.parameters, share=share)


def fit_score_mixture(observed: npt.ArrayLike, null: npt.ArrayLike) -> Mixture | None:
    """The mixture of scores of pairs and of re-pairings; None if all pairs look like re-pairings."""
    histogram = BinnedScores.bin(np.asarray(observed, np.float64), np.asarray(null, np.float64)).count()
    mixture = fit_mixture(histogram)
    return None if is_null_only(mixture, histogram) else mixture


def is_null_only(mixture: Mixture, histogram: ScoreHistogram) -> bool:
    """Likelihood-ratio test: whether the null alone explains the pairs as well as the mixture."""
    null_likelihood = float(histogram.counts @ np.log(np.maximum(histogram.null, SMALL)))
    return 2 * (mixture.log_likelihood - null_likelihood) <= NULL_ONLY_CUT


def is_share_above_zero(mixture: Mixture, histogram: ScoreHistogram) -> bool:
    """Likelihood-ratio test: whether the pairs are evidence of any mismatch at all."""
    starts = [np.array([0.0, *mixture.parameters[1:3], shape]) for shape in (mixture.parameters[3], -3.0, 0.0)]
    without = max(maximize_likelihood(histogram, start, share=0.0).log_likelihood for start in starts)
    return 2 * (mixture.log_likelihood - without) > ZERO_SHARE_CUT


def draw_group_weights(groups: int, rounds: int, seed: int) -> Iterator[Doubles]:
    """Bootstrap weights: how often each group is drawn if as many groups are drawn with replacement."""
    generator = np.random.default_rng([seed, 1])
    probabilities = np.full(groups, 1 / groups)
    for _ in range(rounds):
        yield generator.multinomial(groups, probabilities).astype(np.float64)

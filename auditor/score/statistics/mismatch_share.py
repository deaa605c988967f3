"""The share of mismatched pairs: pi0 in f = pi0 f0 + (1 - pi0) f1, where random re-pairings give the null density f0.

f1, the density of matched pairs, is modeled as skew-normal, and all four parameters are fitted by maximum likelihood to
the histogram of the pairs. Unlike a ratio taken from the region in which "only mismatched pairs are left", this uses
every pair, so that no single low bin decides.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
Evaluate = Callable[[Doubles, npt.NDArray[np.intp]], tuple[Doubles, Doubles, Doubles]]

BINS = 100
STARTS = tuple((share, shape) for share in (0.02, 0.2, 0.5) for shape in (-3.0, -1.0, 0.0, 1.0))
STEPS = 60
PSEUDO_COUNT = 0.02  # re-pairings added to each bin
SMALL = 1e-300
BOUND = 12.0  # of the logit of a share, of log scales and of shapes
ZERO_SHARE_CUT = 2.7  # likelihood-ratio statistic above which pi0 > 0: 90% quantile of chi-squared, 1 parameter
NULL_ONLY_CUT = 13.3  # likelihood-ratio statistic of a mixture over the null alone: 99% quantile, 4 parameters


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


def bounded_logit(share: npt.ArrayLike) -> Doubles:
    """log(p / (1 - p)), with p kept inside the bounds of the fit."""
    inside = np.clip(share, 1e-5, 1 - 1e-5)
    return np.asarray(np.log(inside / (1 - inside)), np.float64)


def skew_normal_probabilities(parameters: Doubles, centers: Doubles) -> tuple[Doubles, Doubles]:
    """Probabilities (N, B) of the bins under 2 phi(z) Phi(shape z) / scale, and their derivatives (N, B, 3).

    `parameters` (N, 3) are location, log scale and shape.
    """
    from scipy.special import erfc

    location, scale, shape = parameters[:, :1], np.exp(parameters[:, 1:2]), parameters[:, 2:]
    z = (centers - location) / scale
    slope = shape * z
    below = np.maximum(erfc(-slope / math.sqrt(2)) / 2, SMALL)
    logarithm = np.log(below) - z**2 / 2
    density = np.exp(logarithm - logarithm.max(axis=1, keepdims=True))
    density /= density.sum(axis=1, keepdims=True)
    # inverse Mills ratio phi / Phi, by its limit if both underflow
    mills = np.where(slope < -30, -slope, np.exp(-(slope**2) / 2) / math.sqrt(2 * math.pi) / below)
    change = np.stack([(z - shape * mills) / scale, z**2 - slope * mills, z * mills], axis=2)
    return density, density[:, :, None] * (change - density[:, None] @ change)


def maximize_likelihoods(
    histogram: ScoreHistogram, starts: Doubles, shares: npt.ArrayLike | None = None
) -> tuple[Doubles, Doubles]:
    """Maximum likelihood from N starting points (N, 4) by damped Fisher scoring; `shares` (N,) fixes pi0.

    The counts and the null of the histogram are those of all starts (B,), or of each (N, B). Returns the parameters
    (N, 4) and the log likelihoods (N,). All fits advance together: one at a time, NumPy's calls would take the time.
    """
    counts, null = (np.broadcast_to(part, (len(starts), len(histogram.centers))) for part in histogram[:2])
    fixed = None if shares is None else np.broadcast_to(np.asarray(shares, np.float64), len(starts))[:, None]
    free = slice(0 if fixed is None else 1, 4)

    def evaluate(candidates: Doubles, rows: npt.NDArray[np.intp]) -> tuple[Doubles, Doubles, Doubles]:
        pi0 = 1 / (1 + np.exp(-candidates[:, :1])) if fixed is None else fixed[rows]
        matched, change = skew_normal_probabilities(candidates[:, 1:], histogram.centers)
        mixed = np.maximum(pi0 * null[rows] + (1 - pi0) * matched, SMALL)
        share_slope = (null[rows] - matched) * pi0 * (1 - pi0)
        slopes = np.concatenate([share_slope[:, :, None], (1 - pi0)[:, :, None] * change], axis=2)[:, :, free]
        return (counts[rows] * np.log(mixed)).sum(axis=1), mixed, slopes

    parameters = starts.copy()
    if fixed is not None:
        parameters[:, :1] = bounded_logit(fixed)
    return climb_likelihoods(counts, parameters, evaluate, free)


def climb_likelihoods(
    counts: Doubles, starts: Doubles, evaluate: Evaluate, free: slice = slice(None), ridge: npt.ArrayLike = 0.0
) -> tuple[Doubles, Doubles]:
    """Maximize N likelihoods of counts (N, B) at once by damped Fisher scoring of the `free` parameters.

    `evaluate` returns the log likelihoods, the bins' probabilities and their derivatives, for parameters of some rows.
    Half of `ridge` times the square of each parameter is subtracted from the log likelihood.
    """
    parameters = starts.copy()
    bound = np.where(np.arange(starts.shape[1]) % 3 == 1, np.inf, BOUND)  # locations have none
    damping, steps, running = np.full(len(starts), 1e-3), np.zeros(len(starts), int), np.arange(len(starts))
    ridge = np.broadcast_to(np.asarray(ridge, np.float64), starts.shape[1:])
    best, mixed, slopes = evaluate(parameters, running)
    best = best - parameters**2 @ ridge / 2
    while len(running):
        ratio, slope = counts[running] / mixed[running], slopes[running]
        gradient = (ratio[:, None] @ slope)[:, 0] - (ridge * parameters[running])[:, free]
        weight = counts[running].sum(axis=1, keepdims=True) / mixed[running]
        curvature = slope.transpose(0, 2, 1) @ (slope * weight[:, :, None]) + np.diag(ridge[free])
        diagonal = damping[running, None] * np.einsum("nii->ni", curvature) + 1e-9
        change = np.linalg.solve(curvature + diagonal[:, :, None] * np.eye(diagonal.shape[1]), gradient[:, :, None])
        candidates = parameters[running]
        candidates[:, free] += np.clip(change[:, :, 0], -1.5, 1.5)
        candidates = np.clip(candidates, -bound, bound)
        likelihood, *parts = evaluate(candidates, running)
        likelihood = likelihood - candidates**2 @ ridge / 2
        gain = likelihood - best[running]
        better = gain >= 0
        rows = running[better]
        parameters[rows], best[rows], mixed[rows], slopes[rows] = (
            part[better] for part in (candidates, likelihood, *parts)
        )
        damping[running] = np.where(better, np.maximum(damping[running] / 10, 1e-9), damping[running] * 10)
        steps[rows] += 1
        running = running[np.where(better, (gain >= 1e-6) & (steps[running] < STEPS), damping[running] < 1e8)]
    return parameters, best


def maximize_likelihood(histogram: ScoreHistogram, starts: Sequence[Doubles], share: float | None = None) -> Mixture:
    """The best maximum-likelihood fit from several starting points; `share` fixes pi0."""
    parameters, likelihoods = maximize_likelihoods(histogram, np.stack(starts), share)
    best = int(likelihoods.argmax())
    return Mixture(parameters[best], float(likelihoods[best]))


def fit_mixture(histogram: ScoreHistogram) -> Mixture:
    """The best fit of several starts; their location is the mean score above the 90% quantile of the null."""
    counts, null, centers = histogram
    high = np.searchsorted(np.cumsum(null), 0.9)
    above = slice(high, None) if counts[high:].sum() > 1 else slice(None)
    weight, scores = counts[above], centers[above]
    mean = float(weight @ scores / weight.sum())
    spread = max(math.sqrt(float(weight @ (scores - mean) ** 2 / weight.sum())), float(centers[1] - centers[0]))
    starts = [np.array([bounded_logit(share), mean, math.log(spread), shape]) for share, shape in STARTS]
    return maximize_likelihood(histogram, starts)


def correct_share(
    histogram: ScoreHistogram, mixture: Mixture, without_siblings: Mixture | None = None, *, use_siblings: bool = True
) -> Mixture:
    """Correct pi0 of the scores with sibling evidence by pi0 of the scores without it, or take the latter."""
    if without_siblings is None:
        return mixture
    if not use_siblings:
        return maximize_likelihood(histogram, [mixture.parameters], without_siblings.pi0)
    share = mix_shares(mixture.parameters[0], without_siblings.parameters[0])
    return maximize_likelihood(histogram, [mixture.parameters], float(share))


def refit_mixtures(resamples: Sequence[Sequence[ScoreHistogram]], fits: Sequence[Mixture]) -> Doubles:
    """Parameters (R, 4) of `correct_share` for R resampled histograms, fitted from those of the whole sample.

    As for `correct_share`, second histograms and a second fit are of the scores without sibling evidence.
    """
    stacks = [
        ScoreHistogram(np.stack([d.counts for d in drawn]), np.stack([d.null for d in drawn]), drawn[0].centers)
        for drawn in resamples
    ]
    parameters = [
        maximize_likelihoods(stack, np.tile(fit.parameters, (len(stack.counts), 1)))[0]
        for stack, fit in zip(stacks, fits, strict=True)
    ]
    if len(parameters) == 1:
        return parameters[0]
    shares = mix_shares(parameters[0][:, 0], parameters[1][:, 0])
    return maximize_likelihoods(stacks[0], parameters[0], shares)[0]


def mix_shares(logit: Doubles, logit_without_siblings: Doubles) -> Doubles:
    """The share from the logits of pi0 with and without sibling evidence.

    The more captions are wrong, the more siblings disagree: matched pairs then form clusters by the number of their
    siblings that are right, which a skew-normal density cannot fit. If few captions are wrong, siblings make the share
    more exact.
    """
    share, without_siblings = (1 / (1 + np.exp(-np.asarray(value))) for value in (logit, logit_without_siblings))
    weight = np.minimum(1.0, 2 * without_siblings)
    return np.asarray((1 - weight) * share + weight * without_siblings, np.float64)


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
    without = maximize_likelihood(histogram, starts, share=0.0).log_likelihood
    return 2 * (mixture.log_likelihood - without) > ZERO_SHARE_CUT


def draw_group_weights(groups: int, rounds: int, seed: int) -> Iterator[Doubles]:
    """Bootstrap weights: how often each group is drawn if as many groups are drawn with replacement."""
    generator = np.random.default_rng([seed, 1])
    probabilities = np.full(groups, 1 / groups)
    for _ in range(rounds):
        yield generator.multinomial(groups, probabilities).astype(np.float64)

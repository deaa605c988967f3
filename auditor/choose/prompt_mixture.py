"""The probability that a prompt applies to a medium, calibrated on the corpus without labels.

The margin of a medium is its cosine with the prompt minus that with the prompt's opposite. Margins differ from prompt
to prompt and from model to model, so a margin means nothing by itself. If some media show what the prompt says and the
others do not, the margins form two groups: a mixture of two skew-normal densities is fitted to a histogram of all
margins, and the probability is the part of the upper one. There is no estimate if any log-concave density, which has a
single group, explains the margins nearly as well, or if the groups are not apart.
"""

import math
from dataclasses import dataclass

import numpy as np

from auditor.choose.log_concave import compute_log_concave_likelihood
from auditor.score.statistics.mismatch_share import SMALL, Doubles, climb_likelihoods, skew_normal_probabilities
from auditor.vectors import Floats, Ints

REACH, CELLS = 1.0, 8192  # the stored histogram goes from -REACH to REACH
BINS = 120  # of the fit, over the occupied range
SMALLEST = 200  # media below which nothing is fitted
TWO_GROUPS = 10.0  # twice the gain in log likelihood by a second group; one group of any shape tried gains at most 8
APART = 2.0  # Ashman's D, below which two normal densities have one peak
RIDGE = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0)  # of the shapes: normal groups, unless the margins say otherwise
BOOTSTRAPS = 100
INTERVAL = (0.05, 0.95)
STARTS = tuple((share, shape) for share in (0.02, 0.1, 0.3, 0.5, 0.8) for shape in (-1.0, 1.0))
FEW, SINGLE = f"fewer than {SMALLEST} media", "the margins form one group, not two"


@dataclass(frozen=True, slots=True)
class PromptMixture:
    """Two groups of margins: the share of the upper one with its interval, and the probability at each margin."""

    share: float
    low: float
    high: float
    margin: Doubles  # (B,) increasing: the knots of the curve
    curve: Doubles  # (B,) probability at each knot, not decreasing

    def p(self, margin: Floats) -> Floats:
        return np.interp(margin, self.margin, self.curve).astype(np.float32)


def count_margins(margins: Floats) -> Ints:
    """Count margins in the cells of the histogram that is kept instead of them."""
    cell = ((margins.astype(np.float64) + REACH) * (CELLS / (2 * REACH))).astype(np.int64)
    return np.bincount(np.clip(cell, 0, CELLS - 1), minlength=CELLS)


def fit_prompt_mixture(cells: Ints, seed: int = 0) -> PromptMixture | str:
    """Fit the mixture to the counts of `count_margins`, or say why there is no estimate."""
    if cells.sum() < SMALLEST:
        return FEW
    counts, margin = merge_cells(cells)
    mean = float(counts @ margin / counts.sum())
    spread = math.sqrt(float(counts @ (margin - mean) ** 2 / counts.sum()))
    if len(counts) < 8 or not spread:
        return SINGLE
    centers = (margin - mean) / spread
    parameters, likelihoods = maximize_group_likelihoods(counts, centers, list_starts(counts, centers))
    best = order_groups(parameters[int(likelihoods.argmax())])
    gain = 2 * (float(likelihoods.max()) - compute_log_concave_likelihood(counts))
    if gain < TWO_GROUPS or measure_distance(best) < APART:
        return SINGLE
    low, high = bootstrap_share(counts, centers, best, seed)
    share = float(compute_share(best[0]))
    return PromptMixture(share, min(low, share), max(high, share), margin, compute_curve(best, centers, counts))


def merge_cells(cells: Ints) -> tuple[Doubles, Doubles]:
    """Merge the cells of the occupied range into bins of equal width; return their counts and centers."""
    occupied = np.flatnonzero(cells)
    first, last = int(occupied[0]), int(occupied[-1]) + 1
    step = -(-(last - first) // BINS)
    bins = -(-(last - first) // step)
    padded: Doubles = np.zeros(bins * step)
    padded[: last - first] = cells[first:last]
    centers = first + step * (np.arange(bins) + 0.5)
    return padded.reshape(bins, step).sum(axis=1), np.asarray(centers * (2 * REACH / CELLS) - REACH, np.float64)


def compute_share(logit: Doubles | float) -> Doubles:
    return np.asarray(1 / (1 + np.exp(-np.asarray(logit))))


def list_starts(counts: Doubles, centers: Doubles) -> Doubles:
    """Starting points: the upper share of the margins is one group, the rest the other."""
    total = np.cumsum(counts) / counts.sum()
    starts = []
    for share, shape in STARTS:
        is_upper = total > 1 - share
        start = [math.log(share / (1 - share))]
        for part in (is_upper, ~is_upper):
            weight = np.maximum(counts * part, 1e-9)
            mean = float(weight @ centers / weight.sum())
            deviation = math.sqrt(float(weight @ (centers - mean) ** 2 / weight.sum()))
            start += [mean, math.log(max(deviation, 0.05)), shape]
        starts.append(start)
    return np.array(starts)


def maximize_group_likelihoods(counts: Doubles, centers: Doubles, starts: Doubles) -> tuple[Doubles, Doubles]:
    """Maximum likelihood of N mixtures: logit of a group's share; location, log scale and shape of both groups."""
    counts = np.broadcast_to(counts, (len(starts), len(centers)))

    def evaluate(parameters: Doubles, rows: Ints) -> tuple[Doubles, Doubles, Doubles]:
        share = compute_share(parameters[:, :1])
        upper, upper_slopes = skew_normal_probabilities(parameters[:, 1:4], centers)
        lower, lower_slopes = skew_normal_probabilities(parameters[:, 4:], centers)
        mixed = np.maximum(share * upper + (1 - share) * lower, SMALL)
        share_slope = ((upper - lower) * share * (1 - share))[:, :, None]
        slopes = [share_slope, share[:, :, None] * upper_slopes, (1 - share)[:, :, None] * lower_slopes]
        return (counts[rows] * np.log(mixed)).sum(axis=1), mixed, np.concatenate(slopes, axis=2)

    return climb_likelihoods(counts, starts, evaluate, ridge=RIDGE)


def compute_moments(group: Doubles) -> tuple[float, float]:
    """Mean and variance of a skew-normal density of location, log scale and shape."""
    location, scale, shape = float(group[0]), math.exp(group[1]), float(group[2])
    delta = shape / math.sqrt(1 + shape**2)
    return location + scale * delta * math.sqrt(2 / math.pi), scale**2 * (1 - 2 * delta**2 / math.pi)


def order_groups(parameters: Doubles) -> Doubles:
    """The parameters with the group of the larger mean first."""
    if compute_moments(parameters[1:4])[0] >= compute_moments(parameters[4:])[0]:
        return parameters
    return np.concatenate([-parameters[:1], parameters[4:], parameters[1:4]])


def measure_distance(parameters: Doubles) -> float:
    """Ashman's D: the distance of the means in units of the root mean square of the deviations."""
    (upper, upper_variance), (lower, lower_variance) = map(compute_moments, (parameters[1:4], parameters[4:]))
    return (upper - lower) * math.sqrt(2 / (upper_variance + lower_variance))


def bootstrap_share(counts: Doubles, centers: Doubles, best: Doubles, seed: int) -> tuple[float, float]:
    """The interval of the share over refits to resampled media."""
    generator = np.random.default_rng([seed, 2])
    resamples = generator.multinomial(int(counts.sum()), counts / counts.sum(), BOOTSTRAPS).astype(np.float64)
    refits, _ = maximize_group_likelihoods(resamples, centers, np.tile(best, (BOOTSTRAPS, 1)))
    shares = compute_share(np.array([order_groups(refit)[0] for refit in refits]))
    low, high = np.quantile(shares, INTERVAL)
    return float(low), float(high)


def compute_curve(parameters: Doubles, centers: Doubles, counts: Doubles) -> Doubles:
    """The probability of the upper group in each bin, made to rise with the margin without changing its mean."""
    from scipy.optimize import isotonic_regression

    share = compute_share(parameters[0])
    upper, _ = skew_normal_probabilities(parameters[None, 1:4], centers)
    lower, _ = skew_normal_probabilities(parameters[None, 4:], centers)
    p = share * upper[0] / np.maximum(share * upper[0] + (1 - share) * lower[0], SMALL)
    return np.asarray(np.clip(isotonic_regression(p, weights=counts + 1e-3).x, 0, 1), np.float64)

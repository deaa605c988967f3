"""A correction of p_mismatch learned from labels: a monotone map with three numbers, or none at all. NumPy only.

    p' = sigmoid(shift + slope * logit(p) - score_weight * z)

z is the pair's mismatch_score in standard deviations of the corpus (low is suspicious), so that pairs which p_mismatch
cannot tell apart, because random re-pairings look nothing like them, are still told apart by their score. Slope and
score weight are never negative: p' falls with the score, as p does. A prior holds the three numbers near what related
captions on 500 photos of Flickr8k asked for, so that a hundred labels mostly decide the shift; and the map is refused
where it does not explain the labels better than p itself by more than chance would.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]

SMALLEST_P = 1e-3  # few labels cannot tell smaller probabilities apart
IDENTITY = np.array([0.0, 1.0, 0.0])
EXPECTED = np.array([0.0, 0.3, 1.0])  # shift, slope and score weight before any label is seen ...
PRIOR_SPREAD = np.array([8.0, 0.5, 0.3])  # ... and how far labels easily move them
FEWEST = 20  # labels
GAIN = 4.0  # twice the log-likelihood to win: 5% of what chance gives for about one free number
STEPS = 100


@dataclass(frozen=True, slots=True)
class Correction:
    """The map of one corpus; `mean` and `spread` of mismatch_score, by kind of medium, give z."""

    shift: float
    slope: float
    score_weight: float
    mean: dict[str, float]
    spread: dict[str, float]
    labels: int
    gain: float  # twice the log-likelihood that it wins over p itself
    covariance: list[list[float]]  # of shift, slope and score weight
    smallest_p: float = SMALLEST_P

    @property
    def weights(self) -> Doubles:
        return np.array([self.shift, self.slope, self.score_weight])

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> "Correction":
        return cls(**saved)

    def p(self, p: Doubles, z: Doubles) -> Doubles:
        """Corrected probabilities of pairs with these values."""
        return sigmoid(self.weights, features(p, z))

    def z(self, kind: str, score: npt.ArrayLike) -> Doubles:
        return np.asarray((np.asarray(score, np.float64) - self.mean[kind]) / self.spread[kind])

    def resampled(self, count: int, seed: int = 0) -> Doubles:
        """(count, 3): shifts, slopes and score weights that the labels allow for as well."""
        drawn = np.random.default_rng(seed).multivariate_normal(self.weights, np.array(self.covariance), count)
        return np.asarray(np.maximum(drawn, [-np.inf, 0, 0]))


def features(p: Doubles, z: Doubles) -> Doubles:
    """(N, 3): what shift, slope and score weight multiply."""
    held = np.clip(p, SMALLEST_P, 1 - SMALLEST_P)
    return np.stack([np.ones(len(held)), np.log(held / (1 - held)), -z], axis=1)


def sigmoid(weights: Doubles, x: Doubles) -> Doubles:
    return np.asarray(1 / (1 + np.exp(-np.clip(x @ weights, -40, 40))))


def fit_correction(
    p: Doubles,  # (L,) of the judged pairs
    z: Doubles,
    bad: npt.NDArray[np.bool_],
    weight: Doubles,  # (L,) rows of the corpus that each judged pair stands for
    mean: Mapping[str, float],
    spread: Mapping[str, float],
) -> Correction | None:
    """The most probable map under the prior, from labels weighted so that they stand for the corpus; None: refused."""
    if len(bad) < FEWEST:
        return None
    x, y = features(p, z), bad.astype(np.float64)
    each = effective(weight)
    weights = newton(x, y, each)
    gain = 2 * (log_likelihood(weights, x, y, each) - log_likelihood(IDENTITY, x, y, each))
    if gain < GAIN:
        return None
    shift, slope, score_weight = (float(weight) for weight in weights)
    covariance = np.linalg.inv(curvature(weights, x, each)).tolist()
    return Correction(shift, slope, score_weight, dict(mean), dict(spread), len(bad), float(gain), covariance)


def effective(weight: Doubles) -> Doubles:
    """Weights that add up to the number of equally weighted labels that would tell as much (Kish)."""
    return np.asarray(weight * weight.sum() / (weight**2).sum())


def log_likelihood(weights: Doubles, x: Doubles, y: Doubles, each: Doubles) -> float:
    value = np.clip(x @ weights, -40, 40)
    return float((each * (y * value - np.logaddexp(0, value))).sum())


def curvature(weights: Doubles, x: Doubles, each: Doubles) -> Doubles:
    """Of the logarithm of the posterior, (3, 3)."""
    p = sigmoid(weights, x)
    return np.asarray((x * (each * p * (1 - p))[:, None]).T @ x + np.diag(1 / PRIOR_SPREAD**2))


def newton(x: Doubles, y: Doubles, each: Doubles) -> Doubles:
    """Maximum a posteriori with slope and score weight not below zero: those that would be are held at zero."""
    free = np.ones(3, bool)
    for _ in range(3):
        weights = climb(x, y, each, free)
        below = free & (weights < 0) & np.array([False, True, True])
        if not below.any():
            break
        free &= ~below
    return weights


def climb(x: Doubles, y: Doubles, each: Doubles, free: npt.NDArray[np.bool_]) -> Doubles:
    """Newton's steps, halved until they gain."""
    weights = np.where(free, EXPECTED, 0.0)
    hold = 1 / PRIOR_SPREAD**2

    def goal(at: Doubles) -> float:
        return log_likelihood(at, x, y, each) - float((hold * (at - EXPECTED) ** 2)[free].sum()) / 2

    for _ in range(STEPS):
        slope = x.T @ (each * (y - sigmoid(weights, x))) - hold * (weights - EXPECTED)
        curve = curvature(weights, x, each)
        step = np.zeros(3)
        step[free] = np.linalg.solve(curve[np.ix_(free, free)], slope[free])
        size = 1.0
        while goal(weights + size * step) < goal(weights) and size > 1e-6:
            size /= 2
        weights = weights + size * step
        if np.abs(size * step).max() < 1e-8:
            break
    return weights

"""A correction of p_mismatch fitted to labels: a monotone map with three parameters, or none.

    p' = sigmoid(shift + slope * logit(p) - score_weight * z)

z is the pair's mismatch_score in standard deviations of the corpus (low is suspicious). It separates pairs that have
the same p_mismatch because random re-pairings are unlike them. Slope and score weight are never negative: p' falls with
the score, as p does. A prior holds the parameters near those fitted to related captions on 500 photos of Flickr8k, so
that a hundred labels mostly determine the shift. The map is rejected if it does not explain the labels better than p
by more than chance.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from auditor.vectors import Bools, Doubles

SMALLEST_P = 1e-3  # few labels cannot distinguish smaller probabilities
IDENTITY = np.array([0.0, 1.0, 0.0])
EXPECTED = np.array([0.0, 0.3, 1.0])  # prior mean of shift, slope and score weight ...
PRIOR_SPREAD = np.array([8.0, 0.5, 0.3])  # ... and their prior standard deviations
FEWEST = 20  # labels
GAIN = 4.0  # smallest gain in twice the log-likelihood: exceeded by chance in 5% for about one free parameter


@dataclass(frozen=True, slots=True)
class Correction:
    """The map of one corpus; `mean` and `spread` of mismatch_score by kind of medium define z."""

    shift: float
    slope: float
    score_weight: float
    mean: dict[str, float]
    spread: dict[str, float]
    labels: int
    gain: float  # gain in twice the log-likelihood over p itself
    covariance: list[list[float]]  # of shift, slope and score weight
    smallest_p: float = SMALLEST_P

    @property
    def weights(self) -> Doubles:
        return np.array([self.shift, self.slope, self.score_weight])

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def p(self, p: Doubles, z: Doubles) -> Doubles:
        return predict_mismatch(self.weights, build_features(p, z))

    def z(self, kind: str, score: npt.ArrayLike) -> Doubles:
        return np.asarray((np.asarray(score, np.float64) - self.mean[kind]) / self.spread[kind])

    def resample(self, count: int) -> Doubles:
        """(count, 3): shifts, slopes and score weights drawn from the posterior."""
        drawn = np.random.default_rng(0).multivariate_normal(self.weights, np.array(self.covariance), count)
        return np.asarray(np.maximum(drawn, [-np.inf, 0, 0]))


def build_features(p: Doubles, z: Doubles) -> Doubles:
    """(N, 3): the factors of shift, slope and score weight."""
    clipped = np.clip(p, SMALLEST_P, 1 - SMALLEST_P)
    return np.stack([np.ones(len(clipped)), np.log(clipped / (1 - clipped)), -z], axis=1)


def predict_mismatch(weights: Doubles, x: Doubles) -> Doubles:
    return np.asarray(1 / (1 + np.exp(-np.clip(x @ weights, -40, 40))))


def fit_correction(
    p: Doubles,  # (L,) of the judged pairs
    z: Doubles,
    bad: Bools,
    weight: Doubles,  # (L,) rows of the corpus that each judged pair represents
    mean: Mapping[str, float],
    spread: Mapping[str, float],
) -> Correction | None:
    """The maximum a posteriori map, from labels weighted to represent the corpus; None if it is rejected."""
    if len(bad) < FEWEST:
        return None
    x, y = build_features(p, z), bad.astype(np.float64)
    label_weights = weight * weight.sum() / (weight**2).sum()  # they sum to Kish's effective sample size
    weights = fit_weights(x, y, label_weights)
    fit, identity = (compute_log_likelihood(w, x, y, label_weights) for w in (weights, IDENTITY))
    gain = 2 * (fit - identity)
    if gain < GAIN:
        return None
    covariance = np.linalg.inv(compute_curvature(weights, x, label_weights)).tolist()
    shift, slope, score_weight = weights.tolist()
    return Correction(shift, slope, score_weight, dict(mean), dict(spread), len(bad), gain, covariance)


def compute_log_likelihood(weights: Doubles, x: Doubles, y: Doubles, label_weights: Doubles) -> float:
    value = np.clip(x @ weights, -40, 40)
    return float((label_weights * (y * value - np.logaddexp(0, value))).sum())


def compute_curvature(weights: Doubles, x: Doubles, label_weights: Doubles) -> Doubles:
    """Negative Hessian of the log posterior, (3, 3)."""
    p = predict_mismatch(weights, x)
    return np.asarray((x * (label_weights * p * (1 - p))[:, None]).T @ x + np.diag(1 / PRIOR_SPREAD**2))


def fit_weights(x: Doubles, y: Doubles, label_weights: Doubles) -> Doubles:
    """Maximum a posteriori weights; slope and score weight are not negative."""
    from scipy.optimize import minimize

    def compute_loss(weights: Doubles) -> tuple[float, Doubles]:
        distance = (weights - EXPECTED) / PRIOR_SPREAD
        residuals = label_weights * (y - predict_mismatch(weights, x))
        log_likelihood = compute_log_likelihood(weights, x, y, label_weights)
        return float(distance @ distance) / 2 - log_likelihood, distance / PRIOR_SPREAD - x.T @ residuals

    bounds = [(None, None), (0, None), (0, None)]
    options = {"ftol": 1e-14, "gtol": 1e-9}
    fit = minimize(compute_loss, EXPECTED, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return np.asarray(fit.x)

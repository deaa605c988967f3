"""The log-concave density that fits a histogram best: what the margins of a single group look like at most.

Normal, skewed and exponential groups are log-concave, two separate groups are not. The density has no parameters to
choose, so more media do not make it reject a group that is merely not normal, as a test against one normal would.
"""

import numpy as np

from auditor.score.statistics.mismatch_share import SMALL, Doubles

ROUNDS, ENOUGH = 30, 1e-3  # Newton steps, and the gain in log likelihood below which they end


def compute_log_concave_likelihood(counts: Doubles) -> float:
    """The largest log likelihood of counts (B,) in bins of equal width under a log-concave density.

    The log density is a line minus hinges with nonnegative weights. Newton steps on
    sum(counts * phi) - sum(exp(phi)), whose maximum is normalized, are least-squares problems in these weights.
    """
    from scipy.optimize import nnls

    place = np.linspace(-1, 1, len(counts))[:, None]
    hinges = -np.maximum(place - place[:-1].T, 0)
    basis = np.concatenate([np.ones_like(place), -np.ones_like(place), place, -place, hinges], axis=1)
    phi = start_from_normal(counts, place[:, 0])
    best = compute_poisson_likelihood(counts, phi)
    for _ in range(ROUNDS):
        mean = np.maximum(np.exp(phi), 1e-6)
        root = np.sqrt(mean)
        weights, _ = nnls(basis * root[:, None], (phi + (counts - np.exp(phi)) / mean) * root, maxiter=3000)
        target = basis @ weights
        steps = (phi + 0.5**halving * (target - phi) for halving in range(12))
        candidate = next((step for step in steps if compute_poisson_likelihood(counts, step) >= best), phi)
        gain = compute_poisson_likelihood(counts, candidate) - best
        phi, best = candidate, best + gain
        if gain < ENOUGH:
            break
    density = np.exp(phi) / np.exp(phi).sum()
    return float(counts @ np.log(np.maximum(density, SMALL)))


def start_from_normal(counts: Doubles, place: Doubles) -> Doubles:
    mean = counts @ place / counts.sum()
    variance = max(float(counts @ (place - mean) ** 2 / counts.sum()), 1e-6)
    phi = -((place - mean) ** 2) / (2 * variance)
    return np.asarray(phi + np.log(counts.sum() / np.exp(phi).sum()))


def compute_poisson_likelihood(counts: Doubles, phi: Doubles) -> float:
    return float(counts @ phi - np.exp(phi).sum())

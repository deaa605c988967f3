"""A direction of embeddings learned from a handful of marked media, and how well it tells unseen ones apart.

The direction is that of a logistic regression with a strong penalty, which is close to the difference of the two means:
with few examples and many dimensions, anything freer follows chance. Each example is scored by regressions that did not
see it. NumPy and SciPy only.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from auditor.choose.prompt_files import PromptError
from auditor.score.statistics.mismatch_share import Doubles
from auditor.vectors import Bools, Floats, Ints

FEWEST = 3  # examples of each class
FOLDS, ROUNDS = 5, 5
PENALTY = 1.0  # half of it times the squared norm of the weights is added to the mean loss
Z90 = 1.645  # standard errors to each end of a 90% interval


@dataclass(frozen=True, slots=True)
class LearnedDirection:
    direction: Floats  # (D,) of norm 1
    examples: int
    auroc: tuple[float, float, float]  # cross-fitted, and its 90% interval


def learn_direction(vectors: Floats, labels: Bools, seed: int = 0) -> LearnedDirection:
    """Learn from the vectors (N, D) of different media which of them are like the marked ones."""
    fewest = min(int(labels.sum()), int((~labels).sum()))
    if fewest < FEWEST:
        raise PromptError(
            f"{int(labels.sum())} examples and {int((~labels).sum())} counterexamples: mark at least {FEWEST} of each"
        )
    scores = score_held_out(vectors, labels, min(FOLDS, fewest), np.random.default_rng([seed, 3]))
    weights, _ = fit_logistic(vectors, labels)
    area = compute_area(scores[labels], scores[~labels])
    interval = compute_area_interval(area, int(labels.sum()), int((~labels).sum()))
    direction = (weights / max(float(np.linalg.norm(weights)), 1e-12)).astype(np.float32)
    return LearnedDirection(direction, len(labels), (area, *interval))


def fit_logistic(vectors: Floats, labels: Bools) -> tuple[Doubles, float]:
    """Weights and intercept of a penalized logistic regression in which both classes have the same weight."""
    from scipy.optimize import minimize

    center = (vectors[labels].mean(axis=0) + vectors[~labels].mean(axis=0)) / 2
    centered = np.asarray(vectors - center, np.float64)
    sign = np.where(labels, 1.0, -1.0)
    weight = np.where(labels, 0.5 / labels.sum(), 0.5 / (~labels).sum())

    def measure_loss(parameters: Doubles) -> tuple[float, Doubles]:
        w, b = parameters[:-1], parameters[-1]
        logit = sign * (centered @ w + b)
        loss = float(weight @ np.logaddexp(0, -logit)) + PENALTY * float(w @ w) / 2
        slope = -weight * sign / (1 + np.exp(logit))
        return loss, np.append(slope @ centered + PENALTY * w, slope.sum())

    result: Any = minimize(measure_loss, np.zeros(centered.shape[1] + 1), jac=True, method="L-BFGS-B")
    return result.x[:-1], float(result.x[-1] - center @ result.x[:-1])


def score_held_out(vectors: Floats, labels: Bools, folds: int, generator: np.random.Generator) -> Doubles:
    """The mean score of each example by regressions without its fold, over several divisions into folds."""
    scores = np.zeros(len(labels))
    for _ in range(ROUNDS):
        fold = draw_folds(labels, folds, generator)
        for number in range(folds):
            held = fold == number
            weights, intercept = fit_logistic(vectors[~held], labels[~held])
            scores[held] += (vectors[held] @ weights + intercept) / max(float(np.linalg.norm(weights)), 1e-12)
    return scores / ROUNDS


def draw_folds(labels: Bools, folds: int, generator: np.random.Generator) -> Ints:
    """Divide the examples into folds that have the same number of each class, give or take one."""
    fold = np.zeros(len(labels), np.int64)
    for members in (np.flatnonzero(labels), np.flatnonzero(~labels)):
        fold[generator.permutation(members)] = np.arange(len(members)) % folds
    return fold


def compute_area(positive: Doubles, negative: Doubles) -> float:
    """The probability that a positive scores above a negative (AUROC)."""
    difference = positive[:, None] - negative
    return float((difference > 0).mean() + (difference == 0).mean() / 2)


def compute_area_interval(area: float, positives: int, negatives: int) -> tuple[float, float]:
    """The 90% score interval of an AUROC with Hanley and McNeil's variance (Newcombe 2006, method 5)."""
    candidates = np.linspace(0, 1, 2001)[1:-1]
    mean = (positives + negatives) / 2 - 1
    spread = candidates * (1 - candidates) / (positives * negatives)
    spread *= 1 + mean * (1 - candidates) / (2 - candidates) + mean * candidates / (1 + candidates)
    inside = candidates[np.abs(candidates - area) <= Z90 * np.sqrt(spread)]
    return (float(inside[0]) if area > 0 else 0.0), (float(inside[-1]) if area < 1 else 1.0)

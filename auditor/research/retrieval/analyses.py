"""The paper's tests of an uncertainty: does it follow h, does recall rise without uncertain items, is it calibrated?

Pure functions of embeddings and of scores per item. A high `u` (and a high `h`) should mean "hard". Every curve has two
references: removal at random, and removal by `h`, the mean similarity that `u` is trained to follow.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from auditor.research.retrieval.recall import DIRECTIONS, Array, Direction, EmbeddingSet, Recalls, rank_queries

RANDOM_ORDERS = 5  # of which the curve of random removal is the mean
SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


@dataclass(frozen=True, slots=True)
class ItemScores:
    """One number per medium and one per caption: uncertainty, or mean similarity."""

    visual: Array  # (N,)
    text: Array  # (M,)

    def of_queries(self, direction: Direction) -> Array:
        return self.visual if direction == "visual_to_text" else self.text


def compute_mean_similarity(data: EmbeddingSet, step: int = 512) -> ItemScores:
    """h: the mean similarity of each item to the items of the other modality that do not belong to it."""
    visual, text, others = np.zeros(len(data.visual)), np.zeros(len(data.text)), np.zeros(len(data.text))
    for start in range(0, len(visual), step):
        rows = slice(start, start + step)
        negative = data.visual_groups[rows, None] != data.text_groups[None, :]
        scores = data.scores(visual=rows) * negative
        visual[rows] = scores.sum(axis=1) / np.maximum(negative.sum(axis=1), 1)
        text += scores.sum(axis=0)
        others += negative.sum(axis=0)
    return ItemScores(visual, text / np.maximum(others, 1))


def average_runs(runs: Sequence[Any]) -> Any:
    """Merge the findings of several seeds: average numbers, and keep values that are equal in all (names, counts)."""
    first = runs[0]
    if isinstance(first, Mapping):
        return {key: average_runs([run[key] for run in runs]) for key in first}
    if isinstance(first, list):
        return [average_runs(values) for values in zip(*runs, strict=True)]
    return first if all(run == first for run in runs) else float(np.mean(runs))


def compute_deviation(values: Sequence[float]) -> float:
    """Sample standard deviation (n - 1); NaN for a single value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")


def compute_pearson(a: Array, b: Array) -> float:
    if np.std(a) == 0 or np.std(b) == 0:
        return float("nan")
    return float(np.corrcoef(a, b)[0, 1])


def correlate_scores(u: ItemScores, h: ItemScores) -> dict[str, float]:
    """Pearson correlation of u and h for each modality (the paper's table of PCCs)."""
    return {"PCC_V": compute_pearson(u.visual, h.visual), "PCC_T": compute_pearson(u.text, h.text)}


def compute_recall_at_1(data: EmbeddingSet, direction: Direction) -> float:
    return Recalls.of(rank_queries(data, direction)).r1


def average_by_medium(data: EmbeddingSet, scores: ItemScores, direction: Direction) -> Array:  # (N,)
    """The score of the query side for each medium: its own score, or the mean over its captions."""
    if direction == "visual_to_text":
        return scores.visual
    position = {int(group): i for i, group in enumerate(data.visual_groups)}
    rows = np.array([position[int(group)] for group in data.text_groups])
    return np.bincount(rows, scores.text, len(data.visual)) / np.bincount(rows, minlength=len(data.visual))


def mask_highest(scores: Array, count: int) -> Array:
    """Mask of the `count` highest scores; of equal scores, the first ones."""
    mask = np.zeros(len(scores), dtype=bool)
    mask[np.argsort(-scores, kind="stable")[:count]] = True
    return mask


def compute_removal_curve(
    data: EmbeddingSet,
    orders: Mapping[str, ItemScores],
    direction: Direction,
    shares: Sequence[float] = SHARES,
) -> list[dict[str, float]]:
    """Figure 3: R@1 without the r most uncertain samples of the test set, and without r random ones.

    A sample is a medium with its captions, ranked by the uncertainty of the query side. Any removal makes the gallery
    smaller and the task easier, so only the difference from random removal is meaningful.
    """
    removals: dict[str, Sequence[Array]] = {n: [average_by_medium(data, s, direction)] for n, s in orders.items()}
    removals["random"] = [np.random.default_rng(seed).random(len(data.visual)) for seed in range(RANDOM_ORDERS)]
    rows = []
    for share in shares:
        count = round(share * len(data.visual))
        recalls = {
            name: [
                compute_recall_at_1(data.take_groups(data.visual_groups[~mask_highest(scores, count)]), direction)
                for scores in order
            ]
            for name, order in removals.items()
        }
        row = {"share": share, "removed": count, **{name: float(np.mean(r1)) for name, r1 in recalls.items()}}
        rows.append(row | {"random_sd": compute_deviation(recalls["random"])})
    return rows


def compare_uncertain_subsets(
    models: Mapping[str, EmbeddingSet], u: ItemScores, direction: Direction, sizes: Sequence[int]
) -> list[dict[str, float]]:
    """Figure 4: R@1 of several models on only the r samples with the highest uncertainty."""
    reference = next(iter(models.values()))
    uncertainty = average_by_medium(reference, u, direction)
    rows = []
    for size in sizes:
        chosen = reference.visual_groups[mask_highest(uncertainty, min(size, len(uncertainty)))]
        recalls = {name: compute_recall_at_1(data.take_groups(chosen), direction) for name, data in models.items()}
        rows.append({"samples": len(chosen), **recalls})
    return rows


def compute_recall_by_tenth(scores: Array, hit: Array) -> list[dict[str, float]]:
    """Recall of the queries in each tenth of the score, the lowest tenth first."""
    answered = ~np.isnan(hit)
    scores, hit = scores[answered], hit[answered]
    parts = enumerate(np.array_split(np.argsort(scores, kind="stable"), 10), start=1)
    return [
        {"bin": n, "queries": len(part), "score": float(scores[part].mean()), "recall": 100 * float(hit[part].mean())}
        for n, part in parts
        if len(part)
    ]


def compute_auroc(scores: Array, wrong: Array) -> float:
    """Probability that a wrong item scores higher than a right one, with ties as half; NaN if one kind is missing."""
    from scipy.stats import mannwhitneyu

    bad = wrong > 0.5
    pairs = int(bad.sum()) * int((~bad).sum())
    return float(mannwhitneyu(scores[bad], scores[~bad]).statistic) / pairs if pairs else float("nan")


def fit_decreasing(x: Array, y: Array) -> tuple[Array, Array]:
    """Least-squares non-increasing step function of y on x: knots and values."""
    from scipy.optimize import isotonic_regression

    order = np.argsort(x, kind="stable")
    return x[order], isotonic_regression(y[order], increasing=False).x


def measure_failure_prediction(data: EmbeddingSet, orders: Mapping[str, ItemScores]) -> dict[str, dict[str, Any]]:
    """Recall by tenths ("deciles") and "calibration" of each score, by direction."""
    measures: dict[str, dict[str, Any]] = {"deciles": {}, "calibration": {}}
    for direction in DIRECTIONS:
        hit = rank_queries(data, direction).hit(1)
        sides = {name: scores.of_queries(direction) for name, scores in orders.items()}
        measures["deciles"][direction] = {name: compute_recall_by_tenth(side, hit) for name, side in sides.items()}
        measures["calibration"][direction] = {name: calibrate_recall(side, hit) for name, side in sides.items()}
    return measures


def calibrate_recall(scores: Array, hit: Array) -> dict[str, Any]:
    """How well a score predicts success: a non-increasing fit on one half of the queries, evaluated on the other.

    `auroc` is that of failures. The score is useful if `brier` is below `brier_constant`, the Brier score of always
    predicting the mean. `expected_error` is the mean difference of predicted and observed recall over ten bins.
    """
    answered = np.flatnonzero(~np.isnan(hit))
    shuffled = np.random.default_rng(0).permutation(answered)
    half = len(shuffled) // 2
    fit, test = (shuffled[:half], shuffled[half:]) if half else (shuffled, shuffled)  # a single query
    knots, values = fit_decreasing(scores[fit], hit[fit])
    predicted = values[np.minimum(np.searchsorted(knots, scores[test]), len(values) - 1)]
    bins = [
        {"predicted": float(predicted[part].mean()), "seen": float(hit[test][part].mean()), "queries": len(part)}
        for part in np.array_split(np.argsort(predicted, kind="stable"), 10)
        if len(part)
    ]
    return {
        "auroc": compute_auroc(scores[answered], 1 - hit[answered]),
        "brier": float(((predicted - hit[test]) ** 2).mean()),
        "brier_constant": float(((hit[fit].mean() - hit[test]) ** 2).mean()),
        "expected_error": sum(b["queries"] * abs(b["predicted"] - b["seen"]) for b in bins) / len(test),
        "bins": bins,
    }

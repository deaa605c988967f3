"""The paper's tests of an uncertainty: does it follow h, does recall rise without uncertain items, is it calibrated?

Pure functions of embeddings and of scores per item. A high `u` (and a high `h`) should mean "hard". Every curve has two
references: removal at random, and removal by `h`, the mean similarity that `u` is trained to follow.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from auditor.research.retrieval.recall import (
    Array,
    EmbeddingSet,
    Ranks,
    Recalls,
    rank_text_queries,
    rank_visual_queries,
)

Direction = Literal["visual_to_text", "text_to_visual"]
DIRECTIONS: tuple[Direction, Direction] = ("visual_to_text", "text_to_visual")
SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


@dataclass(frozen=True, slots=True)
class ItemScores:
    """One number per medium and one per caption: uncertainty, or mean similarity."""

    visual: Array  # (N,)
    text: Array  # (M,)


def compute_mean_similarity(data: EmbeddingSet, step: int = 512) -> ItemScores:
    """h: the mean similarity of each item to the items of the other modality that do not belong to it."""
    totals = np.zeros(len(data.visual)), np.zeros(len(data.text))
    counts = np.zeros(len(data.visual)), np.zeros(len(data.text))
    for start in range(0, len(data.visual), step):
        rows = slice(start, start + step)
        negative = data.visual_groups[rows, None] != data.text_groups[None, :]
        scores = data.scores(rows, slice(None)) * negative
        totals[0][rows], counts[0][rows] = scores.sum(axis=1), negative.sum(axis=1)
        totals[1][:] += scores.sum(axis=0)
        counts[1][:] += negative.sum(axis=0)
    return ItemScores(totals[0] / np.maximum(counts[0], 1), totals[1] / np.maximum(counts[1], 1))


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


def rank_queries(data: EmbeddingSet, direction: Direction) -> Ranks:
    return rank_visual_queries(data) if direction == "visual_to_text" else rank_text_queries(data)


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
    random_seeds: int = 5,
) -> list[dict[str, float]]:
    """Figure 3: R@1 without the r most uncertain samples of the test set, and without r random ones.

    A sample is a medium with its captions, ranked by the uncertainty of the query side. Any removal makes the gallery
    smaller and the task easier, so only the difference from random removal is meaningful.
    """
    rows = []
    generators = [np.random.default_rng(seed) for seed in range(random_seeds)]
    shuffles = [generator.random(len(data.visual)) for generator in generators]
    for share in shares:
        count = round(share * len(data.visual))
        row: dict[str, float] = {"share": share, "removed": count}
        for name, scores in orders.items():
            removed = mask_highest(average_by_medium(data, scores, direction), count)
            row[name] = compute_recall_at_1(data.take_groups(data.visual_groups[~removed]), direction)
        recalls = [
            compute_recall_at_1(data.take_groups(data.visual_groups[~mask_highest(s, count)]), direction)
            for s in shuffles
        ]
        row["random"], row["random_sd"] = float(np.mean(recalls)), compute_deviation(recalls)
        rows.append(row)
    return rows


def compute_gallery_removal_curve(
    data: EmbeddingSet,
    orders: Mapping[str, ItemScores],
    direction: Direction,
    shares: Sequence[float] = (0, 0.05, 0.1, 0.2),
) -> list[dict[str, float]]:
    """Comparison with PCME: R@1 without the most uncertain items of the *gallery* (texts in i2t, media in t2i)."""
    rows = []
    texts = direction == "visual_to_text"
    items = len(data.text if texts else data.visual)
    noise = np.random.default_rng(0).random(items)
    for share in shares:
        count = round(share * items)
        row: dict[str, float] = {"share": share, "removed": count}
        score_orders = {name: s.text if texts else s.visual for name, s in orders.items()} | {"random": noise}
        for name, scores in score_orders.items():
            gallery = ~mask_highest(scores, count)
            row[name] = compute_recall_at_1(data.take_text(gallery) if texts else data.take_visual(gallery), direction)
        rows.append(row)
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
        row: dict[str, float] = {"samples": len(chosen)}
        rows.append(
            row | {name: compute_recall_at_1(data.take_groups(chosen), direction) for name, data in models.items()}
        )
    return rows


def compute_recall_by_bin(scores: Array, hit: Array, bins: int = 10) -> list[dict[str, float]]:
    """Recall of the queries in each tenth of the score, the lowest tenth first."""
    answered = ~np.isnan(hit)
    order = np.argsort(scores[answered], kind="stable")
    return [
        {
            "bin": number + 1,
            "queries": len(part),
            "score": float(scores[answered][part].mean()),
            "recall": 100 * float(hit[answered][part].mean()),
        }
        for number, part in enumerate(np.array_split(order, bins))
        if len(part)
    ]


def compute_auroc(scores: Array, wrong: Array) -> float:
    """Probability that a wrong item scores higher than a right one, with ties as half; NaN if one kind is missing."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts - 1) / 2  # mean rank of each value, from 1
    rank = middle[inverse]
    bad = wrong > 0.5
    positives, negatives = int(bad.sum()), int((~bad).sum())
    if not positives or not negatives:
        return float("nan")
    return float((rank[bad].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def fit_decreasing(x: Array, y: Array) -> tuple[Array, Array]:
    """Least-squares non-increasing step function of y on x (pool adjacent violators): knots and values."""
    order = np.argsort(x, kind="stable")
    blocks: list[list[float]] = []  # sum, count, last x
    for position, value in zip(x[order], y[order], strict=True):
        blocks.append([float(value), 1.0, float(position)])
        while len(blocks) > 1 and blocks[-2][0] * blocks[-1][1] < blocks[-1][0] * blocks[-2][1]:
            total, count, last = blocks.pop()
            blocks[-1] = [blocks[-1][0] + total, blocks[-1][1] + count, last]
    return np.array([b[2] for b in blocks]), np.array([b[0] / b[1] for b in blocks])


@dataclass(frozen=True, slots=True)
class RecallCalibration:
    """How well a score predicts success; fitted on one half of the queries, evaluated on the other."""

    auroc: float  # of failures; 0.5: no better than chance
    brier: float
    brier_constant: float  # Brier score of always predicting the mean; the score is useful if `brier` is lower
    expected_error: float  # mean difference of predicted and observed recall over ten bins
    bins: list[dict[str, float]]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def calibrate_recall(scores: Array, hit: Array, seed: int = 0) -> RecallCalibration:
    """Calibrate with a non-increasing fit of recall on the score."""
    answered = np.flatnonzero(~np.isnan(hit))
    shuffled = np.random.default_rng(seed).permutation(answered)
    half = len(shuffled) // 2
    fit, test = shuffled[:half], shuffled[half:]
    knots, values = fit_decreasing(scores[fit], hit[fit])
    predicted = values[np.minimum(np.searchsorted(knots, scores[test]), len(values) - 1)]
    bins = []
    for part in np.array_split(np.argsort(predicted, kind="stable"), 10):
        if len(part):
            observed = float(hit[test][part].mean())
            bins.append({"predicted": float(predicted[part].mean()), "seen": observed, "queries": len(part)})
    error = sum(b["queries"] * abs(b["predicted"] - b["seen"]) for b in bins) / len(test)
    return RecallCalibration(
        auroc=compute_auroc(scores[answered], 1 - hit[answered]),
        brier=float(((predicted - hit[test]) ** 2).mean()),
        brier_constant=float(((hit[fit].mean() - hit[test]) ** 2).mean()),
        expected_error=error,
        bins=bins,
    )

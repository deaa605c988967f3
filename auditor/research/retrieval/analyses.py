"""What the paper asks of an uncertainty: does it follow h, does recall rise without the uncertain, is it calibrated?

Pure functions over embeddings and scores per item. High `u` (and high `h`) is meant to say "hard"; every curve is drawn
against removal at random and by `h`, the simple mean similarity that `u` is trained to follow.
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


def mean_similarity(data: EmbeddingSet, step: int = 512) -> ItemScores:
    """h: mean similarity of each item to those of the other modality that are not its own."""
    totals = np.zeros(len(data.visual)), np.zeros(len(data.text))
    counts = np.zeros(len(data.visual)), np.zeros(len(data.text))
    for start in range(0, len(data.visual), step):
        rows = slice(start, start + step)
        others = data.visual_groups[rows, None] != data.text_groups[None, :]
        scores = data.scores(rows, slice(None)) * others
        totals[0][rows], counts[0][rows] = scores.sum(axis=1), others.sum(axis=1)
        totals[1][:] += scores.sum(axis=0)
        counts[1][:] += others.sum(axis=0)
    return ItemScores(totals[0] / np.maximum(counts[0], 1), totals[1] / np.maximum(counts[1], 1))


def averaged(runs: Sequence[Any]) -> Any:
    """The findings of several seeds as one: numbers averaged, what all agree on (names, counts) as it is."""
    first = runs[0]
    if isinstance(first, Mapping):
        return {key: averaged([run[key] for run in runs]) for key in first}
    if isinstance(first, list):
        return [averaged(same) for same in zip(*runs, strict=True)]
    return first if all(run == first for run in runs) else float(np.mean(runs))


def deviation(values: Sequence[float]) -> float:
    """Of the population that the values are a sample of (n - 1); one value says nothing of it: NaN."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")


def pearson(a: Array, b: Array) -> float:
    if np.std(a) == 0 or np.std(b) == 0:
        return float("nan")
    return float(np.corrcoef(a, b)[0, 1])


def correlation(u: ItemScores, h: ItemScores) -> dict[str, float]:
    """Pearson correlation of u and h in each modality (the paper's table of PCCs)."""
    return {"PCC_V": pearson(u.visual, h.visual), "PCC_T": pearson(u.text, h.text)}


def ranks(data: EmbeddingSet, direction: Direction) -> Ranks:
    return rank_visual_queries(data) if direction == "visual_to_text" else rank_text_queries(data)


def recall_at_1(data: EmbeddingSet, direction: Direction) -> float:
    return Recalls.of(ranks(data, direction)).r1


def by_group(data: EmbeddingSet, scores: ItemScores, direction: Direction) -> Array:  # (N,)
    """The queries' score per medium: its own, or the mean over its captions."""
    if direction == "visual_to_text":
        return scores.visual
    position = {int(group): i for i, group in enumerate(data.visual_groups)}
    rows = np.array([position[int(group)] for group in data.text_groups])
    return np.bincount(rows, scores.text, len(data.visual)) / np.bincount(rows, minlength=len(data.visual))


def highest(scores: Array, count: int) -> Array:
    """Mask of the `count` highest; equal scores by position."""
    mask = np.zeros(len(scores), dtype=bool)
    mask[np.argsort(-scores, kind="stable")[:count]] = True
    return mask


def removal_curve(
    data: EmbeddingSet,
    orders: Mapping[str, ItemScores],
    direction: Direction,
    shares: Sequence[float] = SHARES,
    random_seeds: int = 5,
) -> list[dict[str, float]]:
    """Figure 3: R@1 when the r most uncertain samples are taken out of the test set, against r drawn at random.

    A sample is a medium with its captions, ranked by the uncertainty of the query side. Any removal makes the gallery
    smaller and the task easier, so only the distance to random removal means anything.
    """
    rows = []
    generators = [np.random.default_rng(seed) for seed in range(random_seeds)]
    shuffles = [generator.random(len(data.visual)) for generator in generators]
    for share in shares:
        count = round(share * len(data.visual))
        row: dict[str, float] = {"share": share, "removed": count}
        for name, scores in orders.items():
            gone = highest(by_group(data, scores, direction), count)
            row[name] = recall_at_1(data.take_groups(data.visual_groups[~gone]), direction)
        drawn = [recall_at_1(data.take_groups(data.visual_groups[~highest(s, count)]), direction) for s in shuffles]
        row["random"], row["random_sd"] = float(np.mean(drawn)), deviation(drawn)
        rows.append(row)
    return rows


def gallery_removal_curve(
    data: EmbeddingSet,
    orders: Mapping[str, ItemScores],
    direction: Direction,
    shares: Sequence[float] = (0, 0.05, 0.1, 0.2),
) -> list[dict[str, float]]:
    """Figure of the comparison with PCME: the most uncertain items leave the *gallery* (texts in i2t, media in t2i)."""
    rows = []
    texts = direction == "visual_to_text"
    items = len(data.text if texts else data.visual)
    noise = np.random.default_rng(0).random(items)
    for share in shares:
        count = round(share * items)
        row: dict[str, float] = {"share": share, "removed": count}
        named = {name: s.text if texts else s.visual for name, s in orders.items()} | {"random": noise}
        for name, scores in named.items():
            kept = ~highest(scores, count)
            row[name] = recall_at_1(data.take_text(kept) if texts else data.take_visual(kept), direction)
        rows.append(row)
    return rows


def uncertain_subsets(
    models: Mapping[str, EmbeddingSet], u: ItemScores, direction: Direction, sizes: Sequence[int]
) -> list[dict[str, float]]:
    """Figure 4: models side by side on the r samples with the highest uncertainty alone."""
    reference = next(iter(models.values()))
    uncertainty = by_group(reference, u, direction)
    rows = []
    for size in sizes:
        chosen = reference.visual_groups[highest(uncertainty, min(size, len(uncertainty)))]
        row: dict[str, float] = {"samples": len(chosen)}
        rows.append(row | {name: recall_at_1(data.take_groups(chosen), direction) for name, data in models.items()})
    return rows


def recall_by_bin(scores: Array, hit: Array, bins: int = 10) -> list[dict[str, float]]:
    """Recall of the queries in each tenth of the score, lowest first."""
    known = ~np.isnan(hit)
    order = np.argsort(scores[known], kind="stable")
    return [
        {
            "bin": number + 1,
            "queries": len(part),
            "score": float(scores[known][part].mean()),
            "recall": 100 * float(hit[known][part].mean()),
        }
        for number, part in enumerate(np.array_split(order, bins))
        if len(part)
    ]


def auroc(scores: Array, wrong: Array) -> float:
    """Chance that one of the wrong has a higher score than one of the others, ties half; NaN where there is none."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts - 1) / 2  # mean rank of each value, from 1
    rank = middle[inverse]
    bad = wrong > 0.5
    positives, negatives = int(bad.sum()), int((~bad).sum())
    if not positives or not negatives:
        return float("nan")
    return float((rank[bad].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def falling_fit(x: Array, y: Array) -> tuple[Array, Array]:
    """Least-squares non-increasing step function of y on x (pooling adjacent violators): knots and values."""
    order = np.argsort(x, kind="stable")
    blocks: list[list[float]] = []  # sum, count, last x
    for position, value in zip(x[order], y[order], strict=True):
        blocks.append([float(value), 1.0, float(position)])
        while len(blocks) > 1 and blocks[-2][0] * blocks[-1][1] < blocks[-1][0] * blocks[-2][1]:
            total, count, last = blocks.pop()
            blocks[-1] = [blocks[-1][0] + total, blocks[-1][1] + count, last]
    return np.array([b[2] for b in blocks]), np.array([b[0] / b[1] for b in blocks])


@dataclass(frozen=True, slots=True)
class Calibration:
    """Does a score predict success? Fitted on one half of the queries, judged on the other."""

    auroc: float  # of failing, 0.5: the score says nothing
    brier: float
    brier_constant: float  # of always saying the mean: the score helps where brier is below
    expected_error: float  # mean distance of predicted and seen recall over ten bins
    bins: list[dict[str, float]]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def calibration(scores: Array, hit: Array, seed: int = 0) -> Calibration:
    """From a non-increasing fit of recall on the score."""
    known = np.flatnonzero(~np.isnan(hit))
    shuffled = np.random.default_rng(seed).permutation(known)
    half = len(shuffled) // 2
    fit, test = shuffled[:half], shuffled[half:]
    knots, values = falling_fit(scores[fit], hit[fit])
    predicted = values[np.minimum(np.searchsorted(knots, scores[test]), len(values) - 1)]
    bins = []
    for part in np.array_split(np.argsort(predicted, kind="stable"), 10):
        if len(part):
            seen = float(hit[test][part].mean())
            bins.append({"predicted": float(predicted[part].mean()), "seen": seen, "queries": len(part)})
    error = sum(b["queries"] * abs(b["predicted"] - b["seen"]) for b in bins) / len(test)
    return Calibration(
        auroc=auroc(scores[known], 1 - hit[known]),
        brier=float(((predicted - hit[test]) ** 2).mean()),
        brier_constant=float(((hit[fit].mean() - hit[test]) ** 2).mean()),
        expected_error=error,
        bins=bins,
    )

"""Retrieval metrics: recall at 1, 5 and 10, median and mean rank, RSum, in both directions, block by block.

A query may have several positives; its rank is the rank of the best one. Ties neither raise nor lower a figure: every
figure is the exact expectation over random orders of equal scores. With `g` negatives strictly above the best positive,
and `t` negatives and `p` positives equal to it, the expected rank is `g + (t + p + 1) / (p + 1)` (`1 + g + t/2` for one
positive). The probability of a hit in the first k follows from drawing without replacement. So a model that gives every
pair the same score has the recall of chance, not 100%. Scores that differ by less than the rounding error count as
equal. Blocks of scores keep 25,000 captions x 5,000 images within some tens of megabytes. Needs NumPy only.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from auditor.errors import AuditorError
from auditor.vectors import MediaVectors

Array = npt.NDArray[Any]
CUTS = (1, 5, 10)
BLOCK_SCORES = 4_000_000  # scores held at once: 16 MB in float32
ROUNDING = 1e-6  # cosines in float32 differ by up to this between block shapes


class RetrievalError(AuditorError):
    """Embeddings, groups or weights that do not match."""


@dataclass(frozen=True, slots=True)
class EmbeddingSet:
    """Embeddings of media and captions. A medium and a caption of the same group are a positive pair."""

    media: MediaVectors  # N of them
    text: Array  # (M, D), L2-normalized
    visual_groups: Array  # (N,) int
    text_groups: Array  # (M,) int

    def __post_init__(self) -> None:
        if self.visual.ndim != 2 or self.text.ndim != 2 or self.visual.shape[1] != self.text.shape[1]:
            raise RetrievalError(f"embeddings of shapes {self.visual.shape} and {self.text.shape} cannot be compared")
        if len(self.visual_groups) != len(self.visual) or len(self.text_groups) != len(self.text):
            raise RetrievalError("every medium and every caption needs exactly one group")

    @property
    def visual(self) -> Array:  # (N, D)
        return self.media.visual

    def take_visual(self, rows: Array) -> "EmbeddingSet":
        return replace(self, media=self.media.take(rows), visual_groups=self.visual_groups[rows])

    def take_text(self, rows: Array) -> "EmbeddingSet":
        return replace(self, text=self.text[rows], text_groups=self.text_groups[rows])

    def take_groups(self, groups: Array) -> "EmbeddingSet":
        """The media of these groups with all their captions."""
        return self.take_visual(np.isin(self.visual_groups, groups)).take_text(np.isin(self.text_groups, groups))

    def scores(self, visual: slice, text: slice) -> Array:  # (n, m)
        return self.media.take(visual).similarity(self.text[text])


@dataclass(frozen=True, slots=True)
class Ranks:
    """The rank of each query's best positive, with ties counted separately."""

    greater: Array  # (Q,) negatives strictly above the best positive
    tied_negatives: Array  # (Q,)
    tied_positives: Array  # (Q,) 0: the query has no positive in this gallery

    @property
    def answerable(self) -> Array:
        return np.asarray(self.tied_positives > 0)

    def expected(self) -> Array:  # (Q,)
        """Expected rank over random orders of equal scores; NaN for a query without a positive."""
        tied = self.tied_negatives + self.tied_positives
        rank = self.greater + (tied + 1) / (self.tied_positives + 1)
        return np.where(self.answerable, rank, np.nan)

    def hit(self, k: int) -> Array:  # (Q,)
        """Probability that a positive is among the first k; NaN for a query without one."""
        miss = np.ones(len(self.greater))
        places = k - self.greater  # left for the tied group
        for place in range(k):
            tied = np.maximum(self.tied_negatives + self.tied_positives - place, 1)
            draw = np.clip((self.tied_negatives - place) / tied, 0.0, 1.0)
            miss *= np.where(place < places, draw, 1.0)
        return np.where(self.answerable, 1.0 - miss, np.nan)


@dataclass(frozen=True, slots=True)
class Recalls:
    """The metrics of one direction; recalls in percent."""

    r1: float
    r5: float
    r10: float
    median_rank: float
    mean_rank: float
    queries: int
    without_positive: int = 0  # excluded queries, whose positives are not in the gallery

    @staticmethod
    def of(ranks: Ranks) -> "Recalls":
        answerable = ranks.answerable
        count = int(answerable.sum())
        if not count:
            raise RetrievalError("no query has a positive in the gallery; do the captions belong to these media?")
        expected = ranks.expected()[answerable]
        r1, r5, r10 = (100 * float(ranks.hit(k)[answerable].mean()) for k in CUTS)
        return Recalls(r1, r5, r10, float(np.median(expected)), float(expected.mean()), count, len(answerable) - count)


@dataclass(frozen=True, slots=True)
class RetrievalResult:
    visual_to_text: Recalls
    text_to_visual: Recalls

    @property
    def rsum(self) -> float:
        """Sum of the six recalls, at most 600."""
        return sum(d.r1 + d.r5 + d.r10 for d in (self.visual_to_text, self.text_to_visual))

    @property
    def mean_r1(self) -> float:
        return (self.visual_to_text.r1 + self.text_to_visual.r1) / 2

    def to_dict(self) -> dict[str, Any]:
        directions = {"visual_to_text": self.visual_to_text, "text_to_visual": self.text_to_visual}
        recalls: dict[str, Any] = {
            name: {
                "R@1": d.r1,
                "R@5": d.r5,
                "R@10": d.r10,
                "MdR": d.median_rank,
                "MnR": d.mean_rank,
                "queries": d.queries,
                "without_positive": d.without_positive,
            }
            for name, d in directions.items()
        }
        return {**recalls, "RSum": self.rsum}


def find_positive_pairs(query_groups: Array, gallery_groups: Array) -> tuple[Array, Array]:
    """Row and column of every positive pair, without a matrix of all pairs."""
    order = np.argsort(gallery_groups, kind="stable")
    arranged = gallery_groups[order]
    first = np.searchsorted(arranged, query_groups, side="left")
    count = np.searchsorted(arranged, query_groups, side="right") - first
    rows = np.repeat(np.arange(len(query_groups)), count)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
    return rows, order[np.repeat(first, count) + within]


def rank_block(scores: Array, query_groups: Array, gallery_groups: Array, tolerance: float) -> Ranks:
    """Ranks of some queries (rows) against the whole gallery (columns)."""
    rows, columns = find_positive_pairs(query_groups, gallery_groups)
    positive = scores[rows, columns]
    best = np.full(len(scores), -np.inf, dtype=scores.dtype)
    np.maximum.at(best, rows, positive)
    tied_positives = np.bincount(rows, positive >= best[rows] - tolerance, len(scores)).astype(int)
    greater = np.count_nonzero(scores > best[:, None] + tolerance, axis=1)
    reaching = np.count_nonzero(scores >= best[:, None] - tolerance, axis=1)
    return Ranks(greater, reaching - greater - tied_positives, tied_positives)


def collapse_captions(scores: Array, groups: Array) -> tuple[Array, Array]:
    """The best score of each group of columns, and the groups: the captions of a medium become one gallery item.

    Figures of video-to-text retrieval on MSVD are published this way: ranks count videos, not their forty sentences.
    """
    order = np.argsort(groups, kind="stable")
    names, starts = np.unique(groups[order], return_index=True)
    return np.maximum.reduceat(scores[:, order], starts, axis=1), names


def _concatenate_ranks(parts: list[Ranks]) -> Ranks:
    return Ranks(
        np.concatenate([p.greater for p in parts]),
        np.concatenate([p.tied_negatives for p in parts]),
        np.concatenate([p.tied_positives for p in parts]),
    )


def _iterate_blocks(queries: int, gallery: int, scores: int) -> Iterator[slice]:
    step = max(1, scores // max(1, gallery))
    for start in range(0, queries, step):
        yield slice(start, min(start + step, queries))


def rank_visual_queries(
    data: EmbeddingSet,
    *,
    visual_weight: Array | None = None,  # (N,) factors of equation 8; None: do not re-rank
    text_weight: Array | None = None,  # (M,)
    collapse_texts: bool = False,
    tolerance: float = ROUNDING,
    block_scores: int = BLOCK_SCORES,
) -> Ranks:
    """The rank of each medium's best caption."""
    parts = []
    for rows in _iterate_blocks(len(data.visual), len(data.text), block_scores):
        scores = _apply_weights(data.scores(rows, slice(None)), _slice_weight(visual_weight, rows), text_weight)
        groups = data.text_groups
        if collapse_texts:
            scores, groups = collapse_captions(scores, groups)
        parts.append(rank_block(scores, data.visual_groups[rows], groups, tolerance))
    return _concatenate_ranks(parts)


def rank_text_queries(
    data: EmbeddingSet,
    *,
    visual_weight: Array | None = None,
    text_weight: Array | None = None,
    tolerance: float = ROUNDING,
    block_scores: int = BLOCK_SCORES,
) -> Ranks:
    """The rank of each caption's medium."""
    parts = []
    for rows in _iterate_blocks(len(data.text), len(data.visual), block_scores):
        scores = _apply_weights(data.scores(slice(None), rows), visual_weight, _slice_weight(text_weight, rows)).T
        parts.append(rank_block(scores, data.text_groups[rows], data.visual_groups, tolerance))
    return _concatenate_ranks(parts)


def _slice_weight(weight: Array | None, rows: slice) -> Array | None:
    return None if weight is None else weight[rows]


def _apply_weights(scores: Array, visual: Array | None, text: Array | None) -> Array:
    if visual is not None:
        scores = scores * visual[:, None]
    if text is not None:
        scores = scores * text[None, :]
    return scores


def compute_recall(
    data: EmbeddingSet,
    *,
    visual_weight: Array | None = None,
    text_weight: Array | None = None,
    collapse_texts: bool = False,
    tolerance: float = ROUNDING,
    block_scores: int = BLOCK_SCORES,
) -> RetrievalResult:
    """Recall in both directions, block by block; the full matrix of scores is never in memory."""
    visual = rank_visual_queries(
        data,
        visual_weight=visual_weight,
        text_weight=text_weight,
        collapse_texts=collapse_texts,
        tolerance=tolerance,
        block_scores=block_scores,
    )
    text = rank_text_queries(
        data, visual_weight=visual_weight, text_weight=text_weight, tolerance=tolerance, block_scores=block_scores
    )
    return RetrievalResult(Recalls.of(visual), Recalls.of(text))

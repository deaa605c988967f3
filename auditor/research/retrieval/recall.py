"""Retrieval metrics: recall at 1, 5 and 10, median and mean rank, RSum, in both directions, block by block. NumPy only.

A query may have several positives; its rank is the rank of the best one. Every figure is the exact expectation over
random orders of equal scores, so a model that gives every pair the same score has the recall of chance. With `g`
negatives strictly above the best positive, and `t` negatives and `p` positives equal to it, the expected rank is
`g + (t + p + 1) / (p + 1)`. Scores that differ by less than the rounding error count as equal.
"""

from dataclasses import astuple, dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from auditor.errors import AuditorError
from auditor.vectors import MediaVectors

Array = npt.NDArray[Any]
Direction = Literal["visual_to_text", "text_to_visual"]
DIRECTIONS: tuple[Direction, Direction] = ("visual_to_text", "text_to_visual")
METRICS = ("R@1", "R@5", "R@10", "MdR", "MnR", "queries", "without_positive")  # the fields of Recalls
BLOCK_SCORES = 4_000_000  # scores held at once: 16 MB in float32
ROUNDING = 1e-6  # cosines in float32 differ by up to this between block shapes


class RetrievalError(AuditorError):
    """Embeddings that cannot be compared, or re-ranked, in the way that is asked for."""


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

    def reweight(self, visual: Array, text: Array) -> "EmbeddingSet":
        """Scale the vectors, and so every score, by factors of media (N,) and captions (M,), as in equation 8."""
        factors = visual.astype(np.float32)[:, None]
        frames = None if self.media.frames is None else self.media.frames * factors[..., None]
        media = MediaVectors(self.visual * factors, frames, self.media.mask)
        return replace(self, media=media, text=self.text * text.astype(np.float32)[:, None])

    def scores(self, visual: slice = slice(None), text: slice = slice(None)) -> Array:  # (n, m)
        return self.media.take(visual).similarity(self.text[text])


class Ranks(NamedTuple):
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
        r1, r5, r10 = (100 * float(ranks.hit(k)[answerable].mean()) for k in (1, 5, 10))
        return Recalls(r1, r5, r10, float(np.median(expected)), float(expected.mean()), count, len(answerable) - count)


@dataclass(frozen=True, slots=True)
class RetrievalResult:
    visual_to_text: Recalls
    text_to_visual: Recalls

    @property
    def rsum(self) -> float:
        """Sum of the six recalls, at most 600."""
        return sum(d.r1 + d.r5 + d.r10 for d in (self.visual_to_text, self.text_to_visual))

    def to_dict(self) -> dict[str, Any]:
        recalls = {str(way): dict(zip(METRICS, astuple(getattr(self, way)), strict=True)) for way in DIRECTIONS}
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


def rank_queries(data: EmbeddingSet, direction: Direction, *, collapse_texts: bool = False) -> Ranks:
    """The rank of each medium's best caption, or of each caption's medium, block by block."""
    groups = data.visual_groups, data.text_groups
    query_groups, gallery_groups = groups if direction == "visual_to_text" else groups[::-1]
    step = max(1, BLOCK_SCORES // max(1, len(gallery_groups)))
    blocks = []
    for start in range(0, len(query_groups), step):
        rows, gallery = slice(start, start + step), gallery_groups
        scores = data.scores(visual=rows) if direction == "visual_to_text" else data.scores(text=rows).T
        if collapse_texts:
            scores, gallery = collapse_captions(scores, gallery)
        blocks.append(rank_block(scores, query_groups[rows], gallery, ROUNDING))
    return Ranks(*map(np.concatenate, zip(*blocks, strict=True)))


def compute_recall(data: EmbeddingSet, *, collapse_texts: bool = False) -> RetrievalResult:
    """Recall in both directions; the full matrix of scores is never in memory."""
    visual = rank_queries(data, "visual_to_text", collapse_texts=collapse_texts)
    return RetrievalResult(Recalls.of(visual), Recalls.of(rank_queries(data, "text_to_visual")))

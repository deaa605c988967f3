"""How each benchmark is scored: which split, how many captions per medium, which galleries.

COCO is reported on all 5,000 test images against their 25,000 captions, and as the mean over five folds of 1,000 x
5,000 in the order of the split (the released program of the paper has folds of 999 x 4,999); where media are missing
the folds are cut elsewhere and are not called COCO 1K. MSR-VTT is the 1k-A split with one caption per video. MSVD
counts other videos, not their sentences, in video-to-text; the stricter count over all sentences is reported beside it.
DiDeMo has one paragraph per video.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from auditor.research.retrieval.recall import (
    Array,
    EmbeddingSet,
    Recalls,
    RetrievalError,
    RetrievalResult,
    recall_from_embeddings,
)


@dataclass(frozen=True, slots=True)
class Protocol:
    benchmark: str
    split: str = "test"
    captions: int | None = None  # the first so many of each medium; None: all
    media: int | None = None  # what the full split has: fewer is said in the results
    fold: int | None = None  # media per fold of the second table
    collapse_texts: bool = False
    video: bool = False


PROTOCOLS = {
    protocol.benchmark: protocol
    for protocol in (
        Protocol("coco", captions=5, media=5000, fold=1000),
        Protocol("flickr8k", captions=5, media=1000),
        Protocol("flickr30k", captions=5, media=1000),
        Protocol("msrvtt", captions=1, media=1000, video=True),
        Protocol("msvd", media=670, collapse_texts=True, video=True),
        Protocol("didemo", captions=1, media=1003, video=True),
        Protocol("shards"),  # any corpus of pairs
    )
}


@dataclass(frozen=True, slots=True)
class Weights:
    """Factors of the scores, equation 8; ones where nothing is re-ranked."""

    visual: Array  # (N,)
    text: Array  # (M,)

    @staticmethod
    def ones(data: EmbeddingSet) -> "Weights":
        return Weights(np.ones(len(data.visual), np.float32), np.ones(len(data.text), np.float32))


def first_captions(owners: Array, count: int | None) -> Array:
    """Mask of the first `count` captions of each medium, in the order they stand in."""
    if count is None:
        return np.ones(len(owners), dtype=bool)
    order = np.argsort(owners, kind="stable")
    _, starts, sizes = np.unique(owners[order], return_index=True, return_counts=True)
    place = np.empty(len(owners), dtype=int)
    place[order] = np.arange(len(owners)) - np.repeat(starts, sizes)
    return np.asarray(place < count)


def score(
    protocol: Protocol,
    data: EmbeddingSet,
    weights: Weights | None = None,
    split: str | None = None,
    *,
    complete: bool = True,
) -> dict[str, RetrievalResult]:
    """Every gallery of the protocol by name; the first is the one to quote.

    Of a split that is not `complete` the folds bear another name: one lost medium shifts all folds behind it.
    """
    w = weights or Weights.ones(data)
    name = (
        (split or protocol.split)
        if protocol.fold is None
        else f"{protocol.benchmark.upper()} {_short(len(data.visual))}"
    )
    scored = partial(recall_from_embeddings, data, visual_weight=w.visual, text_weight=w.text)
    results = {name: scored(collapse_texts=protocol.collapse_texts)}
    if protocol.collapse_texts:
        results[f"{name}, all sentences"] = scored()
    if protocol.fold and len(data.visual) >= 2 * protocol.fold:
        count = min(5, len(data.visual) // protocol.fold)
        folds = [_fold(data, w, fold, protocol.fold) for fold in range(count)]
        official = f"{protocol.benchmark.upper()} {_short(protocol.fold)}"
        results[official if complete else f"{name}, folds of {protocol.fold}"] = mean_result(folds)
    return results


def _short(count: int) -> str:
    return f"{count // 1000}K" if count % 1000 == 0 else str(count)


def _fold(data: EmbeddingSet, weights: Weights, number: int, size: int) -> RetrievalResult:
    visual = np.zeros(len(data.visual), dtype=bool)
    visual[number * size : (number + 1) * size] = True
    text = np.isin(data.text_groups, data.visual_groups[visual])
    part = data.take_visual(visual).take_text(text)
    return recall_from_embeddings(part, visual_weight=weights.visual[visual], text_weight=weights.text[text])


def mean_result(results: Sequence[RetrievalResult]) -> RetrievalResult:
    """Mean of every figure over folds or seeds."""
    if not results:
        raise RetrievalError("no results to average")

    def averaged(direction: Sequence[Recalls]) -> Recalls:
        values = np.array([(d.r1, d.r5, d.r10, d.median_rank, d.mean_rank) for d in direction]).mean(axis=0)
        r1, r5, r10, median, mean = map(float, values)
        return Recalls(r1, r5, r10, median, mean, direction[0].queries, direction[0].without_positive)

    return RetrievalResult(averaged([r.visual_to_text for r in results]), averaged([r.text_to_visual for r in results]))

"""The protocol of each benchmark (split, captions per medium, galleries), and the figures that the paper prints.

COCO is reported on all 5,000 test images, and as the mean over five folds of 1,000 in the order of the split (the
paper's released program has folds of 999). MSR-VTT is the 1k-A split with one caption per video. MSVD counts videos,
not their sentences, in video-to-text; the stricter count is reported as well. DiDeMo has one paragraph per video.
"""

import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from auditor.research.retrieval.recall import Array, EmbeddingSet, Recalls, RetrievalResult, compute_recall


@dataclass(frozen=True, slots=True)
class Protocol:
    benchmark: str
    split: str = "test"
    captions: int | None = None  # use the first so many captions of each medium; None: all
    media: int | None = None  # media of the complete split; results with fewer say so
    fold: int | None = None  # media per fold of the second gallery
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


def mask_first_captions(owners: Array, count: int | None) -> Array:
    if count is None:
        return np.ones(len(owners), dtype=bool)
    order = np.argsort(owners, kind="stable")
    _, starts, sizes = np.unique(owners[order], return_index=True, return_counts=True)
    place = np.empty(len(owners), dtype=int)
    place[order] = np.arange(len(owners)) - np.repeat(starts, sizes)
    return np.asarray(place < count)


def score_split(
    protocol: Protocol, data: EmbeddingSet, split: str | None = None, *, complete: bool = True
) -> dict[str, RetrievalResult]:
    """The results of every gallery of the protocol, by name; the first is the one to quote.

    The folds of an incomplete split get another name: one missing medium shifts all folds after it.
    """
    media, size, benchmark = len(data.visual), protocol.fold, protocol.benchmark.upper()
    name = f"{benchmark} {_format_gallery_size(media)}" if size else split or protocol.split
    results = {name: compute_recall(data, collapse_texts=protocol.collapse_texts)}
    if protocol.collapse_texts:
        results[f"{name}, all sentences"] = compute_recall(data)
    if size and media >= 2 * size:
        starts = range(0, min(5, media // size) * size, size)
        folds = [compute_recall(data.take_groups(data.visual_groups[i : i + size])) for i in starts]
        fold_name = f"{benchmark} {_format_gallery_size(size)}" if complete else f"{name}, folds of {size}"
        results[fold_name] = average_results(folds)
    return results


def _format_gallery_size(count: int) -> str:
    return f"{count // 1000}K" if count % 1000 == 0 else str(count)


def average_results(results: Sequence[RetrievalResult]) -> RetrievalResult:
    def average(parts: Sequence[Recalls]) -> Recalls:
        r1, r5, r10, median, mean = np.mean([astuple(part)[:5] for part in parts], axis=0).tolist()
        return Recalls(r1, r5, r10, median, mean, parts[0].queries, parts[0].without_positive)

    return RetrievalResult(average([r.visual_to_text for r in results]), average([r.text_to_visual for r in results]))


def read_paper_figures(table: str) -> Any:
    """The figures that the paper prints in one of its tables; an empty list if it has none."""
    return json.loads(Path(__file__).with_name("paper.json").read_text(encoding="utf-8")).get(table, [])

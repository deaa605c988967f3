"""Overlap with another corpus, such as a benchmark's test set: the same bytes or text, or nearly the same.

Copies that were re-encoded, mirrored or cropped a little are less similar than near-duplicates, so the required cosine
is lower than that of `duplicate_of`. Every match reports its cosine.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from auditor.score.statistics.duplicates import COPY_DISTANCE, cosine_at_distance
from auditor.score.statistics.rivals import iterate_blocks
from auditor.vectors import Floats, Ints

# Distance of an altered copy, as a share of the mean distance of two media. On photos of Flickr8k, where that mean is
# 1, copies saved at quality 50, mirrored, or cropped to 90% of each side have a cosine of at least 0.88; the most
# similar two of 160 different photos have 0.81.
ALTERED_DISTANCE = 0.13
WORDS = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class OtherCorpus:
    """The vectors of the other corpus, and the identities of its media and captions."""

    visual: Floats  # (M, D)
    marks: Ints  # (M,) equal for equal bytes
    text: Floats  # (P, D)
    captions: tuple[str, ...]  # (P) as returned by normalize_words

    def media_cosine(self) -> float:
        return cosine_at_distance(ALTERED_DISTANCE, self.visual)

    def caption_cosine(self) -> float:
        return cosine_at_distance(COPY_DISTANCE, self.text)


def normalize_words(caption: str) -> str:
    """The words of a caption without case, punctuation and extra spaces."""
    return " ".join(WORDS.findall(caption.casefold()))


def find_nearest_vectors(vectors: Floats, candidates: Floats) -> tuple[Ints, Floats]:
    """For each of N vectors, the row of the nearest candidate and its cosine; -1 if there are no candidates."""
    nearest, cosine = np.full(len(vectors), -1), np.full(len(vectors), -1.0, np.float32)
    for rows in iterate_blocks(len(vectors), len(candidates)) if len(candidates) else ():
        similarity = vectors[rows] @ candidates.T
        nearest[rows], cosine[rows] = similarity.argmax(axis=1), similarity.max(axis=1)
    return nearest, cosine


def match_vectors(
    vectors: Floats, candidates: Floats, names: Sequence[object], candidate_names: Sequence[object], threshold: float
) -> tuple[Ints, Ints, Floats]:
    """For each of N items: the candidate with the same name or, failing that, a cosine of at least the threshold.

    Returns its row (-1: none), whether the match is exact, and the cosine.
    """
    nearest, cosine = find_nearest_vectors(vectors, candidates)
    nearest = np.where(cosine >= threshold, nearest, -1)
    rows = {name: row for row, name in reversed(list(enumerate(candidate_names)))}
    equal = np.array([rows.get(name, -1) for name in names], np.int64)
    exact = equal >= 0
    return np.where(exact, equal, nearest), exact.astype(np.int64), np.where(exact, np.float32(1.0), cosine)

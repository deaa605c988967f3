"""What of a corpus is also in another, such as a benchmark's test set: the same bytes or text, or nearly the same.

Copies that were saved again, mirrored or cropped a little keep most of their embedding, less than near-duplicates do,
so the cosine asked for is lower than that of `duplicate_of`. It is stated with every match.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from auditor.score.statistics.duplicates import COPY_DISTANCE
from auditor.score.statistics.rivals import blocks
from auditor.vectors import Floats, Ints

# Distance of an altered copy, as a share of the mean distance of two media. On photos of Flickr8k, where that mean is
# 1, copies saved at quality 50, mirrored, or cropped to 90% of each side keep at least 0.88; the nearest two of 160
# different photos have 0.81.
ALTERED_DISTANCE = 0.13
WORDS = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Other:
    """The vectors of the other corpus, and what its media and captions are known by."""

    visual: Floats  # (M, D)
    marks: Ints  # (M,) equal for equal bytes
    text: Floats  # (P, D)
    captions: tuple[str, ...]  # (P) as `plain` makes them

    def media_cosine(self) -> float:
        return cosine_at(ALTERED_DISTANCE, self.visual)

    def caption_cosine(self) -> float:
        return cosine_at(COPY_DISTANCE, self.text)


def cosine_at(distance: float, vectors: Floats) -> float:
    """The cosine of two things that are as far apart as a share of the mean distance."""
    mean = vectors.mean(axis=0, dtype=np.float64)
    return float(1 - distance * (1 - min(1.0, float(mean @ mean))))


def plain(caption: str) -> str:
    """A caption by its words alone: case, punctuation and spaces do not make it another."""
    return " ".join(WORDS.findall(caption.casefold()))


def nearest(vectors: Floats, others: Floats) -> tuple[Ints, Floats]:
    """For each of N vectors the nearest of the others, and its cosine; none (-1) where there are no others."""
    place, cosine = np.full(len(vectors), -1), np.full(len(vectors), -1.0, np.float32)
    if len(others):
        for rows in blocks(len(vectors), len(others)):
            similar = vectors[rows] @ others.T
            place[rows] = similar.argmax(axis=1)
            cosine[rows] = np.take_along_axis(similar, place[rows][:, None], axis=1)[:, 0]
    return place, cosine


def matches(
    vectors: Floats, others: Floats, names: Sequence[object], other_names: Sequence[object], least: float
) -> tuple[Ints, Ints, Floats]:
    """(N,) -> the other that each is the same as or nearly, -1 for none; whether exactly; the cosine."""
    place, cosine = nearest(vectors, others)
    place = np.where(cosine >= least, place, -1)
    known = {name: index for index, name in reversed(list(enumerate(other_names)))}
    same = np.array([known.get(name, -1) for name in names], np.int64)
    exact = same >= 0
    return np.where(exact, same, place), exact.astype(np.int64), np.where(exact, np.float32(1.0), cosine)

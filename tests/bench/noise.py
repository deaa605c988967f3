"""Spoil the captions of real photos, from easy to hard, for the benchmarks of mismatch.

random: the caption of another photo. shared: the caption of a photo whose caption shares a noun (the noise of LEMoN).
image: a caption of one of the 2nd to 6th most similar photos. similar: one of the 2nd to 6th nearest captions of other
photos. noun: one noun is replaced by another.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from auditor.score.statistics.rivals import ReferenceSample
from auditor.score.statistics.siblings import collect_siblings
from auditor.vectors import Ints, MediaVectors
from tests.bench.flickr8k import Encode, Photos, nouns, swap_noun, words

KINDS = ("random", "shared", "image", "similar", "noun")


@dataclass(frozen=True)
class Spoiled:
    """Photos with some wrong captions, and which captions are wrong."""

    photos: Photos
    wrong: npt.NDArray[np.bool_]  # (P,)


def part(photos: Photos, chosen: Sequence[int] | Ints, captions: int | None = None, seed: int = 0) -> Photos:
    """Some of the photos with all of their captions, or this many random ones."""
    generator = np.random.default_rng(seed)
    rows: list[int] = []
    for photo in chosen:
        own = np.flatnonzero(photos.media == photo)
        rows += sorted(generator.permutation(own)[:captions].tolist())
    place = {int(photo): new for new, photo in enumerate(chosen)}
    return Photos(
        [photos.keys[photo] for photo in chosen],
        [photos.captions[row] for row in rows],
        photos.visual[np.asarray(chosen)],
        photos.text[rows],
        np.array([place[int(photos.media[row])] for row in rows], np.int64),
        photos.scale,
    )


def halves(photos: Photos, seed: int = 7) -> tuple[Ints, Ints]:
    """The half of the photos on which settings were chosen, and the half that is reported."""
    order = np.random.default_rng(seed).permutation(len(photos.keys))
    return np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])


def spoil(photos: Photos, kind: str, rate: float, seed: int, encode: Encode | None = None) -> Spoiled:
    """Make a share of the captions wrong."""
    generator = np.random.default_rng(seed)
    wanted = round(rate * len(photos.captions))
    order = generator.permutation(len(photos.captions))
    captions, text = list(photos.captions), photos.text.copy()
    if kind == "noun":
        chosen = swap_nouns(captions, order, wanted, generator)
        if chosen and encode is not None:
            text[chosen] = encode([captions[row] for row in chosen])
    else:
        chosen = []
        draw = Draw.of(photos)
        for row in order:
            other = draw.other(kind, int(row), generator) if len(chosen) < wanted else None
            if other is not None:
                captions[row], text[row] = photos.captions[other], photos.text[other]
                chosen.append(int(row))
    wrong = np.zeros(len(captions), bool)
    wrong[chosen] = True
    return Spoiled(replace(photos, captions=captions, text=text), wrong)


def swap_nouns(captions: list[str], order: Ints, wanted: int, generator: np.random.Generator) -> list[int]:
    """Swap a noun in this many captions, in place, and return which."""
    known = nouns(captions)
    chosen: list[int] = []
    for row in order:
        swapped = swap_noun(captions[row], known, generator) if len(chosen) < wanted else None
        if swapped:
            captions[row] = swapped
            chosen.append(int(row))
    return chosen


@dataclass(frozen=True)
class Draw:
    """Draws the caption that replaces another."""

    photos: Photos
    named: list[set[str]]  # (P) the nouns of each caption

    @staticmethod
    def of(photos: Photos) -> "Draw":
        known = set(nouns(photos.captions))
        return Draw(photos, [set(words(caption)) & known for caption in photos.captions])

    def other(self, kind: str, row: int, generator: np.random.Generator) -> int | None:
        """A caption of another photo, or None if there is none of this kind."""
        photos = self.photos
        apart = photos.media != photos.media[row]
        if kind == "similar":
            near = np.where(apart, photos.text @ photos.text[row], -np.inf)
            return int(generator.choice(np.argsort(-near)[1:6]))
        if kind == "image":
            near = photos.visual @ photos.visual[photos.media[row]]
            near[photos.media[row]] = -np.inf
            apart = np.isin(photos.media, np.argsort(-near)[1:6])
        if kind == "shared":
            apart &= np.array([bool(self.named[row] & other) for other in self.named])
        found = np.flatnonzero(apart)
        return int(generator.choice(found)) if len(found) else None


def reference_of(photos: Photos) -> ReferenceSample:
    """All pairs as their own reference, with siblings if photos have several captions."""
    media = MediaVectors(photos.visual[photos.media])
    siblings = collect_siblings(photos.media, media, photos.text)
    return ReferenceSample(media, photos.text, photos.media, photos.captions, siblings, scale=photos.scale)

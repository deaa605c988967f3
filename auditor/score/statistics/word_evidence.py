"""The words of captions, each looked for in the medium by itself: which one does nothing in the picture speak for?

Words are encoded once for a corpus ("a dog"), and their cosine with a medium is standardised over media, so that "dog"
and "guitar" count alike. A caption is suspicious where one of its words stands far below the others. Words are what
stands between spaces and is made of letters: captions in scripts without spaces, or of one word, have no such
evidence, and nothing else changes for them. NumPy only.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from auditor.vectors import Floats, Ints

TEMPLATE = "a {}"
MOST_WORDS = 50_000  # of a corpus, the most frequent
EVERYWHERE = 0.3  # a word in more captions than this says nothing about a picture
# English words that name nothing to be seen; in other languages EVERYWHERE finds the worst of them.
EMPTY = frozenset(
    re.findall(
        r"\w+",
        "a an the of in on at with by to from for and or is are was were be been being as while its it his her their "
        "they them he she him this that these those there who which into onto over under near up down out off through "
        "along across around against behind between beside above below during some one two three four five several "
        "many other another each both very next front top has have having do does not no so then than too",
    )
)
_WORD = re.compile(r"[^\W\d_]{2,}")


def content_words(caption: str) -> list[str]:
    """The distinct words of a caption that may name something, in order."""
    return [word for word in dict.fromkeys(_WORD.findall(caption.lower())) if word not in EMPTY]


def count_words(captions: Iterable[str], most: int = MOST_WORDS) -> tuple[dict[str, int], int]:
    """Number of captions that hold each word, most frequent first, and of all captions."""
    seen: Counter[str] = Counter()
    count = 0
    for caption in captions:
        seen.update(content_words(caption))
        count += 1
    return dict(seen.most_common(most)), count


def document_frequencies(captions: Iterable[str], most: int = MOST_WORDS) -> dict[str, int]:
    """Number of captions that hold each word, most frequent first; words that are everywhere are left out."""
    return telling(*count_words(captions, most))


def telling(counts: Mapping[str, int], captions: int) -> dict[str, int]:
    """The words that are not in so many of the captions that they say nothing about a picture."""
    return {word: count for word, count in counts.items() if count <= max(1.0, EVERYWHERE * captions)}


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Words and their vectors by one model."""

    names: tuple[str, ...]
    vectors: Floats  # (V, D), L2-normalised


def encode_words(names: Iterable[str], encode: Callable[[Sequence[str]], Floats]) -> Vocabulary:
    """Each word alone, as a caption of one thing."""
    known = tuple(names)
    return Vocabulary(known, encode([TEMPLATE.format(word) for word in known]))


@dataclass(frozen=True, slots=True)
class WordRows:
    """The known words of N captions, one after another."""

    word: Ints  # (M,) row of the word
    first: Ints  # (N,) where those of each caption begin
    count: Ints  # (N,)

    def take(self, captions: Ints) -> "WordRows":
        """The words of some captions, in that order."""
        count = self.count[captions]
        first = np.cumsum(count) - count
        at = np.arange(int(count.sum())) + np.repeat(self.first[captions] - first, count)
        return WordRows(self.word[at], first, count)


def word_rows(captions: Sequence[str], index: Mapping[str, int]) -> WordRows:
    """Look the words up; a single one is left out: there is nothing to compare it with."""
    word: list[int] = []
    count: list[int] = []
    for caption in captions:
        known = [index[each] for each in content_words(caption) if each in index]
        count.append(len(known) if len(known) > 1 else 0)
        word += known if len(known) > 1 else []
    counts = np.array(count, np.int64)
    return WordRows(np.array(word, np.int64), np.cumsum(counts) - counts, counts)


@dataclass(frozen=True, slots=True)
class Scale:
    """Mean and deviation of each word's cosine over some vectors."""

    mean: Floats  # (V,)
    deviation: Floats  # (V,)


@dataclass(frozen=True, slots=True)
class Weakest:
    """The weakest word of each of N captions; NaN where it has none."""

    gap: Floats  # (N,) how far it stands below the mean of the caption's words, in deviations
    support: Floats  # (N,) how much like it the medium is, in deviations over media
    word: Ints  # (N,) row of that word, -1 where there is none


@dataclass(frozen=True)
class Words:
    """The words of a corpus with their vectors, and how they stand to its media and to its siblings' profiles."""

    names: tuple[str, ...]
    index: dict[str, int]
    vectors: Floats  # (V, D)
    of_media: Scale
    of_siblings: Scale | None

    @staticmethod
    def of(vocabulary: Vocabulary, media: Floats, said: Floats | None) -> "Words":
        """Standardised over some media (N, D) and over what some media's siblings say (M, D)."""
        return Words(
            vocabulary.names,
            {word: row for row, word in enumerate(vocabulary.names)},
            vocabulary.vectors,
            scale_of(vocabulary.vectors, media),
            None if said is None or not len(said) else scale_of(vocabulary.vectors, said),
        )

    def weakest(self, rows: WordRows, vectors: Floats, scale: Scale, media: Ints) -> Weakest:
        """Of the words of each caption the one least like its medium: a row of `vectors`, by `media` (N,)."""
        gap, support = np.full((2, len(media)), np.nan, np.float32)
        word = np.full(len(media), -1, np.int64)
        some = np.flatnonzero(rows.count)
        if not len(some):
            return Weakest(gap, support, word)
        z = self._standardised(rows.word, vectors, np.repeat(media, rows.count), scale)
        first, size = rows.first[some], rows.count[some]
        lowest = np.minimum.reduceat(z, first)
        support[some] = lowest
        gap[some] = lowest - np.add.reduceat(z, first) / size
        at = np.flatnonzero(z == np.repeat(lowest, size))[::-1]  # the first of equals is written last
        word[np.repeat(some, size)[at]] = rows.word[at]
        return Weakest(gap, support, word)

    def _standardised(self, word: Ints, vectors: Floats, row: Ints, scale: Scale) -> Floats:
        z = np.empty(len(word), np.float32)
        for start in range(0, len(z), 1 << 14):  # bounded memory
            part = slice(start, start + (1 << 14))
            z[part] = np.einsum("md,md->m", self.vectors[word[part]], vectors[row[part]])
        return (z - scale.mean[word]) / scale.deviation[word]


def scale_of(words: Floats, vectors: Floats, step: int = 4096) -> Scale:
    """How the cosines of each word (V, D) are spread over some vectors (N, D)."""
    mean, deviation = np.empty(len(words), np.float32), np.empty(len(words), np.float32)
    for start in range(0, len(words), step):
        cosine = vectors @ words[start : start + step].T
        mean[start : start + step] = cosine.mean(axis=0)
        deviation[start : start + step] = np.maximum(cosine.std(axis=0), 1e-6)
    return Scale(mean, deviation)

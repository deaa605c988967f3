"""The words of a caption, each compared with the medium by itself: which word fits the medium least?

Words are encoded once for a corpus ("a dog"), and their cosine with a medium is standardized over media, so that "dog"
and "guitar" are comparable. A caption is suspicious if one of its words fits far worse than the others. A word is a
sequence of letters: captions of one word, or in scripts without spaces, have no word evidence. NumPy only.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from auditor.vectors import Floats, Ints, concatenate_ranges

TEMPLATE = "a {}"
VOCABULARY_SIZE = 50_000  # the most frequent words of a corpus
UNINFORMATIVE_SHARE = 0.3  # a word in more captions than this carries no information about a picture
# English words that name nothing visible; in other languages UNINFORMATIVE_SHARE removes the worst of them.
STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an the of in on at with by to from for and or is are was were be been being as while its it his her their "
        "they them he she him this that these those there who which into onto over under near up down out off through "
        "along across around against behind between beside above below during some one two three four five several "
        "many other another each both very next front top has have having do does not no so then than too",
    )
)
_WORD = re.compile(r"[^\W\d_]{2,}")
_FOREIGN = re.compile(r"[^\W\d_a-zA-Z]")
_CHUNK = 1 << 14  # words compared at once, to bound memory


def content_words(caption: str) -> list[str]:
    """The distinct words of a caption except stop words, in order."""
    return [word for word in dict.fromkeys(_WORD.findall(caption.lower())) if word not in STOP_WORDS]


@dataclass(frozen=True, slots=True)
class WordFrequencies:
    """The number of captions of a sample that contain each word, most frequent first."""

    counts: dict[str, int]
    captions: int

    @staticmethod
    def count(captions: Sequence[str]) -> "WordFrequencies":
        counts = Counter(word for caption in captions for word in content_words(caption))
        return WordFrequencies(dict(counts.most_common(VOCABULARY_SIZE)), max(1, len(captions)))

    def informative_words(self) -> list[str]:
        """The words that are not so frequent that they carry no information about a picture."""
        limit = max(1.0, UNINFORMATIVE_SHARE * self.captions)
        return [word for word, count in self.counts.items() if count <= limit]

    def bits(self, captions: Sequence[str]) -> Floats:
        """Information of the words of captions: the sum of log2(captions / captions with the word)."""
        information = {word: float(np.log2(self.captions / count)) for word, count in self.counts.items()}
        rare = float(np.log2(max(2, self.captions)))
        bits = [sum(information.get(word, rare) for word in content_words(caption)) for caption in captions]
        return np.array(bits, np.float32)

    def share(self, captions: Sequence[str], bits: Floats | None = None) -> Floats:
        """Share of the corpus's captions that would contain all words of these if words were independent: 2^-bits.

        NaN for a caption without words but with letters of a script that does not separate words. Pass `bits` if they
        are already computed.
        """
        share = np.exp2(-(self.bits(captions) if bits is None else bits)).astype(np.float32)
        for row in np.flatnonzero(share == 1).tolist():  # only these may have no words
            if not content_words(captions[row]) and _FOREIGN.search(captions[row]):
                share[row] = np.nan
        return share


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Words and their vectors by one model."""

    names: tuple[str, ...]
    vectors: Floats  # (V, D), L2-normalized


def encode_words(names: Iterable[str], encode: Callable[[Sequence[str]], Floats]) -> Vocabulary:
    """Encode each word alone, as a caption of one thing."""
    words = tuple(names)
    return Vocabulary(words, encode([TEMPLATE.format(word) for word in words]))


@dataclass(frozen=True, slots=True)
class WordRows:
    """The vocabulary rows of the words of N captions, concatenated."""

    word: Ints  # (M,) row of the vocabulary
    first: Ints  # (N,) position of each caption's first word
    count: Ints  # (N,)

    def take(self, captions: Ints) -> "WordRows":
        count = self.count[captions]
        return WordRows(self.word[concatenate_ranges(self.first[captions], count)], np.cumsum(count) - count, count)


def look_up_words(captions: Sequence[str], index: Mapping[str, int]) -> WordRows:
    """Look up the words of captions; a single word is dropped because there is nothing to compare it with."""
    word: list[int] = []
    count: list[int] = []
    for caption in captions:
        rows = [index[name] for name in content_words(caption) if name in index]
        count.append(len(rows) if len(rows) > 1 else 0)
        word += rows if len(rows) > 1 else []
    counts = np.array(count, np.int64)
    return WordRows(np.array(word, np.int64), np.cumsum(counts) - counts, counts)


@dataclass(frozen=True, slots=True)
class WordScale:
    """Mean and standard deviation of each word's cosine over a set of vectors."""

    mean: Floats  # (V,)
    deviation: Floats  # (V,)


@dataclass(frozen=True, slots=True)
class WeakestWords:
    """The weakest word of each of N captions; NaN if the caption has no usable words."""

    gap: Floats  # (N,) its standardized cosine minus the mean of the caption's words
    support: Floats  # (N,) its standardized cosine with the medium
    word: Ints  # (N,) its vocabulary row, or -1


@dataclass(frozen=True)
class CorpusWords:
    """The words of a corpus: their vectors, and the scales of their cosines with media and with sibling profiles."""

    names: tuple[str, ...]
    index: dict[str, int]
    vectors: Floats  # (V, D)
    media_scale: WordScale
    sibling_scale: WordScale | None

    @staticmethod
    def fit(vocabulary: Vocabulary, media: Floats, profiles: Floats | None) -> "CorpusWords":
        """Standardize over media (N, D) and over sibling profiles (M, D)."""
        return CorpusWords(
            vocabulary.names,
            {word: row for row, word in enumerate(vocabulary.names)},
            vocabulary.vectors,
            fit_word_scale(vocabulary.vectors, media),
            None if profiles is None or not len(profiles) else fit_word_scale(vocabulary.vectors, profiles),
        )

    def find_weakest(self, rows: WordRows, vectors: Floats, scale: WordScale, media: Ints) -> WeakestWords:
        """For each caption, the word least like its medium: a row of `vectors`, given by `media` (N,)."""
        gap, support = np.full((2, len(media)), np.nan, np.float32)
        word = np.full(len(media), -1, np.int64)
        captions = np.flatnonzero(rows.count)
        if not len(captions):
            return WeakestWords(gap, support, word)
        z = self._standardize(rows.word, vectors, np.repeat(media, rows.count), scale)
        first, size = rows.first[captions], rows.count[captions]
        lowest = np.minimum.reduceat(z, first)
        support[captions] = lowest
        gap[captions] = lowest - np.add.reduceat(z, first) / size
        position = np.flatnonzero(z == np.repeat(lowest, size))[::-1]  # the first of equal words is written last
        word[np.repeat(captions, size)[position]] = rows.word[position]
        return WeakestWords(gap, support, word)

    def _standardize(self, word: Ints, vectors: Floats, row: Ints, scale: WordScale) -> Floats:
        z = np.empty(len(word), np.float32)
        for start in range(0, len(z), _CHUNK):
            part = slice(start, start + _CHUNK)
            z[part] = np.einsum("md,md->m", self.vectors[word[part]], vectors[row[part]])
        return (z - scale.mean[word]) / scale.deviation[word]


def fit_word_scale(words: Floats, vectors: Floats, step: int = 4096) -> WordScale:
    """Mean and deviation of the cosines of each word (V, D) with a set of vectors (N, D)."""
    mean, deviation = np.empty(len(words), np.float32), np.empty(len(words), np.float32)
    for start in range(0, len(words), step):
        cosine = vectors @ words[start : start + step].T
        mean[start : start + step] = cosine.mean(axis=0)
        deviation[start : start + step] = np.maximum(cosine.std(axis=0), 1e-6)
    return WordScale(mean, deviation)

"""Whether the encoder can judge a corpus and each part of it, measured without labels.

Center the similarities of re-pairings by media and by captions. An encoder that understands both sides finds some of
them related, and their distribution has a right tail (`relatedness`, its skew), even if all captions are permuted. An
encoder that is blind to the media or to the language of the captions makes no tail, and pairs do not stand out from
re-pairings either (`separation`). Then dissimilar pairs are not evidence of mismatches: nothing can be known.

Parts are groups of a column (languages, caption sources), clusters of the captions, and clusters of the media: an
encoder can be blind to one language or one kind of picture. Estimates of small parts are shrunk toward their mean.
Equal captions count once. NumPy only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from auditor.score.statistics.rivals import PairEmbeddings, ReferenceSample
from auditor.score.statistics.topics import assign_topics, cluster_vectors
from auditor.vectors import Bools, Floats, Ints

RELATED, SEPARATE = 0.1, 1.3  # an encoder below both is blind to a part (tests/bench/competence.py)
PART_PAIRS, MOST_PARTS = 50, 32  # pairs per cluster, on average, and clusters of each side
LANGUAGE = "language"  # the column
MAIN_LANGUAGE = 0.9  # share of the pairs from which a language is that of the corpus
SMALLEST_PART = 20  # different captions below which a part is not measured by itself
SAMPLE = 640  # pairs compared with each other
BLOCKS = 10  # of the jackknife behind the intervals
WIDTH = 1.645  # standard errors to each end of a 90% interval
Pairs = TypeVar("Pairs", bound=PairEmbeddings)
ColumnValues = Mapping[str, Sequence[str | None]]  # column -> its value of each pair, None or empty if it has none


@dataclass(frozen=True, slots=True)
class Estimate:
    """A measure and its standard error."""

    value: float
    error: float

    def to_dict(self) -> dict[str, float]:
        low, high = self.value - WIDTH * self.error, self.value + WIDTH * self.error
        return {"value": round(self.value, 4), "low": round(low, 4), "high": round(high, 4)}


@dataclass(frozen=True, slots=True)
class Competence:
    """How well the encoder sees what some pairs are about."""

    pairs: int
    relatedness: Estimate  # skew of the centered similarities of re-pairings
    separation: Estimate  # median similarity of the pairs, in standard deviations above re-pairings
    parts: int = 1  # number of parts like this one: the fewer, the more different topics are in each
    example: str = ""  # a typical caption

    @property
    def blind(self) -> bool:
        return self.relatedness.value < RELATED * (1 + 1 / self.parts) and self.separation.value < SEPARATE

    def to_dict(self) -> dict[str, Any]:
        parts = {"relatedness": self.relatedness.to_dict(), "separation": self.separation.to_dict()}
        return {"pairs": self.pairs, **parts, "blind": self.blind, "example": self.example}


@dataclass(frozen=True)
class CompetenceMap:
    """Competence on the corpus as a whole and on its parts."""

    corpus: Competence | None  # None: too few pairs to measure
    clusters: dict[str, Floats] = field(default_factory=dict)  # text, visual: centroids (C, D)
    parts: dict[str, dict[str, Competence]] = field(default_factory=dict)  # of clusters: text, visual; then by name
    groups: dict[str, dict[str, Competence]] = field(default_factory=dict)  # by column, then by value
    has_one_language: bool = False  # whether all captions with a detected language are in the same one

    def find_judged(self, pairs: PairEmbeddings, columns: ColumnValues | None = None) -> Bools:
        """Which pairs the encoder can judge: no part that they belong to is one it is blind to."""
        readable = self.is_readable("text", pairs.text) & self.is_readable("visual", pairs.visual)
        for name in self.list_blind_columns():
            blind = {value for value, part in self.groups[name].items() if part.blind}
            readable &= np.array([value not in blind for value in (columns or {}).get(name, [None] * len(pairs))], bool)
        return np.asarray(readable)

    def list_blind_columns(self) -> list[str]:
        """The columns of which the encoder is blind to a group: `find_judged` needs their values."""
        return [name for name, groups in self.groups.items() if any(part.blind for part in groups.values())]

    def is_readable_language(self, languages: Sequence[str | None]) -> Bools:
        """Whether each caption is in a language that the encoder is known to read, whatever its cluster.

        A cluster of captions that say nothing looks as if the encoder were blind to it: none fits its own medium best.
        Captions too short to show their language are in that of the corpus, if it has one.
        """
        if self.corpus is None or self.corpus.blind:
            return np.zeros(len(languages), bool)
        if self.has_one_language:
            return np.ones(len(languages), bool)
        groups = self.groups.get(LANGUAGE, {})
        readable = {name: group.pairs for name, group in groups.items() if group.pairs and not group.blind}
        has_main_language = max(readable.values(), default=0) >= MAIN_LANGUAGE * self.corpus.pairs
        return np.array([name in readable if name else has_main_language for name in languages], bool)

    def is_readable(self, side: str, vectors: Floats) -> Bools:
        """Whether each vector is in a cluster that the encoder can judge."""
        blind = np.array([part.blind for part in self.parts.get(side, {}).values()], bool)
        if not blind.any():
            return np.ones(len(vectors), bool)
        return np.asarray(~blind[assign_topics(vectors, self.clusters[side])])

    def keep_judged(self, pairs: Pairs, rows: Ints) -> Pairs:
        """These pairs with the siblings that the encoder can read."""
        chosen = pairs if len(rows) == len(pairs) else pairs.take(rows)
        if chosen.siblings is None:
            return chosen
        return replace(chosen, siblings=chosen.siblings.select(self.is_readable("text", chosen.siblings.text)))

    def to_dict(self) -> dict[str, Any]:
        if self.corpus is None:
            return {}
        sides = {**self.groups, **self.parts}
        parts = {side: {name: part.to_dict() for name, part in parts.items()} for side, parts in sides.items()}
        return {**self.corpus.to_dict(), "parts": parts}


def measure_competence(reference: ReferenceSample, seed: int = 0, columns: ColumnValues | None = None) -> CompetenceMap:
    """Measure the competence on the reference, on groups by `columns`, on clusters of its captions, then of its media.

    Each is measured on what can be read so far, so that a blind language does not hide the captions and media it is
    mixed with.
    """
    distinct, generator = select_distinct(reference), np.random.default_rng(seed)
    corpus = compare_pairs(reference, distinct, generator)
    languages = {language for language in (columns or {}).get(LANGUAGE, ()) if language}
    competence = CompetenceMap(corpus, has_one_language=len(languages) == 1)
    if corpus is None:
        return competence
    for column, values in (columns or {}).items():
        rows = distinct[competence.find_judged(reference, columns)[distinct]]
        names, number = np.unique([values[row] or "" for row in rows], return_inverse=True)
        members = {str(name): rows[number == i] for i, name in enumerate(names) if name and len(names) > 1}
        if members:  # a single group is the corpus
            competence.groups[column] = compare_parts(reference, members, corpus, generator)
    for side in ("text", "visual"):
        rows = distinct[competence.find_judged(reference, columns)[distinct]]
        if not len(rows):  # rows of a part that was not measured are like the corpus
            competence.parts[side], competence.clusters[side] = {"0": corpus}, reference.text[:1]
            break
        vectors = getattr(reference, side)[rows]
        centroids = find_large_clusters(vectors, seed)
        cluster = assign_topics(vectors, centroids)  # members of the other clusters belong to the nearest large one
        members = {str(number): rows[cluster == number] for number in range(len(centroids))}
        competence.parts[side] = compare_parts(reference, members, corpus, generator)
        competence.clusters[side] = centroids
    return competence


def compare_parts(
    reference: ReferenceSample, members: Mapping[str, Ints], corpus: Competence, generator: np.random.Generator
) -> dict[str, Competence]:
    """Competence on parts with these rows, shrunk toward their mean."""
    measured = [compare_pairs(reference, rows, generator) for rows in members.values()]
    return dict(zip(members, shrink_parts(measured, corpus), strict=True))


def find_large_clusters(vectors: Floats, seed: int) -> Floats:
    """The centroids of the clusters that are large enough to be measured; of all, if none is."""
    count = min(MOST_PARTS, len(vectors) // PART_PAIRS) or 1
    centroids = cluster_vectors(vectors, count, rounds=10, seed=seed)
    large = np.bincount(assign_topics(vectors, centroids), minlength=count) >= SMALLEST_PART
    return centroids[large] if large.any() else centroids


def select_distinct(reference: ReferenceSample) -> Ints:
    """Rows whose captions occur only once or first; by their vectors, if the captions are not known."""
    if reference.captions:
        first = {caption: row for row, caption in reversed(list(enumerate(reference.captions)))}
        return np.sort(np.fromiter(first.values(), np.int64, len(first)))
    return np.sort(np.unique(np.round(reference.text, 5), axis=0, return_index=True)[1])


def compare_pairs(reference: ReferenceSample, rows: Ints, generator: np.random.Generator) -> Competence | None:
    """Competence on these pairs, each compared with the others; None if they are too few, or all of one medium."""
    if len(rows) < SMALLEST_PART or len(np.unique(reference.group[rows])) < 2:
        return None
    measured, rows = len(rows), generator.permutation(rows)[:SAMPLE]
    pairs = len(rows)
    similarity = reference.media.take(rows).similarity(reference.text[rows]).astype(np.float64)
    apart = reference.group[rows][:, None] != reference.group[rows][None]
    scaled = standardize_sides(similarity, apart)
    block = np.arange(pairs) * BLOCKS // pairs
    sums = [add_blocks(np.where(apart, scaled**power, 0), block) for power in range(4)]
    own = np.diagonal(scaled)
    relatedness = compute_skew(*(part.sum() for part in sums))
    left_out = [compute_skew(*(np.delete(np.delete(part, k, 0), k, 1).sum() for part in sums)) for k in range(BLOCKS)]
    median_error = 1.25 * float(own.std()) / np.sqrt(pairs)  # the jackknife fails for medians
    center = reference.text[rows].mean(axis=0)
    example = reference.captions[rows[int((reference.text[rows] @ center).argmax())]] if reference.captions else ""
    return Competence(
        measured,
        Estimate(relatedness, jackknife_error(left_out)),
        Estimate(float(np.median(own)), float(median_error)),
        example=" ".join(example.split())[:80],
    )


def standardize_sides(similarity: npt.NDArray[np.float64], apart: Bools, rounds: int = 2) -> npt.NDArray[np.float64]:
    """Similarities with mean 0 and deviation 1 over the re-pairings of each medium and of each caption.

    Otherwise hubs, and captions that all look alike to the encoder, would make a tail.
    """
    scaled = similarity.copy()
    counts = [np.maximum(apart.sum(axis=axis, keepdims=True), 1) for axis in (0, 1)]
    for step in range(2 * rounds):
        axis, count = step % 2, counts[step % 2]
        scaled -= np.where(apart, scaled, 0).sum(axis=axis, keepdims=True) / count
        spread = np.sqrt(np.where(apart, scaled**2, 0).sum(axis=axis, keepdims=True) / count)
        scaled /= np.maximum(spread, 1e-9)
    return scaled


def add_blocks(values: npt.NDArray[np.float64], block: Ints) -> npt.NDArray[np.float64]:
    """Sums over blocks of rows and columns, (BLOCKS, BLOCKS)."""
    first = np.searchsorted(block, np.arange(BLOCKS))
    return np.asarray(np.add.reduceat(np.add.reduceat(values, first, axis=0), first, axis=1), np.float64)


def compute_skew(count: float, total: float, squares: float, cubes: float) -> float:
    """The skew of values from their number and the sums of their powers."""
    mean = total / count
    variance = squares / count - mean**2
    third = cubes / count - 3 * mean * squares / count + 2 * mean**3
    return float(third / max(variance, 1e-12) ** 1.5)


def jackknife_error(left_out: Sequence[float]) -> float:
    return float(np.sqrt((BLOCKS - 1) * np.var(left_out)))


def shrink_parts(parts: Sequence[Competence | None], corpus: Competence) -> list[Competence]:
    """Estimates of parts shrunk toward their mean; a part that is too small has the mean, or the corpus's values."""
    known = [part or replace(corpus, pairs=0, example="") for part in parts]
    pairs = [part.pairs for part in known]
    separation = shrink_estimates([part.separation for part in known], pairs)
    relatedness = shrink_estimates([part.relatedness for part in known], pairs)
    return [
        replace(part, relatedness=related, separation=apart, parts=len(parts))
        for part, related, apart in zip(known, relatedness, separation, strict=True)
    ]


def shrink_estimates(estimates: Sequence[Estimate], pairs: Sequence[int]) -> list[Estimate]:
    """Estimates shrunk toward their mean as far as their variance is error; `pairs` of 0: nothing was measured."""
    if not sum(pairs):
        return list(estimates)
    values, errors = (np.array([getattr(estimate, name) for estimate in estimates]) for name in ("value", "error"))
    mean = float(np.average(values, weights=pairs))
    between = max(0.0, float(np.average((values - mean) ** 2 - errors**2, weights=pairs)))
    trust = np.where(np.array(pairs) > 0, between / np.maximum(between + errors**2, 1e-12), 0)
    shrunk = mean + trust * (values - mean)
    return [Estimate(float(value), float(error)) for value, error in zip(shrunk, errors * np.sqrt(trust), strict=True)]

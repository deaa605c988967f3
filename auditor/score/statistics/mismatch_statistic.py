"""The mismatch statistic behind p_mismatch: does this caption describe this medium, as a person would say?

It sums five kinds of evidence, each in standard deviations of random re-pairings of the corpus:

- the similarity of the pair;
- its rivals: how well either side fits other partners (a medium near every caption needs a higher similarity);
- the captions of the nearest media;
- the medium's other captions;
- the weakest word of the caption, compared with the medium and with its other captions.

The weights were chosen on human judgments and planted noise of one half of the photos (docs/results.md has the other
half). They depend on a corpus in two ways. If pairs that are not random still look unsure (wrong captions that are
related, right captions that are plain), rivals and single words mislead, and the captions of similar media are more
informative. If the similarities of matched pairs lie close together, the similarity decides and other evidence would
only add noise. Missing evidence (one caption per medium, one word, no text encoder) counts as zero. NumPy only.
"""

from collections.abc import Container, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from auditor.score.statistics.caption_agreement import (
    NeighborPool,
    NullCosines,
    SiblingProfile,
    average_cosines,
    build_neighbor_pool,
    build_sibling_profile,
    fit_null_cosines,
)
from auditor.score.statistics.mismatch_share import fit_score_mixture
from auditor.score.statistics.rivals import (
    Hubs,
    PairEmbeddings,
    PairMeasures,
    ReferenceSample,
    compare_captions,
    find_runs,
    measure_hubs,
)
from auditor.score.statistics.word_evidence import CorpusWords, Vocabulary, WeakestWords, WordRows, look_up_words
from auditor.vectors import Bools, Floats, Ints

WEIGHTS = {
    "similarity": 1.0,
    "rivals_visual": -0.3,
    "rivals_text": -0.3,
    "neighbours": 0.6,  # times the square of the mean trust: with a weak model, neighbors mislead
    "siblings": 1.6,
    "words": 0.15,
    "sibling_words": 0.45,
}
RIVAL_EVIDENCE, WORD_EVIDENCE = ("rivals_visual", "rivals_text"), ("words", "sibling_words")
SIBLING_EVIDENCE = ("siblings", "sibling_words")
CLEAR_CORPUS_EVIDENCE = (*RIVAL_EVIDENCE, "sibling_words")  # weights shrink if pairs look unsure
CLEAR = 0.65  # mean trust of the pairs that are not random from which a corpus counts as clear
WIDE = 0.7  # deviation of matched pairs over that of re-pairings below which the similarity needs less help
UNSURE_NEIGHBORS = 0.25  # extra weight of neighbors if no pair is clear
NO_GROUP = -(2**62)  # a group number that no medium has
LEAST_DEVIATION = 1e-6  # of evidence over re-pairings; anything smaller is rounding
CHUNK = 4096  # re-pairings measured at once
STANDARDIZING_MEDIA = 1024  # media over which words are standardized
Parts = dict[str, Floats]  # evidence on N pairs, by the names of WEIGHTS; NaN or no entry: no evidence


@dataclass(frozen=True, slots=True)
class EvidenceScale:
    """One kind of evidence: mean and deviation over random re-pairings, and the weight of one deviation.

    `typical` is the median of the corpus's pairs, in deviations.
    """

    mean: float
    deviation: float
    weight: float
    typical: float = 0.0


@dataclass(frozen=True)
class MismatchStatistic:
    """The fitted statistic of one kind of medium: turns the evidence on any pair into a score."""

    null_cosines: NullCosines
    pool: NeighborPool
    hubs: Hubs
    words: CorpusWords | None
    scales: Mapping[str, EvidenceScale]

    def standardize(self, parts: Parts) -> Parts:
        """Evidence in standard deviations above random re-pairings."""
        return {
            name: (parts[name] - np.float32(scale.mean)) / np.float32(scale.deviation)
            for name, scale in self.scales.items()
            if name in parts
        }

    def score(self, parts: Parts, without: Container[str] = ()) -> Floats:
        """Weighted sum of the standardized evidence: low is suspicious. Missing evidence counts as zero."""
        total = np.zeros(len(parts["similarity"]), np.float32)
        for name, z in self.standardize(parts).items():
            if name not in without:
                total += np.nan_to_num(np.float32(self.scales[name].weight) * z)
        return total

    def weigh(self, parts: Parts, names: Container[str]) -> Floats:
        """The sum of these kinds of evidence, with their weights: their part of the score."""
        return self.score(parts, [name for name in self.scales if name not in names])

    def to_dict(self) -> dict[str, Any]:
        """Scale and weight of each kind of evidence, for the manifest."""
        return {name: asdict(scale) for name, scale in self.scales.items()}


def gather_evidence(
    statistic: MismatchStatistic, pairs: PairEmbeddings, measured: PairMeasures
) -> tuple[Parts, WeakestWords | None]:
    """The evidence on pairs, and the words that fit least (None without a vocabulary).

    The captions of a medium must be adjacent: each medium is compared once.
    """
    visual, text = pairs.visual, pairs.text
    first, run = find_runs(pairs.group)
    nearest = statistic.pool.find_nearest(visual[first], pairs.group[first])
    parts = {
        "similarity": measured.similarity,
        "rivals_visual": measured.rivals_visual,
        "rivals_text": measured.rivals_text,
        "neighbours": statistic.pool.agreement(nearest, text, run),
    }
    profile = build_sibling_profile(pairs, statistic.null_cosines)
    if profile is not None:
        parts["siblings"] = profile.agreement(text, statistic.null_cosines.neutral)
    if statistic.words is None:
        return parts, None
    rows = look_up_words(pairs.captions, statistic.words.index)
    word_parts, weakest = gather_word_evidence(statistic.words, rows, visual, profile, np.arange(len(text)))
    return parts | word_parts, weakest


def compute_statistic(statistic: MismatchStatistic, pairs: PairEmbeddings, measured: PairMeasures) -> Floats:
    return statistic.score(gather_evidence(statistic, pairs, measured)[0])


def gather_word_evidence(
    words: CorpusWords, rows: WordRows, visual: Floats, profile: SiblingProfile | None, media: Ints
) -> tuple[Parts, WeakestWords]:
    """The word evidence on N captions; `media` (N,) is the row of the medium that each is compared with."""
    weakest = words.find_weakest(rows, visual, words.media_scale, media)
    parts = {"words": weakest.gap}
    if profile is not None and words.sibling_scale is not None:
        gap = words.find_weakest(rows, profile.vector, words.sibling_scale, media).gap
        parts["sibling_words"] = np.where(profile.mass[media] > 0, gap, np.float32(np.nan))
    return parts, weakest


@dataclass(frozen=True, slots=True)
class CrossValidation:
    """The fitted statistic, and its values on the reference's own pairs and on re-pairings (i, j)."""

    statistic: MismatchStatistic
    observed: Floats
    null: Floats
    i: Ints
    j: Ints
    without_siblings: tuple[Floats, Floats] | None  # observed and null without sibling evidence; None: no siblings


def cross_validate(
    reference: ReferenceSample,
    generator: np.random.Generator,
    draws: int,
    coverage: float,
    vocabulary: Vocabulary | None,
) -> CrossValidation:
    """Fit the statistic to the reference and evaluate it on pairs and re-pairings, leaving out each pair's own group.

    A caption that was swapped within the corpus has its true medium in the reference with a probability equal to the
    share of the corpus that the reference covers. That medium is then a strong rival, so re-pairings must meet their
    true media with the same probability.
    """
    i, j = draw_repairings(reference.group, generator, min(draws, 200 * len(reference)))
    evidence = ReferenceEvidence(reference, fit_null_cosines(reference, i, j), vocabulary, coverage)
    null = evidence.measure(i, j, generator)
    rows = np.arange(len(reference))
    observed = evidence.measure(rows, rows, generator)
    weights = adapt_weights(reference, evidence.pool.trust, observed["similarity"], null["similarity"])
    has_siblings = np.zeros(len(reference), bool)
    if evidence.profile is not None:
        has_siblings = evidence.profile.mass > 0
        few = float(np.sqrt(has_siblings.mean()))  # if few media have siblings, matched ones are not known well
        weights |= {name: weights[name] * few for name in SIBLING_EVIDENCE}
    scales = {}
    for name, values in null.items():
        valid = values[~np.isnan(values) & (has_siblings[i] if name in SIBLING_EVIDENCE else True)]
        if len(valid) and float(valid.std()) > LEAST_DEVIATION:
            mean, deviation = float(valid.mean()), float(valid.std())
            typical = (float(np.nanmedian(observed[name])) - mean) / deviation
            scales[name] = EvidenceScale(mean, deviation, weights[name], typical)
    statistic = MismatchStatistic(evidence.null_cosines, evidence.pool, evidence.hubs, evidence.words, scales)
    without = None
    if any(name in scales for name in SIBLING_EVIDENCE):
        without = statistic.score(observed, SIBLING_EVIDENCE), statistic.score(null, SIBLING_EVIDENCE)
    return CrossValidation(statistic, statistic.score(observed), statistic.score(null), i, j, without)


def adapt_weights(reference: ReferenceSample, trust: Floats, observed: Floats, null: Floats) -> dict[str, float]:
    """The weights for a corpus with this trust in its pairs and these similarities of pairs and of re-pairings."""
    mean, mixture = float(trust.mean()), fit_score_mixture(observed, null)
    matched = 1 - mixture.pi0 if mixture else 0.0
    unsure = 1 - min(1.0, mean / max(matched, 0.05) / CLEAR) ** 2
    clear_factor = 1 - unsure * (1 - estimate_hub_share(reference, null))
    weights = WEIGHTS | {name: WEIGHTS[name] * clear_factor for name in CLEAR_CORPUS_EVIDENCE}
    weights["neighbours"] = WEIGHTS["neighbours"] * mean**2 + UNSURE_NEIGHBORS * unsure
    support = min(1.0, mixture.deviation / max(float(null.std()), LEAST_DEVIATION) / WIDE) if mixture else 1.0
    return {name: weight * support for name, weight in weights.items()} | {"similarity": WEIGHTS["similarity"]}


def estimate_hub_share(reference: ReferenceSample, null: Floats) -> float:
    """Share of the variance of similarities that comes from hubs: media and captions that are near everything.

    Across a modality gap this share is large. Rivals then do not show that something fits better; subtracting them
    removes the effect of hubs.
    """
    media_variance = float((reference.visual @ reference.text.mean(axis=0)).var())
    text_variance = float((reference.text @ reference.visual.mean(axis=0)).var())
    return min(1.0, (media_variance + text_variance) / max(float(null.var()), 1e-12))


def subsample_vectors(vectors: Floats) -> Floats:
    """At most STANDARDIZING_MEDIA rows, evenly spaced."""
    return vectors[:: -(-len(vectors) // STANDARDIZING_MEDIA) or 1]


def draw_repairings(group: Ints, generator: np.random.Generator, draws: int) -> tuple[Ints, Ints]:
    """Random (medium, caption) rows of different groups: never a caption of the medium or of its duplicates."""
    i = generator.integers(0, len(group), draws)
    j = generator.integers(0, len(group), draws)
    apart = group[i] != group[j]
    return i[apart], j[apart]


class ReferenceEvidence:
    """Everything needed to measure pairs (i, j) of the reference, computed once for each of its rows."""

    def __init__(
        self, ref: ReferenceSample, null_cosines: NullCosines, vocabulary: Vocabulary | None, coverage: float
    ) -> None:
        self.reference, self.null_cosines, self.coverage = ref, null_cosines, coverage
        self.pool = build_neighbor_pool(ref, null_cosines)
        self.nearest = self.pool.find_nearest(ref.visual, ref.group)
        self.caption_cosines = ref.text @ self.pool.text.T  # (R, P)
        self.hubs = measure_hubs(ref)
        # similarity (R,) of captions to their rivals, with their own medium among them
        self.rivals_with_own = compare_captions(ref.text, np.full(len(ref), NO_GROUP), ref).rivals
        self.profile = build_sibling_profile(ref, null_cosines)
        self.words: CorpusWords | None = None
        if vocabulary is not None and vocabulary.names and ref.captions:
            media = subsample_vectors(ref.visual[find_runs(ref.group)[0]])
            profiles = None if self.profile is None else subsample_vectors(self.profile.vector[self.profile.mass > 0])
            self.words = CorpusWords.fit(vocabulary, media, profiles)
            self.word_rows = look_up_words(ref.captions, self.words.index)

    def measure(self, i: Ints, j: Ints, generator: np.random.Generator) -> Parts:
        """The evidence on media i paired with captions j."""
        swapped = self.reference.group[i] != self.reference.group[j]
        meets_own = (generator.random(len(i)) < self.coverage) & swapped
        chunks = [slice(start, start + CHUNK) for start in range(0, len(i), CHUNK)]
        parts = [self._measure_chunk(i[rows], j[rows], meets_own[rows]) for rows in chunks]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _measure_chunk(self, i: Ints, j: Ints, meets_own: Bools) -> Parts:
        ref = self.reference
        text = ref.text[j]
        parts = {
            "similarity": ref.media.take(i).own_similarity(text),
            "rivals_visual": self.hubs.visual[i],
            "rivals_text": np.where(meets_own, self.rivals_with_own[j], self.hubs.text[j]),
            "neighbours": average_cosines(self.caption_cosines[j[:, None], self.nearest.rows[i]], self.nearest, i),
        }
        if self.profile is not None:
            parts["siblings"] = self.profile.agreement(text, self.null_cosines.neutral, i)
        if self.words is not None:
            parts |= gather_word_evidence(self.words, self.word_rows.take(j), ref.visual, self.profile, i)[0]
        return parts

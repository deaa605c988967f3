"""The statistic behind p_mismatch: does this caption describe this medium, as a person would judge it?

Five kinds of evidence, each in deviations of random re-pairings of the corpus:

- the similarity of the two;
- their rivals: how well either side fits others (a medium near every caption needs more);
- the captions of the media nearest to this one;
- the medium's other captions;
- the weakest word of the caption, looked for in the medium and in its other captions.

The weights were chosen on people's judgements and planted noise of one half of the photos (docs/results.md has the
other half). They depend on a corpus in two ways. Where pairs that are not random still look unsure (wrong captions that
are related, right ones that are plain), rivals and single words mislead and the captions of similar media tell more.
Where the similarities of pairs that belong together lie close to each other, the similarity decides and all else would
only blur it. Whatever a corpus lacks (one caption each, one word, no text tower) counts for nothing. NumPy only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from auditor.score.statistics.caption_agreement import (
    Chance,
    Near,
    Neighbourhood,
    Profile,
    chance_of,
    neighbourhood,
    sibling_profile,
)
from auditor.score.statistics.mismatch_share import mixture_of
from auditor.score.statistics.rivals import Hubs, Measures, Reference, hubs_of, runs, standing_of_text
from auditor.score.statistics.word_evidence import Vocabulary, Weakest, WordRows, Words, word_rows
from auditor.vectors import Floats, Ints

WEIGHTS = {
    "similarity": 1.0,
    "rivals_visual": -0.3,
    "rivals_text": -0.3,
    "neighbours": 0.6,  # times the square of the mean trust: where the model is weak, neighbours mislead
    "siblings": 1.6,
    "words": 0.15,
    "sibling_words": 0.45,
}
OF_SIBLINGS = ("siblings", "sibling_words")
OF_CLEAR_PAIRS = ("rivals_visual", "rivals_text", "sibling_words")  # their weights shrink where pairs are not clear
CLEAR = 0.65  # mean trust of the pairs that are not random, from which on a corpus counts as clear
WIDE = 0.7  # deviation of right pairs over that of re-pairings, below which the similarity needs less help
UNSURE_NEIGHBOURS = 0.25  # what neighbours weigh besides where nothing is clear
NO_GROUP = -(2**62)  # a group that no medium has
CHUNK = 4096  # re-pairings measured at once
ASKED = 1024  # media that words are standardised over
Parts = dict[str, Floats]  # of N pairs each, by the names of WEIGHTS; NaN, or no entry, where there is no evidence


@dataclass(frozen=True, slots=True)
class Spread:
    """One kind of evidence: mean and deviation over random re-pairings, and what a deviation weighs."""

    mean: float
    deviation: float
    weight: float


@dataclass(frozen=True)
class Judge:
    """All that turns evidence of any pair of a kind into the statistic."""

    chance: Chance
    around: Neighbourhood
    hubs: Hubs
    words: Words | None
    spread: Mapping[str, Spread]

    def standardised(self, parts: Parts) -> Parts:
        """Evidence in deviations above random re-pairings."""
        return {
            name: (parts[name] - np.float32(spread.mean)) / np.float32(spread.deviation)
            for name, spread in self.spread.items()
            if name in parts
        }

    def score(self, parts: Parts) -> Floats:
        """The statistic: low is suspicious. Evidence that there is not counts for nothing."""
        total = np.zeros(len(parts["similarity"]), np.float32)
        for name, z in self.standardised(parts).items():
            total += np.nan_to_num(np.float32(self.spread[name].weight) * z)
        return total

    def to_dict(self) -> dict[str, Any]:
        """The weights of each kind of evidence, for the manifest."""
        return {name: {"mean": s.mean, "deviation": s.deviation, "weight": s.weight} for name, s in self.spread.items()}


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence on N pairs, and the word of each caption that the medium speaks for least."""

    parts: Parts
    weakest: Weakest | None = None  # where there are words


def gather(judge: Judge, pairs: Reference, measured: Measures) -> Evidence:
    """The evidence on pairs; media with several captions stand together, so that each is looked at once."""
    visual, text = pairs.visual, pairs.text
    parts = {
        "similarity": measured.similarity,
        "rivals_visual": measured.rivals_visual,
        "rivals_text": measured.rivals_text,
    }
    first, which = runs(pairs.group)
    profile = judge.around.profile(judge.around.near(visual[first], pairs.group[first]))
    parts["neighbours"] = np.einsum("nd,nd->n", profile[which], text)
    said = None
    if pairs.siblings is not None:
        said = sibling_profile(pairs.siblings, len(text), text.shape[1], judge.chance)
        parts["siblings"] = said.agreement(text, judge.chance.middle)
    if judge.words is None:
        return Evidence(parts)
    rows = word_rows(pairs.captions, judge.words.index)
    found, weakest = look_up(judge.words, rows, visual, said, np.arange(len(text)))
    return Evidence(parts | found, weakest)


def judged(judge: Judge, pairs: Reference, measured: Measures) -> Floats:
    """The statistic of pairs: low is suspicious."""
    return judge.score(gather(judge, pairs, measured).parts)


def look_up(words: Words, rows: WordRows, visual: Floats, said: Profile | None, media: Ints) -> tuple[Parts, Weakest]:
    """The evidence of words of N captions; `media` (N,) are the rows of what each is looked for in."""
    seen = words.weakest(rows, visual, words.of_media, media)
    parts = {"words": seen.gap}
    if said is not None and words.of_siblings is not None:
        gap = words.weakest(rows, said.vector, words.of_siblings, media).gap
        parts["sibling_words"] = np.where(said.mass[media] > 0, gap, np.float32(np.nan))
    return parts, seen


@dataclass(frozen=True, slots=True)
class Trial:
    """The statistic of the reference's own pairs and of re-pairings (i, j) of it."""

    judge: Judge
    observed: Floats
    null: Floats
    i: Ints
    j: Ints
    alone: tuple[Floats, Floats] | None  # both without siblings, where there are some


def hold_trial(
    reference: Reference, generator: np.random.Generator, draws: int, coverage: float, vocabulary: Vocabulary | None
) -> Trial:
    """Measure what re-pairings look like, in the same way as pairs are.

    A caption swapped within the corpus meets its true medium in the reference as often as the reference covers
    the corpus; that medium is then a strong rival, so re-pairings must meet theirs as often.
    """
    i, j = repairings(reference.group, generator, min(draws, 200 * len(reference)))
    chance = chance_of(reference, i, j)
    bench = Bench.of(reference, chance, vocabulary, coverage)
    null = bench.evidence(i, j, generator)
    own = np.arange(len(reference))
    observed = bench.evidence(own, own, generator)
    weights = weights_for(reference, bench.around.trust, observed["similarity"], null["similarity"])
    spread = {}
    for name, found in null.items():
        known = found[~np.isnan(found)]
        if len(known) and float(known.std()) > 1e-9:
            spread[name] = Spread(float(known.mean()), float(known.std()), weights[name])
    judge = Judge(chance, bench.around, bench.hubs, bench.words, spread)
    alone = None
    if any(name in spread for name in OF_SIBLINGS):
        alone = judge.score(without_siblings(observed)), judge.score(without_siblings(null))
    return Trial(judge, judge.score(observed), judge.score(null), i, j, alone)


def without_siblings(parts: Parts) -> Parts:
    return {name: found for name, found in parts.items() if name not in OF_SIBLINGS}


def weights_for(reference: Reference, trust: Floats, observed: Floats, null: Floats) -> dict[str, float]:
    """The weights for a corpus with this trust in its pairs, and these similarities of pairs and of re-pairings."""
    mean, mixture = float(trust.mean()), mixture_of(observed, null)
    belong = 1 - mixture.pi0 if mixture else 0.0
    unsure = 1 - min(1.0, mean / max(belong, 0.05) / CLEAR) ** 2
    counted = 1 - unsure * (1 - hub_share(reference, null))
    weights = {name: weight * (counted if name in OF_CLEAR_PAIRS else 1.0) for name, weight in WEIGHTS.items()}
    weights["neighbours"] = WEIGHTS["neighbours"] * mean**2 + UNSURE_NEIGHBOURS * unsure
    beside = min(1.0, mixture.deviation / float(null.std()) / WIDE) if mixture else 1.0
    return {name: weight * (1.0 if name == "similarity" else beside) for name, weight in weights.items()}


def hub_share(reference: Reference, null: Floats) -> float:
    """How much of the spread of similarities comes from media and captions that are near everything, 0 to 1.

    Across a modality gap most of it does, and then rivals do not say that something fits better: they take it off.
    """
    of_media = float((reference.visual @ reference.text.mean(axis=0)).var())
    of_text = float((reference.text @ reference.visual.mean(axis=0)).var())
    return min(1.0, (of_media + of_text) / max(float(null.var()), 1e-12))


def some(vectors: Floats) -> Floats:
    """At most ASKED of them, from everywhere."""
    return vectors[:: -(-len(vectors) // ASKED) or 1]


def repairings(group: Ints, generator: np.random.Generator, draws: int) -> tuple[Ints, Ints]:
    """Random (medium, caption) of different groups: not itself, no other caption of the medium, no duplicate."""
    i = generator.integers(0, len(group), draws)
    j = generator.integers(0, len(group), draws)
    apart = group[i] != group[j]
    return i[apart], j[apart]


@dataclass(frozen=True)
class Bench:
    """All that pairs (i, j) of the reference are measured with, computed once for each of its rows."""

    reference: Reference
    chance: Chance
    around: Neighbourhood
    near: Near
    profile: Floats  # (R, D) of the neighbours' captions
    said: Profile | None  # of the siblings
    hubs: Hubs
    with_own: Floats  # (R,) what captions reach with their rivals when their own medium is one of them
    words: Words | None
    rows: WordRows | None
    coverage: float

    @staticmethod
    def of(ref: Reference, chance: Chance, vocabulary: Vocabulary | None, coverage: float) -> "Bench":
        around = neighbourhood(ref, chance)
        near = around.near(ref.visual, ref.group)
        said = None
        if ref.siblings is not None:
            said = sibling_profile(ref.siblings, len(ref), ref.text.shape[1], chance)
        words = None
        if vocabulary is not None and vocabulary.names and ref.captions:
            heard = None if said is None else said.vector[said.mass > 0]
            words = Words.of(vocabulary, some(ref.visual[runs(ref.group)[0]]), None if heard is None else some(heard))
        hubs = hubs_of(ref)
        nobody = np.full(len(ref), NO_GROUP)
        return Bench(
            ref,
            chance,
            around,
            near,
            around.profile(near),
            said,
            hubs,
            standing_of_text(ref.text, nobody, ref, hubs.visual).rivals if coverage > 0 else hubs.text,
            words,
            None if words is None else word_rows(ref.captions, words.index),
            coverage,
        )

    def evidence(self, i: Ints, j: Ints, generator: np.random.Generator) -> Parts:
        met = (generator.random(len(i)) < self.coverage) & (self.reference.group[i] != self.reference.group[j])
        chunks = [slice(start, start + CHUNK) for start in range(0, len(i), CHUNK)]
        parts = [self._part(i[rows], j[rows], met[rows]) for rows in chunks]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _part(self, i: Ints, j: Ints, met: Any) -> Parts:
        ref = self.reference
        text = ref.text[j]
        parts = {
            "similarity": ref.media.take(i).own_similarity(text),
            "rivals_visual": self.hubs.visual[i],
            "rivals_text": np.where(met, self.with_own[j], self.hubs.text[j]),
            "neighbours": self._neighbours(i, j, text),
        }
        if self.said is not None:
            parts["siblings"] = self.said.agreement(text, self.chance.middle, i)
        if self.words is not None and self.rows is not None:
            parts |= look_up(self.words, self.rows.take(j), ref.visual, self.said, i)[0]
        return parts

    def _neighbours(self, i: Ints, j: Ints, text: Floats) -> Floats:
        """A swapped caption is not left behind: where it is among the neighbours' own, it does not count."""
        itself = self.around.rows[self.near.rows[i]] == j[:, None]
        weight = (self.near.weight[i] * itself).sum(axis=1)
        agreement: Floats = np.einsum("nd,nd->n", self.profile[i], text)
        without: Floats = (agreement - weight) / np.maximum(1 - weight, np.float32(1e-3))
        return without

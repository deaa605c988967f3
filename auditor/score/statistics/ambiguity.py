"""Ambiguity in terms that people understand: when does a caption or a medium fit too much of the corpus?

`matches_*` is the effective number of corpus items that fit equally well; `caption_share` is the share of the captions
that would contain all the words of one. Flags use these two with cuts that do not depend on the rest of the corpus: a
corpus without ambiguity has no flags, one full of it has many. `ambiguity_*` ranks by the entropy of what fits, with
hubs discounted, and adds for a caption how little its words say: it finds captions such as "A man", which every encoder
treats as a clear statement (tests/bench/ambiguity_flickr8k.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from auditor.score.statistics.rivals import PairMeasures
from auditor.score.statistics.word_evidence import WordFrequencies
from auditor.vectors import Floats, Ints

MISMATCH = 0.5  # more likely mismatched than not
MATCH_SHARE = 0.2  # of the corpus: clear captions and media stay below it (docs/results.md)
UNINFORMATIVE_CAPTION = 0.01  # caption_share: "a black dog" holds for this share of the photos of Flickr8k
FEWEST_MATCHES = 10.0  # smallest threshold: in a small corpus, a fifth is only a few items
VAGUENESS_NATS = 1.6  # weight of vagueness in the target of u: two deviations of the entropies of Flickr8k
VAGUENESS_WEIGHT, VAGUENESS_START = 2.0, 0.5  # weight of vagueness, and deviations from which a caption is vague


@dataclass(frozen=True, slots=True)
class MeanDeviation:
    """Mean and standard deviation of a measure over the reference."""

    mean: float
    deviation: float

    @staticmethod
    def fit(values: Floats) -> "MeanDeviation":
        return MeanDeviation(float(values.mean()), float(values.std())) if len(values) else MeanDeviation(0.0, 0.0)

    def z(self, values: Floats) -> Floats:
        if self.deviation < 1e-6:
            return np.zeros(len(values), np.float32)
        return np.asarray((values - self.mean) / self.deviation, np.float32)


@dataclass(frozen=True, slots=True)
class AmbiguityScale:
    """Mean and deviation of entropies and word information over the reference: the unit of ambiguity."""

    visual: MeanDeviation
    text: MeanDeviation
    bits: MeanDeviation  # of log(1 + bits)

    @staticmethod
    def fit(measured: PairMeasures, bits: Floats) -> "AmbiguityScale":
        return AmbiguityScale(
            MeanDeviation.fit(measured.entropy_visual),
            MeanDeviation.fit(measured.entropy_text),
            MeanDeviation.fit(np.log1p(bits)),
        )

    def score_media(self, measured: PairMeasures) -> Floats:
        return self.visual.z(measured.entropy_visual)

    def score_captions(self, measured: PairMeasures, bits: Floats) -> Floats:
        """Captions with less information than usual are vaguer; more information does not make them clearer."""
        vagueness = score_vagueness(self.bits, bits)
        return np.asarray(self.text.z(measured.entropy_text) + np.float32(VAGUENESS_WEIGHT) * vagueness, np.float32)


def score_vagueness(scale: MeanDeviation, bits: Floats) -> Floats:
    """How far captions are below the usual information, in deviations; `scale` is that of log(1 + bits)."""
    return np.asarray(np.maximum(-scale.z(np.log1p(bits)) - np.float32(VAGUENESS_START), 0), np.float32)


def measure_vagueness(captions: Sequence[str], groups: Ints) -> Floats:
    """What the words of captions add to their entropies, in nats, as part of the target of u.

    That is the logarithm of the number of items of this sample that the words fit: those with the same caption, or
    those that would contain all its words. If that is less, how far it is below the usual information counts.
    """
    bits = WordFrequencies.count(captions).bits(captions)
    media: dict[str, set[int]] = {}
    for caption, group in zip(captions, groups.tolist(), strict=True):
        media.setdefault(caption, set()).add(group)
    repeats = np.log(np.array([len(media[caption]) for caption in captions], np.float32))
    matches = np.log(len(captions)) - np.log(2) * bits
    vagueness = VAGUENESS_NATS * score_vagueness(MeanDeviation.fit(np.log1p(bits)), bits)
    return np.asarray(np.maximum.reduce([repeats, matches, vagueness]), np.float32)


def compute_absolute_thresholds(media: Mapping[str, int], captions: Mapping[str, int]) -> dict[str, Any]:
    """The thresholds of the flags for a corpus with these numbers of media and captions of each kind."""

    def choose(counts: Mapping[str, int]) -> float | dict[str, float] | None:
        return collapse_single_kind({kind: max(FEWEST_MATCHES, MATCH_SHARE * n) for kind, n in counts.items()})

    return {
        "mismatch": MISMATCH,
        "ambiguous_visual": choose(captions),
        "ambiguous_text": choose(media),
        "caption_share": max(UNINFORMATIVE_CAPTION, min(1.0, FEWEST_MATCHES / max(1, sum(captions.values())))),
    }


def compute_share_thresholds(visual: Mapping[str, Floats], text: Mapping[str, Floats], top: float) -> dict[str, Any]:
    """Thresholds that flag the most ambiguous share `top` of each kind, from the ambiguity of a random sample."""
    thresholds: dict[str, Any] = {"mismatch": MISMATCH}
    for name, sample in (("ambiguity_visual", visual), ("ambiguity_text", text)):
        cuts = {kind: float(np.quantile(values, 1 - top)) for kind, values in sample.items() if len(values)}
        thresholds[name] = collapse_single_kind(cuts)
    return thresholds


def collapse_single_kind(cuts: Mapping[str, float]) -> float | dict[str, float] | None:
    """The threshold of each kind; a plain number if the corpus has only one kind."""
    return next(iter(cuts.values()), None) if len(cuts) < 2 else dict(cuts)

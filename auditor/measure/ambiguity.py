"""Ambiguity in words a person understands: when does a caption or a medium fit too much of the corpus?

`matches_*` is the effective number of corpus items that fit as well; `ambiguity_*` ranks by the entropy of what fits,
with hubs discounted, and adds for a caption how little its words say. The first predicts retrieval errors, the second
finds captions such as "A man", which every encoder takes for a clear statement (tests/bench/ambiguity_flickr8k.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from auditor.measure.rivals import Measures
from auditor.measure.words import content_words, document_frequencies
from auditor.vectors import Floats

MISMATCH = 0.5  # more likely mismatched than not
OUTLYING = 0.95  # of every twenty captions, the one that fits the most
VAGUE, SAYS_LITTLE = 2.0, 0.5  # weight of vagueness, from so many deviations above the mean


@dataclass(frozen=True, slots=True)
class Frequencies:
    """How many of the captions of a sample hold each word."""

    counts: dict[str, int]
    captions: int

    @staticmethod
    def of(captions: Iterable[str]) -> "Frequencies":
        known = list(captions)
        return Frequencies(document_frequencies(known), max(1, len(known)))

    def bits(self, captions: Sequence[str]) -> Floats:
        """How much the words of captions narrow down what is meant: the sum of log2(captions / captions with it)."""
        information = {word: float(np.log2(self.captions / count)) for word, count in self.counts.items()}
        rare = float(np.log2(max(2, self.captions)))
        found = [sum(information.get(word, rare) for word in content_words(caption)) for caption in captions]
        return np.array(found, np.float32)


@dataclass(frozen=True, slots=True)
class Level:
    """Mean and deviation of one number over the reference."""

    mean: float
    deviation: float

    @staticmethod
    def of(values: Floats) -> "Level":
        return Level(float(values.mean()), float(values.std())) if len(values) else Level(0.0, 0.0)

    def z(self, values: Floats) -> Floats:
        if self.deviation < 1e-6:
            return np.zeros(len(values), np.float32)
        found: Floats = ((values - self.mean) / self.deviation).astype(np.float32)
        return found


@dataclass(frozen=True, slots=True)
class AmbiguityScale:
    """What is usual in a corpus, from its reference: ambiguity counts deviations from it."""

    visual: Level
    text: Level
    bits: Level  # of log(1 + bits)

    @staticmethod
    def of(measured: Measures, bits: Floats) -> "AmbiguityScale":
        return AmbiguityScale(
            Level.of(measured.confusion_visual), Level.of(measured.confusion_text), Level.of(np.log1p(bits))
        )

    def of_visual(self, measured: Measures) -> Floats:
        return self.visual.z(measured.confusion_visual)

    def of_text(self, measured: Measures, bits: Floats) -> Floats:
        """Only captions that say less than usual are vague; that others say more makes them no clearer."""
        vague = np.maximum(-self.bits.z(np.log1p(bits)) - np.float32(SAYS_LITTLE), 0)
        found: Floats = self.text.z(measured.confusion_text) + np.float32(VAGUE) * vague
        return found

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def default_thresholds(visual: Mapping[str, Floats], text: Mapping[str, Floats]) -> dict[str, Any]:
    """The thresholds of the flags, from the ambiguity of a random sample of each kind."""
    return {"mismatch": MISMATCH, "ambiguity_visual": by_kind(visual), "ambiguity_text": by_kind(text)}


def by_kind(ambiguity: Mapping[str, Floats]) -> float | dict[str, float] | None:
    """The cut of each kind; a plain number where the corpus has only one."""
    cuts = {kind: float(np.quantile(values, OUTLYING)) for kind, values in ambiguity.items() if len(values)}
    return next(iter(cuts.values()), None) if len(cuts) < 2 else cuts

"""Ambiguity in words a person understands: when does a caption or a medium fit too much of the corpus?

`matches_*` is the effective number of corpus items that fit as well; `caption_share` is the share of the captions that
would hold all the words of one. Flags go by these two, at cuts that do not depend on what else is in the corpus: a
corpus without ambiguity has none, one full of it has many. `ambiguity_*` ranks by the entropy of what fits, with hubs
discounted, and adds for a caption how little its words say: it finds captions such as "A man", which every encoder
takes for a clear statement (tests/bench/ambiguity_flickr8k.py).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from auditor.score.statistics.rivals import Measures
from auditor.score.statistics.word_evidence import content_words, count_words, telling
from auditor.vectors import Floats

_FOREIGN = re.compile(r"[^\W\d_a-zA-Z]")
MISMATCH = 0.5  # more likely mismatched than not
FITS_MUCH = 0.2  # of the corpus: what an encoder says of a clear caption or medium stays below (docs/results.md)
SAYS_NOTHING = 0.01  # of the captions: "a black dog" holds for so many photos of Flickr8k
FEWEST = 10  # items: in a small corpus a fifth is nothing
VAGUE, SAYS_LITTLE = 2.0, 0.5  # weight of vagueness, from so many deviations above the mean


@dataclass(frozen=True, slots=True)
class Frequencies:
    """How many of the captions of a sample hold each word."""

    counts: dict[str, int]
    captions: int

    @staticmethod
    def of(captions: Iterable[str]) -> "Frequencies":
        counts, found = count_words(captions)
        return Frequencies(counts, max(1, found))

    def telling(self) -> list[str]:
        """The words that may say something about a picture."""
        return list(telling(self.counts, self.captions))

    def bits(self, captions: Sequence[str]) -> Floats:
        """How much the words of captions narrow down what is meant: the sum of log2(captions / captions with it)."""
        information = {word: float(np.log2(self.captions / count)) for word, count in self.counts.items()}
        rare = float(np.log2(max(2, self.captions)))
        found = [sum(information.get(word, rare) for word in content_words(caption)) for caption in captions]
        return np.array(found, np.float32)

    def share(self, captions: Sequence[str], bits: Floats | None = None) -> Floats:
        """Share of the corpus's captions that hold all words of these, were words independent: 2^-bits.

        NaN where a caption has no words but letters of a script in which they cannot be told apart. `bits` are those
        of the captions, where they are known.
        """
        found = np.exp2(-(self.bits(captions) if bits is None else bits)).astype(np.float32)
        for row in np.flatnonzero(found == 1).tolist():  # only these may have no words
            if not content_words(captions[row]) and _FOREIGN.search(captions[row]):
                found[row] = np.nan
        return found


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


def absolute_thresholds(media: Mapping[str, int], captions: Mapping[str, int]) -> dict[str, Any]:
    """The cuts of the flags for corpora with so many media and captions of each kind."""
    return {
        "mismatch": MISMATCH,
        "ambiguous_visual": by_kind({kind: much_of(count) for kind, count in captions.items()}),
        "ambiguous_text": by_kind({kind: much_of(count) for kind, count in media.items()}),
        "caption_share": max(SAYS_NOTHING, min(1.0, FEWEST / max(1, sum(captions.values())))),
    }


def much_of(count: int) -> float:
    """How many of so many items have to fit for a flag."""
    return max(float(FEWEST), FITS_MUCH * count)


def top_thresholds(visual: Mapping[str, Floats], text: Mapping[str, Floats], top: float) -> dict[str, Any]:
    """Cuts that flag the most ambiguous share of each kind, from the ambiguity of a random sample."""
    flagged = {"ambiguity_visual": visual, "ambiguity_text": text}
    cuts = {
        name: by_kind({kind: float(np.quantile(values, 1 - top)) for kind, values in found.items() if len(values)})
        for name, found in flagged.items()
    }
    return {"mismatch": MISMATCH, **cuts}


def by_kind(cuts: Mapping[str, float]) -> float | dict[str, float] | None:
    """The cut of each kind; a plain number where the corpus has only one."""
    return next(iter(cuts.values()), None) if len(cuts) < 2 else dict(cuts)

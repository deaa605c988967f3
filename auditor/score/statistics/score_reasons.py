"""The parts of a score and the defects of a caption in words. Nothing is measured here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from auditor.vectors import Floats

OFTEN = 10  # rows with the same caption, apart from case, punctuation and digits
LONGEST_SPAN = 60  # characters
CLEAR = 0.3  # of the score: less than this hardly moves p
# The kinds of evidence, the column that holds them, and whether they are weighted there -> sentences for and against.
SENTENCES = {
    (("similarity",), "similarity", False): (
        "caption and medium are clearly more similar than random pairs",
        "caption and medium are hardly more similar than random pairs",
    ),
    (("siblings",), "sibling_agreement", False): (
        "the medium's other captions agree",
        "the medium's other captions disagree",
    ),
    (("neighbours",), "neighbour_agreement", False): (
        "the captions of similar media agree",
        "the captions of similar media say something else",
    ),
    (("rivals_visual", "rivals_text"), "rival_evidence", True): (
        "few other captions and media of the corpus fit as well",
        "other captions or media of the corpus fit better",
    ),
    (("words", "sibling_words"), "word_evidence", True): (
        "even its weakest word, '{word}', is visible",
        "nothing in the medium looks like '{word}'",
    ),
}
NO_ESTIMATE = {
    "blind_encoder": "this model cannot tell such pairs from random ones; try another (`auditor encoders`) or certify",
    "too_few_pairs": "the corpus has too few different pairs of this kind",
}


@dataclass(frozen=True, slots=True)
class SiblingVotes:
    """How many of a medium's other captions agree with a caption."""

    agree: int
    total: int

    @staticmethod
    def count(text: Floats, siblings: Floats, neutral: float) -> "SiblingVotes":
        """Votes of other captions (S, D) on one caption (D,): a cosine of at least `neutral` agrees."""
        return SiblingVotes(int((siblings @ text >= neutral).sum()), len(siblings))

    def sentence(self) -> str:
        if self.total == 1:
            return f"the medium's other caption {'agrees' if self.agree else 'disagrees'}"
        if self.agree == self.total:
            return f"all {spell_number(self.total)} other captions of the medium agree"
        return f"{spell_number(self.total - self.agree)} of its {spell_number(self.total)} other captions disagree"


def list_reasons(
    row: Mapping[str, Any], votes: SiblingVotes | None = None, evidence: Mapping[str, Mapping[str, float]] | None = None
) -> list[str]:
    """One sentence for each part of the score that moved it, the strongest first.

    `evidence` are the scales of the parts in the manifest. A part speaks for a pair if it is nearer to the typical pair
    of the corpus than to a random one.
    """
    if row.get("no_estimate") in NO_ESTIMATE:
        return [NO_ESTIMATE[row["no_estimate"]]]
    parts = []
    for (names, column, weighted), (good, bad) in SENTENCES.items():
        scales = [scale for name in names if (scale := (evidence or {}).get(name))]
        value = row.get(column)
        if not scales or value is None or np.isnan(value):
            continue
        weight = scales[0]["weight"]
        if column == "similarity":
            value = (value - scales[0]["mean"]) / scales[0]["deviation"]
        middle = sum(scale["weight"] * scale.get("typical", 0) for scale in scales) / 2
        strength = (value if weighted else weight * value) - middle
        sentence = good if strength > 0 else bad
        if column == "sibling_agreement" and votes is not None and votes.total:
            sentence = votes.sentence()
        if abs(strength) >= CLEAR and sentence:
            parts.append((abs(strength), sentence.format(word=row.get("weakest_word"))))
    return [sentence for _, sentence in sorted(parts, reverse=True)]


def describe_caption_text(row: Mapping[str, Any]) -> list[str]:
    """What the text of a caption shows by itself: a defect and its span, a preamble, that the corpus repeats it."""
    sentences = []
    if row.get("looks_like"):
        sentences.append(f"defect of the caption: {row['looks_like']}, {shorten_span(row.get('looks_like_span'))!r}")
    if row.get("preamble"):
        sentences.append(f"the caption opens with {shorten_span(row['preamble'])!r}")
    if (row.get("caption_count") or 0) >= OFTEN:
        sentences.append(f"{row['caption_count']:,} rows of the corpus have this caption")
    return sentences


def shorten_span(span: str | None) -> str:
    text = span or ""
    return text if len(text) <= LONGEST_SPAN else f"{text[: LONGEST_SPAN - 3]}..."


def spell_number(number: int) -> str:
    names = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    return names[number] if number < len(names) else f"{number:,}"

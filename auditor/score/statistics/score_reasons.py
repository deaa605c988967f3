"""The parts of a score in words: the evidence for and against a pair. Nothing is measured here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from auditor.vectors import Floats

AGREES, DISAGREES = 1.5, 0.5  # standard deviations above random re-pairings
NOT_VISIBLE, VISIBLE = -0.5, 0.5  # standard deviations of a word's cosine over media


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


def list_reasons(row: Mapping[str, Any], votes: SiblingVotes | None = None) -> list[str]:
    """One sentence for each part of the score that is clear evidence."""
    siblings = votes.sentence() if votes is not None and votes.total else ""
    neighbors = describe_neighbors(row.get("neighbour_agreement"))
    word = describe_word(row.get("weakest_word"), row.get("word_support"))
    return [sentence for sentence in (siblings, neighbors, word) if sentence]


def describe_neighbors(agreement: float | None) -> str:
    if agreement is None or np.isnan(agreement):
        return ""
    if agreement >= AGREES:
        return "the captions of similar media agree"
    return "the captions of similar media say something else" if agreement <= DISAGREES else ""


def describe_word(name: str | None, support: float | None) -> str:
    if not name or support is None or np.isnan(support):
        return ""
    if support <= NOT_VISIBLE:
        return f"nothing in the medium looks like '{name}'"
    return f"even its weakest word, '{name}', is visible" if support >= VISIBLE else ""


def spell_number(number: int) -> str:
    names = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    return names[number] if number < len(names) else f"{number:,}"

"""The parts of a score in words: what speaks for a pair and what against it. NumPy only; nothing is measured here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from auditor.vectors import Floats

AGREES, DISAGREES = 1.5, 0.5  # deviations above random re-pairings
UNSEEN, SEEN = -0.5, 0.5  # of a word over media


@dataclass(frozen=True, slots=True)
class SiblingVotes:
    """How many of the other captions of a medium agree with one, by their similarity to it."""

    agree: int
    of: int

    @staticmethod
    def of_captions(text: Floats, others: Floats, middle: float) -> "SiblingVotes":
        """Of other captions (S, D) about one caption (D,)."""
        return SiblingVotes(int((others @ text >= middle).sum()), len(others))

    def sentence(self) -> str:
        if self.of == 1:
            return f"the medium's other caption {'agrees' if self.agree else 'disagrees'}"
        if self.agree == self.of:
            return f"all {counted(self.of)} other captions of the medium agree"
        return f"{counted(self.of - self.agree)} of its {counted(self.of)} other captions disagree"


def reasons(row: Mapping[str, Any], votes: SiblingVotes | None = None) -> list[str]:
    """One sentence for each part of the score that says something; none for rows of older audits."""
    found = [neighbours(row.get("neighbour_agreement")), word(row.get("weakest_word"), row.get("word_support"))]
    if votes is not None and votes.of:
        found.insert(0, votes.sentence())
    return [sentence for sentence in found if sentence]


def neighbours(agreement: float | None) -> str:
    if agreement is None or np.isnan(agreement):
        return ""
    if agreement >= AGREES:
        return "the captions of similar media agree"
    return "the captions of similar media say something else" if agreement <= DISAGREES else ""


def word(name: str | None, support: float | None) -> str:
    if not name or support is None or np.isnan(support):
        return ""
    if support <= UNSEEN:
        return f"nothing in the medium speaks for '{name}'"
    return f"even its weakest word, '{name}', is there to be seen" if support >= SEEN else ""


def counted(number: int) -> str:
    names = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    return names[number] if number < len(names) else f"{number:,}"

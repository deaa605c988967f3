"""The parts of a score in words."""

import math

import numpy as np

from auditor.score.statistics.score_reasons import SiblingVotes, neighbours, reasons, word


def test_votes_of_other_captions_in_words() -> None:
    assert SiblingVotes(1, 4).sentence() == "three of its four other captions disagree"
    assert SiblingVotes(4, 4).sentence() == "all four other captions of the medium agree"
    assert SiblingVotes(0, 1).sentence() == "the medium's other caption disagrees"
    caption, others = np.array([1.0, 0]), np.array([[1.0, 0], [0, 1.0], [0.8, 0.6]])
    assert SiblingVotes.of_captions(caption, others, 0.5) == SiblingVotes(2, 3)


def test_neighbours_and_words_speak_only_where_they_are_clear() -> None:
    assert neighbours(2.0) == "the captions of similar media agree"
    assert neighbours(0.0) == "the captions of similar media say something else"
    assert neighbours(1.0) == neighbours(None) == neighbours(math.nan) == ""
    assert word("guitar", -1.0) == "nothing in the medium speaks for 'guitar'"
    assert word("guitar", 0.0) == word(None, None) == word("guitar", math.nan) == ""


def test_reasons_of_a_row_and_of_one_of_an_older_audit() -> None:
    row = {"neighbour_agreement": 0.1, "weakest_word": "guitar", "word_support": -1.2}
    assert reasons(row, SiblingVotes(1, 4)) == [
        "three of its four other captions disagree",
        "the captions of similar media say something else",
        "nothing in the medium speaks for 'guitar'",
    ]
    assert reasons({"similarity": 0.3}) == []

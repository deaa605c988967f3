"""The parts of a score in words."""

import math

import numpy as np

from auditor.score.statistics.score_reasons import SiblingVotes, describe_neighbors, describe_word, list_reasons


def test_votes_of_other_captions_in_words() -> None:
    assert SiblingVotes(1, 4).sentence() == "three of its four other captions disagree"
    assert SiblingVotes(4, 4).sentence() == "all four other captions of the medium agree"
    assert SiblingVotes(0, 1).sentence() == "the medium's other caption disagrees"
    caption, others = np.array([1.0, 0]), np.array([[1.0, 0], [0, 1.0], [0.8, 0.6]])
    assert SiblingVotes.count(caption, others, 0.5) == SiblingVotes(2, 3)


def test_neighbors_and_words_are_reasons_only_if_they_are_clear() -> None:
    assert describe_neighbors(2.0) == "the captions of similar media agree"
    assert describe_neighbors(0.0) == "the captions of similar media say something else"
    assert describe_neighbors(1.0) == describe_neighbors(None) == describe_neighbors(math.nan) == ""
    assert describe_word("guitar", -1.0) == "nothing in the medium looks like 'guitar'"
    assert describe_word("guitar", 0.0) == describe_word(None, None) == describe_word("guitar", math.nan) == ""


def test_reasons_of_a_row_with_and_without_evidence() -> None:
    row = {"neighbour_agreement": 0.1, "weakest_word": "guitar", "word_support": -1.2}
    assert list_reasons(row, SiblingVotes(1, 4)) == [
        "three of its four other captions disagree",
        "the captions of similar media say something else",
        "nothing in the medium looks like 'guitar'",
    ]
    assert list_reasons({"similarity": 0.3}) == []

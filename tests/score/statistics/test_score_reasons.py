"""The parts of a score in words."""

import math

import numpy as np

from auditor.score.statistics.score_reasons import OFTEN, SiblingVotes, describe_caption_text, list_reasons

EVIDENCE = {
    "similarity": {"mean": 0.1, "deviation": 0.1, "weight": 1.0, "typical": 3.0},
    "siblings": {"mean": 0.0, "deviation": 0.1, "weight": 1.6, "typical": 3.0},
    "neighbours": {"mean": 0.0, "deviation": 0.1, "weight": 0.5, "typical": 2.0},
    "words": {"mean": 0.0, "deviation": 0.1, "weight": 0.15, "typical": 1.0},
}


def test_votes_of_other_captions_in_words() -> None:
    assert SiblingVotes(1, 4).sentence() == "three of its four other captions disagree"
    assert SiblingVotes(4, 4).sentence() == "all four other captions of the medium agree"
    assert SiblingVotes(0, 1).sentence() == "the medium's other caption disagrees"
    caption, others = np.array([1.0, 0]), np.array([[1.0, 0], [0, 1.0], [0.8, 0.6]])
    assert SiblingVotes.count(caption, others, 0.5) == SiblingVotes(2, 3)


def test_every_part_that_moves_p_is_named_with_the_strongest_first() -> None:
    row = {
        "similarity": 0.15,  # half a deviation where 3 are typical: 1 below the middle
        "sibling_agreement": -1.0,  # 1.6 times 2.5 below the middle
        "neighbour_agreement": 3.0,  # 1 above the middle
        "weakest_word": "guitar",
        "word_evidence": -0.6,
    }
    assert list_reasons(row, SiblingVotes(1, 4), EVIDENCE) == [
        "three of its four other captions disagree",
        "the captions of similar media agree",
        "caption and medium are hardly more similar than random pairs",
        "nothing in the medium looks like 'guitar'",
    ]


def test_parts_that_are_missing_or_hardly_move_p_are_not_named() -> None:
    row = {"similarity": 0.25, "neighbour_agreement": math.nan, "sibling_agreement": None, "word_evidence": 0.1}
    assert list_reasons(row, None, EVIDENCE) == []
    assert list_reasons({"similarity": 0.3}) == []


def test_a_pair_without_an_estimate_says_why() -> None:
    [reason] = list_reasons({"similarity": 0.3, "no_estimate": "blind_encoder"}, None, EVIDENCE)
    assert reason.startswith("this model cannot tell such pairs from random ones")


def test_defects_of_the_text_are_named_with_the_span_that_shows_them() -> None:
    row = {
        "looks_like": "loop",
        "looks_like_span": "a dog " * 50,
        "preamble": "The image shows",
        "caption_count": OFTEN,
    }
    defect, opening, count = describe_caption_text(row)
    assert (
        defect.startswith("defect of the caption: loop, 'a dog a dog") and defect.endswith("...'") and len(defect) < 100
    )
    assert (opening, count) == ("the caption opens with 'The image shows'", "10 rows of the corpus have this caption")
    assert describe_caption_text({"looks_like": None, "preamble": None, "caption_count": OFTEN - 1}) == []

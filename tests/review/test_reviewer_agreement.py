"""Cohen's kappa and the agreement of pairs of reviewers."""

import pytest

from auditor.review.reviewer_agreement import compare_reviewers, compute_kappa


def test_kappa_of_a_textbook_table() -> None:
    """20 times both yes, 15 times both no, 5 and 10 apart: 0.7 observed, 0.5 by chance, kappa 0.4."""
    first = ["good"] * 20 + ["good"] * 5 + ["bad"] * 10 + ["bad"] * 15
    second = ["good"] * 20 + ["bad"] * 5 + ["good"] * 10 + ["bad"] * 15
    assert compute_kappa(first, second) == pytest.approx(0.4)
    assert compute_kappa(["good", "bad"], ["bad", "good"]) == pytest.approx(-1)
    assert compute_kappa(["good"] * 3, ["good"] * 3) is None and compute_kappa([], []) is None


def test_only_rows_that_both_marked_count() -> None:
    said = {"ann": "gbgu", "ben": "gb.b", "cat": "....", "dan": "g..."}
    words = {"g": "good", "b": "bad", "u": "unsure"}
    marks = [
        {"reviewer": who, "uid": f"{row}", "caption_index": 0, "mark": words[letter]}
        for who, letters in said.items()
        for row, letter in enumerate(letters)
        if letter in words
    ]
    found = {(one.first, one.second): one for one in compare_reviewers(marks)}
    assert set(found) == {("ann", "ben"), ("ann", "dan"), ("ben", "dan")}
    assert found["ann", "ben"].rows == 3 and found["ann", "ben"].same == pytest.approx(2 / 3)
    assert found["ann", "dan"].kappa is None

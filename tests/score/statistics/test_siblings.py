"""Siblings: equal to those of a naive search, selected with their rows, concatenated across shards."""

import numpy as np

from auditor.score.statistics.siblings import (
    Siblings,
    collect_siblings,
    concatenate_siblings,
    merge_siblings,
    pair_sibling_rows,
)
from auditor.vectors import MediaVectors


def naive(group: np.ndarray) -> set[tuple[int, int]]:
    return {(i, j) for i in range(len(group)) for j in range(len(group)) if i != j and group[i] == group[j]}


def pairs_of(found: Siblings) -> list[tuple[int, float]]:
    return [(int(owner), float(found.similarity[row])) for owner, row in zip(found.owner, found.row, strict=True)]


def test_siblings_are_those_of_a_naive_search() -> None:
    group = np.random.default_rng(0).integers(0, 12, 40)
    owner, row = pair_sibling_rows(group)
    assert set(zip(owner.tolist(), row.tolist(), strict=True)) == naive(group) and (np.diff(owner) >= 0).all()
    owner, row = pair_sibling_rows(np.zeros(30, np.int64))  # limited for media with very many captions
    assert np.bincount(owner).tolist() == [8] * 30 and (owner != row).all()


def test_rows_take_their_siblings_along() -> None:
    group = np.array([0, 0, 1, 2, 2, 2])
    text = np.eye(6, dtype=np.float32)
    media = MediaVectors(text * np.arange(6, dtype=np.float32)[:, None])
    found = collect_siblings(group, media, text)
    assert found is not None
    assert sorted(pairs_of(found.take(np.array([5, 0])))) == [(0, 3.0), (0, 4.0), (1, 1.0)]
    assert collect_siblings(np.arange(6), media, text) is None


def test_parts_are_joined_in_order() -> None:
    text, similarity = np.eye(2, dtype=np.float32), np.array([0.1, 0.2], np.float32)
    part = Siblings(np.array([0, 1]), np.array([1, 0]), text, similarity)
    both = concatenate_siblings([part, None, part], [2, 3, 2])
    assert both is not None
    assert both.owner.tolist() == [0, 1, 5, 6] and both.row.tolist() == [1, 0, 3, 2] and len(both.text) == 4
    assert concatenate_siblings([None, None], [1, 1]) is None


def test_merged_siblings_are_those_of_both_records() -> None:
    text = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    numbers = np.arange(6, dtype=np.float32)
    one = Siblings(np.array([0, 0, 2]), np.array([1, 2, 0]), text[:3], numbers[:3])
    other = Siblings(np.array([0, 1]), np.array([0, 2]), text[3:], numbers[3:])
    merged = merge_siblings(one, other)
    assert merged.owner.tolist() == [0, 0, 0, 1, 2]
    np.testing.assert_array_equal(merged.text[merged.row], text[[1, 2, 3, 5, 0]])
    assert merged.similarity[merged.row].tolist() == [1, 2, 3, 5, 0]
    assert merge_siblings(None, other) is other

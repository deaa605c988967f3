"""Matches between two corpora: exact matches by name, near matches by cosine."""

import numpy as np

from auditor.score.statistics.corpus_overlap import OtherCorpus, find_nearest_vectors, match_vectors, normalize_words
from tests.support.pairs import normalize_rows


def test_the_nearest_equals_brute_force() -> None:
    chance = np.random.default_rng(0)
    ours, theirs = normalize_rows(chance.normal(size=(700, 16))), normalize_rows(chance.normal(size=(300, 16)))
    place, cosine = find_nearest_vectors(ours, theirs)
    similar = ours @ theirs.T
    assert (place == similar.argmax(axis=1)).all()
    np.testing.assert_allclose(cosine, similar.max(axis=1), rtol=1e-5)
    assert find_nearest_vectors(ours, theirs[:0])[0].tolist() == [-1] * 700


def test_exact_matches_go_before_near_ones() -> None:
    vectors = normalize_rows(np.eye(4))
    others = normalize_rows(np.eye(4)[[1, 1, 2]] + np.array([[0, 0, 0, 0.1]]))
    place, exact, cosine = match_vectors(vectors, others, ["a", "b", "c", "d"], ["x", "b", "b"], threshold=0.9)
    assert place.tolist() == [-1, 1, 2, -1]  # b matches the second exactly, although the first is equally near
    assert exact.tolist() == [0, 1, 0, 0]
    assert cosine[1] == 1.0 and 0.9 < cosine[2] < 1.0


def test_captions_are_compared_by_their_words() -> None:
    assert normalize_words("  A dog,  running! ") == normalize_words("a DOG running.") == "a dog running"
    assert normalize_words("a dog") != normalize_words("a dog runs")


def test_a_narrow_cone_needs_a_higher_cosine() -> None:
    chance = np.random.default_rng(0)
    wide, narrow = normalize_rows(chance.normal(size=(500, 32))), normalize_rows(10 + chance.normal(size=(500, 32)))
    marks = np.arange(500)
    assert (
        OtherCorpus(wide, marks, wide, ()).media_cosine() < 0.9 < OtherCorpus(narrow, marks, narrow, ()).media_cosine()
    )

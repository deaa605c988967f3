"""Groups of duplicates: by bytes, by embedding, in any order, and by the index as by brute force."""

import numpy as np
import pytest

from auditor.measure.duplicates import default_threshold, duplicate_groups
from auditor.vectors import Floats
from tests.support.pairs import unit


def corpus(count: int, copies: int, seed: int = 0, dim: int = 48) -> tuple[Floats, np.ndarray]:
    """Clustered vectors, the last of them near copies of others; returns the sources of the copies too."""
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(20, dim))
    vectors = unit(centres[generator.integers(20, size=count)] + 1.2 * generator.normal(size=(count, dim)))
    source = generator.choice(count - copies, copies, replace=False)
    vectors[-copies:] = unit(vectors[source] + 0.1 * unit(generator.normal(size=(copies, dim))))
    return vectors, source


def different(count: int) -> list[str]:
    return [f"{i:032x}" for i in range(count)]


def partition(first: np.ndarray) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(first == one).tolist()) for one in np.unique(first)}


def test_equal_bytes_are_one_even_without_vectors() -> None:
    assert duplicate_groups(None, ["a", "b", "a", None, None, "b"]).tolist() == [0, 1, 0, 3, 4, 1]


def test_near_copies_are_found_and_nothing_else() -> None:
    vectors, source = corpus(600, 40)
    first = duplicate_groups(vectors, different(600))
    assert (first[-40:] == source).all()
    assert (first[:-40] == np.arange(560)).all()


def test_bytes_and_vectors_join_into_one_group() -> None:
    vectors, source = corpus(100, 1)
    digests = different(100)
    digests[0], vectors[0] = digests[99], vectors[99]  # the same file as the near copy of `source`
    first = duplicate_groups(vectors, digests)
    assert first[0] == first[99] == first[source[0]] == 0


def test_groups_do_not_depend_on_the_order() -> None:
    vectors, _ = corpus(300, 60)
    order = np.random.default_rng(1).permutation(300)
    shuffled = duplicate_groups(vectors[order], [different(300)[i] for i in order])
    there = {frozenset(order[list(group)].tolist()) for group in partition(shuffled)}
    assert there == partition(duplicate_groups(vectors, different(300)))


def test_the_index_finds_what_brute_force_finds() -> None:
    pytest.importorskip("faiss")
    vectors, _ = corpus(3000, 300)
    exact = duplicate_groups(vectors, different(3000))
    assert (duplicate_groups(vectors, different(3000), all_pairs=0) == exact).all()
    assert (exact != np.arange(3000)).sum() == 300


def test_thousands_of_blank_images_are_one_group() -> None:
    blank = np.repeat(unit(np.ones((1, 16))), 5000, axis=0)
    assert not duplicate_groups(blank, different(5000)).any()


def test_a_model_with_a_narrow_cone_does_not_make_everything_a_copy() -> None:
    generator = np.random.default_rng(0)
    cone = unit(10 * np.ones(32) + generator.normal(size=(200, 32)))  # all cosines near 0.99
    assert (cone @ cone.T).min() > 0.96
    assert default_threshold(cone) > 0.999
    assert (duplicate_groups(cone, different(200)) == np.arange(200)).all()


def test_vectors_and_digests_must_agree() -> None:
    with pytest.raises(ValueError, match="2 vectors for 3 digests"):
        duplicate_groups(np.eye(2, dtype=np.float32), ["a", "b", "c"])

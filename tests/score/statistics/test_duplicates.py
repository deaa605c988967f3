"""Groups of duplicates: by bytes and by embedding, in any order; cells give the same groups as brute force."""

import numpy as np

from auditor.score.statistics.duplicates import (
    CopyRule,
    assign_cells,
    choose_cell_count,
    estimate_copy_threshold,
    find_copies,
    fit_cells,
)
from auditor.vectors import Floats, Ints
from tests.support.duplicates import group_duplicates, list_cell
from tests.support.pairs import normalize_rows


def corpus(count: int, copies: int, seed: int = 0, dim: int = 48) -> tuple[Floats, np.ndarray]:
    """Clustered vectors, of which the last are near copies of others, and the sources of the copies."""
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(20, dim))
    vectors = normalize_rows(centres[generator.integers(20, size=count)] + 1.2 * generator.normal(size=(count, dim)))
    source = generator.choice(count - copies, copies, replace=False)
    vectors[-copies:] = normalize_rows(vectors[source] + 0.1 * normalize_rows(generator.normal(size=(copies, dim))))
    return vectors, source


def different(count: int) -> Ints:
    return np.arange(count)


def partition(first: np.ndarray) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(first == group).tolist()) for group in np.unique(first)}


def test_equal_bytes_are_one_group_whatever_their_vectors() -> None:
    marks = np.array([7, 8, 7, 1, 2, 8])
    assert group_duplicates(np.eye(6, dtype=np.float32), marks).tolist() == [0, 1, 0, 3, 4, 1]


def test_near_copies_are_found_and_nothing_else() -> None:
    vectors, source = corpus(600, 40)
    first = group_duplicates(vectors, different(600))
    assert (first[-40:] == source).all()
    assert (first[:-40] == np.arange(560)).all()


def test_bytes_and_vectors_join_into_one_group() -> None:
    vectors, source = corpus(100, 1)
    marks = different(100)
    marks[0], vectors[0] = marks[99], vectors[99]  # the same file as the near copy of `source`
    first = group_duplicates(vectors, marks)
    assert first[0] == first[99] == first[source[0]] == 0


def test_groups_do_not_depend_on_the_order() -> None:
    vectors, _ = corpus(300, 60)
    order = np.random.default_rng(1).permutation(300)
    shuffled = group_duplicates(vectors[order], different(300)[order])
    regrouped = {frozenset(order[list(group)].tolist()) for group in partition(shuffled)}
    assert regrouped == partition(group_duplicates(vectors, different(300)))


def test_cells_find_what_brute_force_finds() -> None:
    vectors, _ = corpus(3000, 300)
    exact = group_duplicates(vectors, different(3000))
    cells = fit_cells(vectors, 50)
    assert len(cells) == 50
    assert (group_duplicates(vectors, different(3000), cells=cells) == exact).all()
    assert (exact != np.arange(3000)).sum() == 300


def test_a_medium_is_at_home_once_and_a_guest_only_near_a_border() -> None:
    vectors, _ = corpus(2000, 10)
    cells = fit_cells(vectors, 30)
    number, cell, home = assign_cells(vectors, cells, 0.96)
    assert (number[home] == np.arange(2000)).all()
    assert (cell[home] == (vectors @ cells.T).argmax(axis=1)).all()
    assert 0 < (~home).sum() < 3 * 2000
    tight = assign_cells(vectors, cells, 1.0)[2]
    assert tight.sum() == len(tight)  # identical copies are in one cell


def test_guests_meet_residents_but_not_each_other() -> None:
    vectors = np.repeat(normalize_rows(np.ones((1, 8))), 4, axis=0) + np.eye(4, 8, dtype=np.float32) * 0.01
    vectors = normalize_rows(vectors)
    home = np.array([True, False, False, False])
    rule = CopyRule(0.99, 0.99, None)
    assert find_copies(list_cell(vectors, different(4), home), rule).tolist() == [[0, 1], [0, 2], [0, 3]]
    assert not len(find_copies(list_cell(vectors, different(4), np.zeros(4, bool)), rule))


def test_few_media_are_one_cell_and_many_are_many() -> None:
    assert choose_cell_count(20_000) == 1
    assert 100 < choose_cell_count(50_000) < choose_cell_count(10_000_000) < 10_000


def test_thousands_of_blank_images_are_one_group() -> None:
    blank = np.repeat(normalize_rows(np.ones((1, 16))), 5000, axis=0)
    assert not group_duplicates(blank, different(5000)).any()


def test_a_model_with_a_narrow_cone_does_not_make_everything_a_copy() -> None:
    generator = np.random.default_rng(0)
    cone = normalize_rows(10 * np.ones(32) + generator.normal(size=(200, 32)))  # all cosines near 0.99
    assert (cone @ cone.T).min() > 0.96
    assert estimate_copy_threshold(cone) > 0.999
    assert (group_duplicates(cone, different(200)) == np.arange(200)).all()

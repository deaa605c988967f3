"""Groups of duplicates: by bytes and by embedding, in any order; cells give the same groups as brute force."""

import tracemalloc

import numpy as np

from auditor.score.statistics.duplicates import (
    CellMedia,
    CopyRule,
    assign_cells,
    choose_cell_count,
    choose_representatives,
    estimate_copy_threshold,
    find_copies,
    find_near,
    find_near_residents,
    fit_axes,
    fit_cells,
    link_groups,
    sketch_vectors,
)
from auditor.score.statistics.picture_match import compare_pictures
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


def test_of_two_copies_one_is_always_in_the_cell_of_the_other() -> None:
    generator = np.random.default_rng(0)
    vectors = normalize_rows(generator.normal(size=(4000, 6)))
    copies = normalize_rows(vectors + 0.4 * normalize_rows(generator.normal(size=vectors.shape)))
    threshold = float((vectors * copies).sum(axis=1).min())
    cells = normalize_rows(generator.normal(size=(4, 6)))  # so few that no medium is in too many
    places = [np.zeros((4000, 4), int) for _ in range(2)]
    for rows, place in zip((vectors, copies), places, strict=True):
        number, cell, home = assign_cells(rows, cells, threshold)
        place[number, cell] = np.where(home, 2, 1)
    assert (places[0].argmax(axis=1) != places[1].argmax(axis=1)).sum() > 500
    assert ((places[0] * places[1]).max(axis=1) >= 2).all()
    assert places[0].astype(bool).mean() < 0.8  # and not because everything is everywhere


def test_guests_meet_residents_but_not_each_other() -> None:
    vectors = np.repeat(normalize_rows(np.ones((1, 8))), 4, axis=0) + np.eye(4, 8, dtype=np.float32) * 0.01
    vectors = normalize_rows(vectors)
    home = np.array([True, False, False, False])
    rule = CopyRule(0.99, 0.99, None)
    assert find_copies(list_cell(vectors, different(4), home), rule)[:, :2].tolist() == [[0, 1], [0, 2], [0, 3]]
    assert not len(find_copies(list_cell(vectors, different(4), np.zeros(4, bool)), rule))


def narrow_corpus(count: int, dim: int = 160, true_dim: int = 20) -> Floats:
    """Vectors with few true dimensions and some noise; the second half are near copies of the first."""
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(count, true_dim)) @ generator.normal(size=(true_dim, dim))
    vectors[count // 2 :] = vectors[: count // 2]
    return normalize_rows(vectors + 0.3 * generator.normal(size=(count, dim)))


def test_sketches_exclude_no_pair_that_is_near() -> None:
    vectors = narrow_corpus(900)
    axes = fit_axes(vectors[:450], 0.96)
    assert axes is not None and axes.shape == (160, 64)
    sketches, exact = sketch_vectors(vectors, axes), vectors @ vectors.T
    assert (sketches @ sketches.T >= exact - 1e-5).all()
    for limit in (0.96, 0.1):  # few candidates, which are compared one by one, and many
        row, column, cosine = find_near(vectors, sketches, np.arange(100, 400), slice(50, None), limit)
        expected = np.argwhere(exact[100:400, 50:] >= limit) + np.array([100, 50])
        margin = np.abs(exact[expected[:, 0], expected[:, 1]] - limit) > 1e-5  # rounding may decide the others
        assert set(map(tuple, expected[margin].tolist())) <= set(zip(row.tolist(), column.tolist(), strict=True))
        assert len(row) <= len(expected) + (~margin).sum() + 1
        assert np.allclose(cosine, exact[row, column], atol=1e-5)
    media = list_cell(vectors, different(900), np.ones(900, bool))
    copies = find_copies(media, CopyRule(0.96, 0.96, None), axes)
    assert len(copies) > 400 and (copies == find_copies(media, CopyRule(0.96, 0.96, None))).all()


def test_no_pair_of_a_resident_is_left_out() -> None:
    vectors = narrow_corpus(200)
    is_resident = np.random.default_rng(0).random(200) < 0.3
    for residents in (is_resident, np.ones(200, bool), np.zeros(200, bool)):
        row, column, _ = find_near_residents(vectors, vectors, residents, slice(50, 120), 20, 0.5)
        near = (vectors[50:120] @ vectors[20:].T >= 0.5) & (residents[50:120, None] | residents[20:])
        assert np.array_equal(np.column_stack([row, column]), np.argwhere(near) + np.array([50, 20]))


def test_vectors_have_no_sketches_that_would_exclude_little() -> None:
    vectors = normalize_rows(np.random.default_rng(0).normal(size=(2000, 320)))
    assert fit_axes(vectors, 0.96) is not None
    assert fit_axes(vectors, 0.5) is None  # the rest of a vector is longer than that
    assert fit_axes(narrow_corpus(900, dim=100)[:450], 0.96) is None  # nothing to save


def test_equal_rows_are_grouped_as_by_comparing_them() -> None:
    generator = np.random.default_rng(0)
    vectors = generator.integers(0, 2, (300, 4)).astype(np.float32)
    thumbnails = generator.integers(0, 2, (300, 1)).astype(np.uint8)
    media = CellMedia(vectors, thumbnails, different(300), different(300), np.ones(300, bool))
    rows = [tuple(row) for row in np.column_stack([vectors, thumbnails]).tolist()]
    assert media.group_equal().tolist() == [rows.index(row) for row in rows]


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


def test_a_member_is_near_its_representative_and_groups_do_not_chain() -> None:
    angles = np.radians([0, 14, 28, 42])  # each is near its neighbors only
    chain = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    rule = CopyRule(0.96, 0.96, None)
    media = list_cell(chain, different(4), np.ones(4, bool))
    edges = find_copies(media, rule)
    assert choose_representatives(4, edges).tolist() == [0, 0, 2, 2]


def test_a_copy_of_a_member_points_to_nobody() -> None:
    assert choose_representatives(4, np.array([[1, 2], [0, 1], [2, 3]])).tolist() == [0, 0, 2, 2]
    assert choose_representatives(3, np.zeros((0, 2), np.int64)).tolist() == [0, 1, 2]


def test_groups_of_different_cells_are_linked_if_the_representative_has_the_same_pixels() -> None:
    picture, other = (np.random.default_rng(seed).integers(0, 256, 1024).astype(np.uint8) for seed in range(2))
    thumbnails = np.stack([picture, picture, picture, other])
    edges = np.array([[0, 1, 1], [1, 2, 1], [2, 3, 1]])
    alone = choose_representatives(4, edges)
    assert alone.tolist() == [0, 0, 2, 2]
    links = link_groups(alone, edges, thumbnails, 0.9)
    assert links.tolist() == [[0, 2, 1]]
    assert not len(link_groups(alone, edges * [1, 1, 0], thumbnails, 0.9))
    assert choose_representatives(4, np.concatenate([edges, links])).tolist() == [0, 0, 0, 3]


def test_pixels_decide_between_near_media_and_the_cosine_if_they_cannot() -> None:
    picture, other = (np.random.default_rng(seed).integers(0, 256, 1024).astype(np.uint8) for seed in range(2))
    gray = np.full(1024, 128, np.uint8)
    near = normalize_rows(np.array([[1, 0.2, 0], [1, 0.2, 0.4], [1, 0.2, 0.1], [1, 0, 0], [1, 0.05, 0]]))
    media = list_cell(near, different(5), np.ones(5, bool), np.stack([picture, picture, other, gray, gray]))
    assert find_copies(media, CopyRule(0.99, 0.9, 0.64)).tolist() == [[0, 1, 1], [3, 4, 1]]
    assert find_copies(media, CopyRule(0.9999, 0.9, 0.64)).tolist() == [[0, 1, 1]]


def test_many_copies_are_one_group_although_few_candidates_are_compared() -> None:
    generator = np.random.default_rng(0)
    picture = generator.integers(0, 256, 1024).astype(np.int64)
    thumbnails = np.clip(picture + generator.integers(-2, 3, (60, 1024)), 0, 255).astype(np.uint8)
    vectors = normalize_rows(np.ones(16) + 0.1 * generator.normal(size=(60, 16)))
    media = list_cell(vectors, different(60), np.ones(60, bool), thumbnails)
    edges = find_copies(media, CopyRule(0.9, 0.8, 0.64))
    assert len(edges) == 59 and not edges[:, 0].any()


def test_in_a_crowd_of_pictures_that_look_alike_copies_need_equal_pixels_and_a_high_cosine() -> None:
    generator = np.random.default_rng(0)
    pattern = generator.integers(0, 256, 1024)
    thumbnails = np.clip(pattern + generator.normal(0, 30, (40, 1024)), 0, 255).astype(np.uint8)
    thumbnails[39] = thumbnails[0]
    vectors = normalize_rows(np.ones(16) + 0.2 * generator.normal(size=(40, 16)))
    vectors[39] = normalize_rows(vectors[:1] + 0.01)[0]
    assert compare_pictures(thumbnails[0], thumbnails[1:]).min() > 0.8  # copies, but for the others
    media = list_cell(vectors, different(40), np.ones(40, bool), thumbnails)
    assert find_copies(media, CopyRule(0.99, 0.8, 0.64)).tolist() == [[0, 39, 0]]
    vectors[39] = vectors[1]
    assert not len(find_copies(media, CopyRule(0.99, 0.8, 0.64)))


def test_equal_media_of_a_copy_point_to_its_representative_too() -> None:
    vectors = normalize_rows(np.array([[1, 0.0], [1, 0.1], [1, 0.1], [0, 1]]))
    edges = find_copies(list_cell(vectors, np.array([1, 2, 3, 2]), np.ones(4, bool)), CopyRule(0.99, 0.99, None))
    assert choose_representatives(4, edges).tolist() == [0, 0, 0, 0]


def test_media_near_many_borders_are_assigned_in_little_memory() -> None:
    generator = np.random.default_rng(0)
    center = generator.normal(size=256)
    media, cells = (normalize_rows(center + s * generator.normal(size=(n, 256))) for n, s in ((5000, 0.3), (64, 0.1)))
    tracemalloc.start()
    number, _, _ = assign_cells(media, cells, 0.93)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(number) == 16 * len(media)
    assert peak < 32 << 20  # 80 MB for a vector of each of these rows

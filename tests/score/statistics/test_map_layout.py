import numpy as np
import pytest

from auditor.score.statistics.map_layout import find_most_similar, find_nearest_others, fit_layout, pick_largest


def clustered(rows: int = 600, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    centres = np.random.default_rng(5).normal(size=(6, 32))
    generator = np.random.default_rng(seed)
    cluster = generator.integers(0, 6, rows)
    drawn = centres[cluster] + 0.7 * generator.normal(size=(rows, 32))
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32), cluster


def purity(position: np.ndarray, cluster: np.ndarray, among: np.ndarray, among_cluster: np.ndarray) -> float:
    distance = ((position[:, None] - among[None]) ** 2).sum(axis=-1)
    near = np.argsort(distance, axis=1, kind="stable")[:, 1:6]
    return float((among_cluster[near] == cluster[:, None]).mean())


def test_similar_vectors_lie_together_and_new_vectors_join_them() -> None:
    vectors, cluster = clustered()
    layout = fit_layout(vectors)
    assert purity(layout.position, cluster, layout.position, cluster) > 0.95
    others, of = clustered(seed=1)
    assert purity(layout.place(others), of, layout.position, cluster) > 0.95


def test_wide_vectors_join_similar_ones_and_themselves() -> None:
    """Vectors of more than 128 dimensions are placed by their principal components."""
    turned = np.linalg.qr(np.random.default_rng(2).normal(size=(300, 300)))[0].astype(np.float32)

    def long(seed: int) -> tuple[np.ndarray, np.ndarray]:
        vectors, cluster = clustered(seed=seed)
        noise = np.random.default_rng(seed).normal(scale=0.02, size=(len(vectors), 300 - 32))
        wide = np.concatenate([vectors, noise.astype(np.float32)], axis=1) @ turned
        return wide / np.linalg.norm(wide, axis=1, keepdims=True), cluster

    vectors, cluster = long(0)
    layout = fit_layout(vectors)
    assert layout.axes is not None and layout.axes.shape == (300, 128)
    others, of = long(1)
    assert purity(layout.place(others), of, layout.position, cluster) > 0.95
    own = np.abs(layout.place(vectors) - layout.position).sum(axis=1)
    moved = np.abs(layout.place(np.roll(vectors, 1, axis=0)) - layout.position).sum(axis=1)
    assert own.mean() < 0.1 * moved.mean()


def test_the_same_vectors_give_the_same_map() -> None:
    vectors, _ = clustered(200)
    assert (fit_layout(vectors).position == fit_layout(vectors).position).all()


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 4, 5, 13])
def test_few_vectors_and_equal_ones_have_a_place(rows: int) -> None:
    layout = fit_layout(np.repeat(clustered(1)[0], rows, axis=0))
    assert layout.position.shape == (rows, 2) and np.isfinite(layout.position).all()
    assert np.isfinite(fit_layout(clustered(20)[0][:rows]).position).all()


def test_neighbors_are_the_nearest_and_never_the_vector_itself() -> None:
    vectors, _ = clustered(300)
    near, _ = find_nearest_others(vectors, 7)
    similarity = vectors @ vectors.T
    np.fill_diagonal(similarity, -2)
    assert (np.sort(near, axis=1) == np.sort(np.argsort(-similarity, axis=1)[:, :7], axis=1)).all()
    assert find_most_similar(vectors[:2], vectors, 1)[0].tolist() == [[0], [1]]


def test_a_few_of_the_nearest_are_those_of_a_partition() -> None:
    vectors, _ = clustered(300)
    near, similarity = find_most_similar(vectors[:50], vectors, 5)
    few, found = pick_largest(vectors[:50] @ vectors.T, 5)
    assert (few == near).all() and np.allclose(found, similarity)

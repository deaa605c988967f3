import numpy as np
import pytest

from auditor.query import search_index
from auditor.query.search_index import find_nearest


def vectors(rows: int, width: int = 24, seed: int = 0) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=(rows, width))
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float16)


def by_brute_force(matrix: np.ndarray, query: np.ndarray, n: int, allowed: np.ndarray | None) -> list[int]:
    similarity = matrix.astype(np.float32) @ query
    places = np.arange(len(matrix)) if allowed is None else np.flatnonzero(allowed)
    return sorted(places.tolist(), key=lambda i: (-similarity[i], i))[:n]


@pytest.mark.parametrize("rows", [0, 1, 5, 2047, 2049, 9000])
@pytest.mark.parametrize("n", [1, 7, 50])
@pytest.mark.parametrize("masked", [False, True])
def test_the_same_as_brute_force(rows: int, n: int, masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_index, "CHUNK", 2 * search_index.BLOCK)  # several chunks, the last one short
    matrix, query = vectors(rows), vectors(1, seed=9)[0].astype(np.float32)
    allowed = np.random.default_rng(1).random(rows) < 0.4 if masked else None
    found = find_nearest(matrix, query, n, allowed)
    assert found.place.tolist() == by_brute_force(matrix, query, n, allowed)
    assert np.allclose(found.similarity, matrix[found.place].astype(np.float32) @ query, atol=1e-6)


def test_equal_vectors_come_in_the_order_they_are_stored() -> None:
    matrix = np.repeat(vectors(1), 5000, axis=0)
    found = find_nearest(matrix, matrix[0].astype(np.float32), 10, threads=3)
    assert found.place.tolist() == list(range(10))

"""Similarity to a target: both norms equal their definitions; codes find nearly the highest cosine."""

import pickle

import numpy as np
import pytest

from auditor.choose import target_similarity
from auditor.choose.target_similarity import (
    HighestCosine,
    TargetError,
    build_index,
    build_similarity,
    collect_target,
)
from auditor.vectors import Floats
from tests.support.stored import make_pairs, normalize_rows


def make_clusters(count: int, centers: int = 40, dim: int = 32, seed: int = 0) -> Floats:
    generator = np.random.default_rng(seed)
    middles = np.random.default_rng(7).normal(size=(centers, dim))
    vectors = middles[generator.integers(0, centers, count)] + 0.7 * generator.normal(size=(count, dim))
    return normalize_rows(vectors.astype(np.float32))


@pytest.fixture(scope="module")
def media() -> Floats:
    return make_clusters(1000, seed=1)


def test_both_norms_are_their_definitions(media: Floats) -> None:
    vectors = make_clusters(300, seed=2)
    cosines = media.astype(np.float64) @ vectors.T.astype(np.float64)
    target = collect_target([vectors[:100] * 3, vectors[100:]])  # lengths do not matter, parts neither
    np.testing.assert_allclose(build_similarity(target, "inf")(media), cosines.max(axis=1), atol=1e-6)
    np.testing.assert_allclose(build_similarity(target, "2")(media), np.sqrt((cosines**2).mean(axis=1)), atol=1e-6)


@pytest.mark.parametrize("dim", [33, 128])
def test_codes_find_nearly_the_highest_cosine(dim: int) -> None:
    vectors, visual = make_clusters(6000, dim=dim, seed=3), make_clusters(1000, dim=dim, seed=1)
    exact = (visual @ vectors.T).max(axis=1)
    np.testing.assert_allclose(HighestCosine(build_index(vectors))(visual), exact, atol=1e-6)
    measure = HighestCosine(build_index(vectors, whole=100))
    highest = measure(visual)
    assert (highest <= exact + 1e-6).all()
    assert np.mean(highest >= exact - 1e-6) > 0.8 and np.mean(exact - highest) < 0.003
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(measure))(visual), highest)


@pytest.mark.parametrize("whole", [100, 10**6])
def test_a_block_of_media_gives_the_same_as_each_alone(
    media: Floats, monkeypatch: pytest.MonkeyPatch, whole: int
) -> None:
    measure = HighestCosine(build_index(make_clusters(2000, seed=4), whole))
    together = measure(media)
    monkeypatch.setattr(target_similarity, "BLOCK", 17)
    np.testing.assert_allclose(measure(media), together, atol=1e-6)
    assert len(measure(media[:0])) == 0


def test_a_large_target_is_sampled_and_its_second_moment_is_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_similarity, "MOST_VECTORS", 500)
    parts = [make_pairs(400, 8, seed=seed)[0] for seed in range(5)]
    target, again = collect_target(parts), collect_target(parts)
    whole = np.concatenate(parts)
    assert (len(target.vectors), target.count) == (500, 2000)
    np.testing.assert_allclose(target.moment, whole.T @ whole / 2000, atol=1e-6)
    place = {vector.tobytes(): row for row, vector in enumerate(normalize_rows(whole))}
    parts_of_sample = np.bincount([place[vector.tobytes()] // 400 for vector in target.vectors], minlength=5)
    assert parts_of_sample.min() > 60  # 100 expected of each
    assert target.mark == again.mark != collect_target(parts[:2]).mark


def test_an_empty_target_is_refused() -> None:
    for parts in ([], [np.zeros((3, 4), np.float32)]):
        with pytest.raises(TargetError, match="the target is empty"):
            collect_target(parts)

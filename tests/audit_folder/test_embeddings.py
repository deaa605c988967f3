"""Columns of vectors become matrices for all chunks, offsets and gaps."""

import numpy as np
import pyarrow as pa

from auditor.audit_folder.embeddings import build_nullable_vectors, read_vector_matrix, widen_halves


def column(rows: int, seed: int = 0) -> tuple[pa.Array, np.ndarray]:
    given = np.random.default_rng(seed).normal(size=(rows, 4)).astype(np.float16)
    return build_nullable_vectors(given, np.ones(rows, bool)), given.astype(np.float32)


def test_chunks_and_slices_are_one_matrix() -> None:
    (first, one), (second, other) = column(5), column(3, seed=1)
    expected = np.concatenate([one[2:4], other])
    assert np.array_equal(read_vector_matrix(pa.chunked_array([first.slice(2, 2), second]), 4), expected)
    assert np.array_equal(read_vector_matrix(first.slice(1), 4), one[1:])
    assert read_vector_matrix(pa.chunked_array([], first.type), 4).shape == (0, 4)


def test_vectors_of_single_precision_are_read() -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(8, dtype=np.float32)), 4)
    assert np.array_equal(read_vector_matrix(vectors, 4), np.arange(8).reshape(2, 4))


def test_values_that_are_not_finite_become_zero() -> None:
    given = np.zeros((3, 4), np.float16)
    given[0, 1], given[1, 2], given[2, 3] = np.nan, np.inf, -np.inf
    found = read_vector_matrix(build_nullable_vectors(given, np.ones(3, bool)), 4)
    assert np.isfinite(found).all() and found[0, 1] == 0 and found[1, 2] > 1e30 > -1e30 > found[2, 3]
    half = np.full((2, 4), np.inf, np.float16)
    half[1] = -np.inf  # of which the sum is nothing at all
    assert np.isfinite(read_vector_matrix(build_nullable_vectors(half, np.ones(2, bool)), 4)).all()


def test_every_float16_number_is_widened_exactly() -> None:
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves)]
    widened = np.empty(len(halves), np.float32)
    widen_halves(halves, widened)
    assert np.array_equal(widened, halves.astype(np.float32))

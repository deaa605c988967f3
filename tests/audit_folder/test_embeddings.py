"""Columns of vectors become matrices for all chunks, offsets and gaps."""

import numpy as np
import pyarrow as pa

from auditor.audit_folder.embeddings import build_nullable_vectors, find_medium_starts, read_vector_matrix


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


def test_media_start_where_a_loop_over_rows_says_so() -> None:
    generator = np.random.default_rng(0)
    for _ in range(50):
        rows = int(generator.integers(0, 30))
        times = [None if value < 0 else float(value) for value in generator.integers(-2, 2, rows)]
        columns = {
            "status": generator.choice(["ok", "missing_caption"], rows),
            "caption_index": generator.integers(0, 3, rows),
            "start": pa.array(times, pa.float64()),
            "end": pa.array([time if time is None else time + 1 for time in times], pa.float64()),
            "key": np.sort(generator.integers(0, 4, rows)).astype(str),
        }
        facts, expected, last_medium = pa.table(columns), [], None
        for row in facts.to_pylist():
            medium = (row["key"], row["start"], row["end"])
            last_medium = None if row["caption_index"] == 0 else last_medium
            expected.append(row["status"] == "ok" and medium != last_medium)
            last_medium = medium if row["status"] == "ok" else last_medium
        assert find_medium_starts(facts).tolist() == expected

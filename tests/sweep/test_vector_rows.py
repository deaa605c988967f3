"""Rows of stored embeddings: which vectors are usable, and what is stored of them."""

import numpy as np
import pyarrow as pa
import pytest

from auditor.corpus.corpus_files import digest
from auditor.corpus.stored.vector_shard import ColumnRoles, StoredVectors
from auditor.sweep.vector_rows import (
    MISSING,
    NOT_FINITE,
    OTHER_WIDTH,
    ZERO,
    build_usable_column,
    check_vectors,
    complete_digests,
    read_row_texts,
)

DIM = 4
FINE = [[3.0, 0, 4, 0], [0, 0, 0, 2], [1, 1, 1, 1]]
BAD = [[0.0] * DIM, [1, np.nan, 0, 0], [np.inf, 0, 0, 0], [1e-8, 0, 0, 0], [1, 2, 3, 4], [1, 2, 3, 4]]
WIDTHS = np.array([*[DIM] * 7, 7, 0])
WRONG = [0, 0, 0, ZERO, NOT_FINITE, NOT_FINITE, ZERO, OTHER_WIDTH, MISSING]


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_vectors_are_kept_at_unit_length_where_they_can_be_used(kind: type) -> None:
    given = np.array([*FINE, *BAD], kind)
    before = given.copy()
    checked = check_vectors(StoredVectors(given, WIDTHS), DIM)
    assert checked.wrong.tolist() == WRONG
    assert np.array_equal(given, before, equal_nan=True)  # what was read is left alone
    ok = checked.wrong == 0
    column = build_usable_column(checked.vectors, ok)
    wanted = [(np.array(row, np.float32) / np.float32(np.linalg.norm(row))).astype(np.float16) for row in FINE]
    assert column.type == pa.list_(pa.float16(), DIM)
    assert column.to_pylist() == [*(row.tolist() for row in wanted), *[None] * len(BAD)]
    assert not column.values.to_numpy()[len(FINE) * DIM :].any()  # and nothing stands behind a null


def test_vectors_of_nearly_unit_length_are_those_of_a_division() -> None:
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(1500, 64)) * 10.0 ** generator.uniform(-5, 0, size=(1500, 64))
    lengths = 1 + 10.0 ** generator.uniform(-7, -2, 1500)
    halves = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True) * lengths[:, None]).astype(np.float16)
    single = halves.astype(np.float32)
    expected = (single / np.sqrt(np.einsum("nd,nd->n", single, single))[:, None]).astype(np.float16)
    checked = check_vectors(StoredVectors(halves, np.full(1500, 64)), 64)
    assert np.array_equal(checked.vectors, expected) and not checked.wrong.any()
    assert 100 < (expected == halves).all(axis=1).sum() < 1400


def test_a_usable_vector_of_an_unusable_row_is_not_kept() -> None:
    checked = check_vectors(StoredVectors(np.array(FINE, np.float32), np.full(3, DIM)), DIM)
    column = build_usable_column(checked.vectors, np.array([True, False, True]))
    assert column.null_count == 1 and column[1].as_py() is None
    assert not column.values.to_numpy()[DIM : 2 * DIM].any()


def test_media_without_a_digest_have_that_of_their_vector() -> None:
    checked = check_vectors(StoredVectors(np.array([*FINE, *BAD], np.float32), WIDTHS), DIM)
    known = np.full(len(WIDTHS), None, object)
    known[1] = known[4] = "ab" * 16
    found = complete_digests(known, checked).tolist()
    assert found[0] == digest(np.array([0.6, 0, 0.8, 0], np.float16).tobytes())
    assert found[2] == digest(np.full(4, 0.5, np.float16).tobytes())
    assert found[1] == found[4] == "ab" * 16
    assert found[3] is None and found[5:] == [None] * 4


def test_rows_without_a_key_are_named_by_their_number() -> None:
    table = pa.table({"text": ["a", " ", None, "b"], "key": pa.array(["x", None, "x", "000000102"])})
    texts = read_row_texts(table, ColumnRoles(captions=("text",), key="key"), 100)
    assert texts.keys.tolist() == ["x", "000000101", "x", "000000102"]
    assert texts.occurrence.tolist() == [0, 0, 1, 0]
    assert texts.captions.tolist() == ["a", None, None, "b"]
    assert texts.paths.tolist() == [None] * 4


def test_names_in_hex_are_taken_in_lower_case_and_no_others() -> None:
    given = ["ABCDEF01" * 4, "abcdef01" * 8, "no hex", "", None, "1" * 31, "A" * 32 + "\n"]
    table = pa.table({"text": [str(place) for place in range(len(given))], "uid": given, "sha256": given})
    texts = read_row_texts(table, ColumnRoles(captions=("text",), uid="uid", digest="sha256"), 0)
    assert texts.uids.tolist() == ["abcdef01" * 4, *[None] * 6]
    assert texts.digests.tolist() == ["abcdef01" * 4, "abcdef01" * 4, *[None] * 5]
    assert read_row_texts(table, ColumnRoles(captions=("text",)), 0).uids.tolist() == [None] * len(given)

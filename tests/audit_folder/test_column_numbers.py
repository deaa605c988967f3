"""Numbers are read from Arrow columns as pyarrow's own conversion reads them."""

import numpy as np
import pyarrow as pa
import pytest

from auditor.audit_folder.column_numbers import read_numbers

COLUMNS = [
    pa.chunked_array([[1, 2], [3]]),
    pa.chunked_array([], pa.float32()),
    pa.chunked_array([pa.array([1.5, None, 2.5], pa.float32()), pa.array([None], pa.float32())]),
    pa.chunked_array([pa.array([1, 2, None, 3], pa.uint8())[1:]]),  # an offset inside a byte of the validity bits
    pa.chunked_array([pa.array([None] * 20 + [2.5] * 3, pa.float64())[19:22]]),
    pa.chunked_array([pa.nulls(3, pa.float64())]),
    pa.chunked_array([pa.array([np.nan, None, 1.0])]),
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: f"{column.type} {len(column)}")
def test_numbers_are_those_of_pyarrow(column: pa.ChunkedArray) -> None:
    numbers, expected = read_numbers(column), column.to_numpy()
    np.testing.assert_array_equal(numbers, expected)
    assert numbers.dtype == expected.dtype

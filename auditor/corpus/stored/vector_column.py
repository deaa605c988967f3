"""A column of vectors in Parquet: lists or fixed-size lists of floats, a row of any width, or of none."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from auditor.corpus.shard import CorpusError


@dataclass(frozen=True, slots=True)
class VectorColumn:
    """A column of the table itself."""

    column: str

    def check(self, schema: pa.Schema, path: str) -> None:
        """CorpusError where the table has no such column, or one of something else."""
        if self.column not in schema.names:
            raise CorpusError(f"no column {self.column!r}: {path} has {', '.join(schema.names[:30])}")
        found = schema.field(self.column).type
        if not is_list(found) or not pa.types.is_floating(found.value_type):
            raise CorpusError(f"column {self.column!r} of {path} is {found}, not a list of floats")


def is_list(found: pa.DataType) -> bool:
    return bool(pa.types.is_list(found) or pa.types.is_large_list(found) or pa.types.is_fixed_size_list(found))


def vectors_of_column(column: pa.ChunkedArray, dim: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """(N, dim) with zeros where a row has another width, and the widths; 0 where a row is null or holds nulls."""
    lists = column.combine_chunks()
    lists = pa.concat_arrays(lists.chunks) if isinstance(lists, pa.ChunkedArray) else lists
    widths = row_widths(lists)
    flat = lists.flatten()  # of the rows that are not null
    numbers = flat.to_numpy(zero_copy_only=False)  # nulls inside become NaN, which is not finite
    values = np.zeros((len(lists), dim), numbers.dtype if numbers.dtype.kind == "f" else np.float32)
    right = widths == dim
    values[right] = numbers[np.repeat(right, widths)].reshape(-1, dim)
    return values, widths


def row_widths(lists: pa.Array) -> npt.NDArray[np.int64]:
    valid = lists.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_fixed_size_list(lists.type):
        return np.where(valid, lists.type.list_size, 0).astype(np.int64)
    return np.asarray(lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False), np.int64)


def first_width(lists: pa.Array) -> int:
    """The width most of some rows have; 0 where none has a vector."""
    widths = row_widths(lists)
    widths = widths[widths > 0]
    return int(np.bincount(widths).argmax()) if len(widths) else 0

"""Parquet files, read so that pyarrow's own threads never hold a Python object.

pyarrow reads ahead in threads of its own and lets go of the file there, some of them after the read has returned. Where
that file is a Python object, a process that is just then ending or collecting garbage dies of it. So a file on this
machine is opened by pyarrow, and one that only Python can read (behind fsspec) is read by the thread that asks.
"""

from collections.abc import Iterator, Sequence
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq


class PythonParquetFile(pq.ParquetFile):  # type: ignore[misc]
    """A Parquet file out of a Python file, read by nobody but the thread that asks."""

    def __init__(self, file: IO[bytes], **options: Any) -> None:
        super().__init__(file, pre_buffer=False, **options)

    def read(self, columns: Sequence[str] | None = None, **_: Any) -> pa.Table:
        return super().read(columns, use_threads=False)

    def read_row_group(self, i: int, columns: Sequence[str] | None = None, **_: Any) -> pa.Table:
        return super().read_row_group(i, columns, use_threads=False)

    def read_row_groups(self, row_groups: Sequence[int], columns: Sequence[str] | None = None, **_: Any) -> pa.Table:
        return super().read_row_groups(row_groups, columns, use_threads=False)

    def iter_batches(
        self,
        batch_size: int = 65536,
        row_groups: Sequence[int] | None = None,
        columns: Sequence[str] | None = None,
        **_: Any,
    ) -> Iterator[pa.RecordBatch]:
        yield from super().iter_batches(batch_size, row_groups, columns, use_threads=False)

"""Read Parquet files so that pyarrow's own threads never hold a Python object.

pyarrow reads ahead in its own threads and may release the file there after the read has returned. If the file is a
Python object, a process that is ending or collecting garbage at that moment crashes. So pyarrow opens local files
itself, and a file that only Python can read (behind fsspec) is read by the calling thread.
"""

from collections.abc import Iterator, Sequence
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq


class PythonParquetFile(pq.ParquetFile):  # type: ignore[misc]
    """A Parquet file in a Python file object, read only by the calling thread."""

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

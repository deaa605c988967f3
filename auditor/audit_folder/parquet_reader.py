"""Read Parquet files so that pyarrow's own threads never hold a Python object.

They may release the file after the read has returned; if it is a Python object, a process that is ending or collecting
garbage at that moment crashes. So the calling thread reads a file that only Python can open (behind fsspec).
"""

from collections.abc import Iterator
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq


class PythonParquetFile(pq.ParquetFile):  # type: ignore[misc]
    """A Parquet file in a Python file object, read only by the calling thread."""

    def __init__(self, file: IO[bytes], **options: Any) -> None:
        super().__init__(file, pre_buffer=False, **options)

    def read(self, *args: Any, **options: Any) -> pa.Table:
        return super().read(*args, **options, use_threads=False)

    def read_row_group(self, *args: Any, **options: Any) -> pa.Table:
        return super().read_row_group(*args, **options, use_threads=False)

    def read_row_groups(self, *args: Any, **options: Any) -> pa.Table:
        return super().read_row_groups(*args, **options, use_threads=False)

    def iter_batches(self, *args: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        yield from super().iter_batches(*args, **options, use_threads=False)

"""Read ranges of rows of Parquet files and of Arrow files (as Hugging Face's `save_to_disk` writes them).

An Arrow file, stream or file format, gets the methods of a Parquet file; its record batches serve as row groups. It is
memory-mapped, so only the rows that are used are read.
"""

import mmap
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from auditor.audit_folder.parquet_reader import PythonParquetFile
from auditor.corpus.corpus_files import is_url, open_copy, open_file
from auditor.corpus.file_names import resolve_stored_path
from auditor.regular_files import check_regular

BATCH_BYTES = 2**30  # of a batch of rows, at most; a dictionary repeats a large cell for a few bytes a row
BUFFER = 2**20  # bytes; without a buffer, Arrow reads a whole column chunk into memory


def open_parquet(path: str) -> pq.ParquetFile:
    """Open a local or remote Parquet file, or an Arrow file, which has the same methods."""
    if is_arrow_path(path):
        return ArrowFile(path)
    if is_url(path):
        return PythonParquetFile(open_file(path), buffer_size=BUFFER)
    file = resolve_stored_path(path)
    check_regular(file)
    return pq.ParquetFile(file, buffer_size=BUFFER)


def is_arrow_path(path: str) -> bool:
    return path.lower().endswith(".arrow")


def compute_row_edges(file: pq.ParquetFile) -> list[int]:
    """Return the first row of each row group, and the number of all rows."""
    return [0, *accumulate(file.metadata.row_group(group).num_rows for group in range(file.num_row_groups))]


def read_batches(
    file: pq.ParquetFile, start: int, stop: int, size: int, columns: list[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield rows `start` to `stop` in batches of at most `size` rows; only their row groups are read."""
    edges = compute_row_edges(file)
    groups = [group for group in range(file.num_row_groups) if edges[group] < stop and edges[group + 1] > start]
    position = edges[groups[0]] if groups else 0
    largest = max((_measure_largest_column(file, group, columns) for group in groups), default=1)
    size = max(1, min(size, BATCH_BYTES // largest))
    for batch in file.iter_batches(size, row_groups=groups, columns=columns):
        first, position = max(position, start), position + batch.num_rows
        if position > first:
            yield batch.slice(batch.num_rows - (position - first), stop - first)
        if position >= stop:
            break


def _measure_largest_column(file: pq.ParquetFile, group: int, columns: list[str] | None) -> int:
    """Return the uncompressed bytes of the largest column of a row group: no cell has more."""
    if isinstance(file, ArrowFile):
        return 1  # memory-mapped
    chunks = (file.metadata.row_group(group).column(number) for number in range(file.metadata.num_columns))
    prefixes = tuple(f"{column}." for column in columns or ())
    chosen = (chunk for chunk in chunks if not columns or f"{chunk.path_in_schema}.".startswith(prefixes))
    return max((chunk.total_uncompressed_size for chunk in chosen), default=1) or 1


def list_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows of a batch; text that is not UTF-8 is decoded with U+FFFD, any other unreadable cell is None."""
    try:
        return batch.to_pylist()  # type: ignore[no-any-return]
    except (ValueError, OverflowError, LookupError):  # a date of the year 100,000, an unknown time zone
        rows = zip(*([_read_cell(cell) for cell in column] for column in batch.columns), strict=True)
        return [dict(zip(batch.schema.names, cells, strict=True)) for cells in rows]


def _read_cell(cell: pa.Scalar) -> Any:
    try:
        return cell.as_py()
    except UnicodeDecodeError as error:
        if isinstance(cell, pa.ListScalar):
            return [_read_cell(item) for item in cell]
        return error.object.decode("utf-8", "replace")
    except (ValueError, OverflowError, LookupError):
        return None


class ArrowFile:
    """The methods of pyarrow.parquet.ParquetFile that auditor.corpus uses."""

    def __init__(self, path: str) -> None:
        with open_copy(resolve_stored_path(path)) as file:
            try:
                data = pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))  # outlives the file
            except ValueError as error:
                raise pa.ArrowInvalid(f"an empty file: {error}") from None
        if data.slice(0, 6).to_pybytes() == b"ARROW1":  # the file format
            reader = pa.ipc.open_file(data)
            groups = (reader.get_batch(number) for number in range(reader.num_record_batches))
        else:
            reader = pa.ipc.open_stream(data)
            groups = iter(reader)
        self.groups = []
        for group in groups:
            group.validate()
            self.groups.append(group)
        self.schema_arrow = reader.schema
        self.num_row_groups = len(self.groups)

    def __enter__(self) -> "ArrowFile":
        return self

    def __exit__(self, *_: object) -> None:
        """Drop the batches; the mapping ends with the last array that refers to it."""
        self.groups = []

    @property
    def metadata(self) -> "ArrowFile":
        return self

    def row_group(self, number: int) -> pa.RecordBatch:  # it has the number of its rows, too
        return self.groups[number]

    def iter_batches(
        self, batch_size: int, row_groups: Sequence[int] | None = None, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        for group in range(len(self.groups)) if row_groups is None else row_groups:
            batch = self.groups[group]
            chosen = batch if columns is None else project_batch(batch, columns)
            for start in range(0, chosen.num_rows, batch_size):
                rows = chosen.slice(start, batch_size)
                for array in rows.columns:
                    _check_offsets(array)
                yield rows


def _check_offsets(array: pa.Array) -> None:
    """Raise ArrowInvalid if an array leads out of its buffers: Arrow itself would follow it there, and crash."""
    text = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}  # text need not be UTF-8
    (array.view(text[array.type]) if array.type in text else array).validate(full=True)


def project_batch(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """Select columns; `image.path` selects the struct `image` with only its field `path`, as Parquet does."""
    from pyarrow.compute import struct_field  # slow to import; no command that reads an audit needs it

    arrays: dict[str, Any] = {}
    for column in columns:
        if column in batch.schema.names:
            arrays[column] = batch.column(column)
            continue
        whole, _, part = column.partition(".")
        struct = batch.column(whole)
        parts = struct_field(struct, part)
        arrays[whole] = pa.StructArray.from_arrays([parts], names=[part], mask=struct.is_null())
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))

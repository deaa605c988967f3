"""An Arrow file (stream or file format, as Hugging Face's `save_to_disk` writes it) with the methods of a Parquet file.

Record batches serve as row groups. The file is memory-mapped, so only the rows that are used are read.
"""

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class RowGroup:
    num_rows: int


class ArrowFile:
    """The methods of pyarrow.parquet.ParquetFile that auditor.corpus.tables.table_cells uses."""

    def __init__(self, source: str | IO[bytes]) -> None:
        file = open(source, "rb") if isinstance(source, str) else source  # noqa: SIM115
        try:
            self.mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise pa.ArrowInvalid(f"an empty file: {error}") from None
        finally:
            if isinstance(source, str):
                file.close()
        self.schema_arrow, self.groups = read_record_batches(pa.py_buffer(self.mapped))

    def __enter__(self) -> "ArrowFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop the batches; the mapping ends with the last array that refers to it."""
        self.groups = []

    @property
    def metadata(self) -> "ArrowFile":
        return self

    @property
    def num_row_groups(self) -> int:
        return len(self.groups)

    @property
    def num_rows(self) -> int:
        return sum(batch.num_rows for batch in self.groups)

    def row_group(self, number: int) -> RowGroup:
        return RowGroup(self.groups[number].num_rows)

    def read_row_groups(self, groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        chosen = [project_batch(self.groups[group], columns) for group in groups]
        return pa.Table.from_batches(chosen or [project_batch(make_empty_batch(self.schema_arrow), columns)])

    def iter_batches(
        self, batch_size: int, row_groups: Sequence[int] | None = None, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        for group in range(len(self.groups)) if row_groups is None else row_groups:
            batch = self.groups[group]
            chosen = batch if columns is None else project_batch(batch, columns)
            for start in range(0, chosen.num_rows, batch_size):
                yield chosen.slice(start, batch_size)


def read_record_batches(data: pa.Buffer) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    """Return the batches of a stream, or of a file with a footer, without copying them."""
    if data.slice(0, 6).to_pybytes() == b"ARROW1":
        file = pa.ipc.open_file(data)
        return file.schema, [file.get_batch(number) for number in range(file.num_record_batches)]
    stream = pa.ipc.open_stream(data)
    return stream.schema, list(stream)


def make_empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def project_batch(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """Select columns; `image.path` selects the struct `image` with only its field `path`, as Parquet does."""
    arrays: dict[str, Any] = {}
    for column in columns:
        if column in batch.schema.names:
            arrays[column] = batch.column(column)
            continue
        whole, _, part = column.partition(".")
        struct = batch.column(whole)
        parts = pc.struct_field(struct, part)
        arrays[whole] = pa.StructArray.from_arrays([parts], names=[part], mask=struct.is_null())
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))

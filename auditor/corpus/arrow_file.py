"""An Arrow file (stream or file format, as Hugging Face's `save_to_disk` writes it) that reads like a Parquet file.

Its record batches take the part of row groups. It is mapped into memory, so that only what is looked at is read.
"""

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class Group:
    num_rows: int


class ArrowFile:
    """What auditor.corpus.tables.table_cells needs of a pyarrow.parquet.ParquetFile."""

    def __init__(self, source: str | IO[bytes]) -> None:
        file = open(source, "rb") if isinstance(source, str) else source  # noqa: SIM115
        try:
            self.mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise pa.ArrowInvalid(f"an empty file: {error}") from None
        finally:
            if isinstance(source, str):
                file.close()
        self.schema_arrow, self.groups = read_batches(pa.py_buffer(self.mapped))

    def __enter__(self) -> "ArrowFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """The mapping ends with the last array that refers to it."""
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

    def row_group(self, number: int) -> Group:
        return Group(self.groups[number].num_rows)

    def read_row_groups(self, groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        chosen = [projected(self.groups[group], columns) for group in groups]
        return pa.Table.from_batches(chosen or [projected(empty_batch(self.schema_arrow), columns)])

    def iter_batches(
        self, batch_size: int, row_groups: Sequence[int] | None = None, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        for group in range(len(self.groups)) if row_groups is None else row_groups:
            batch = self.groups[group]
            chosen = batch if columns is None else projected(batch, columns)
            for start in range(0, chosen.num_rows, batch_size):
                yield chosen.slice(start, batch_size)


def read_batches(data: pa.Buffer) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    """The batches of a stream, or of a file with a footer; their bytes stay where they are."""
    if data.slice(0, 6).to_pybytes() == b"ARROW1":
        file = pa.ipc.open_file(data)
        return file.schema, [file.get_batch(number) for number in range(file.num_record_batches)]
    stream = pa.ipc.open_stream(data)
    return stream.schema, list(stream)


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def projected(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """Some columns; `image.path` gives the struct `image` with its field `path` alone, as Parquet does."""
    found: dict[str, Any] = {}
    for column in columns:
        if column in batch.schema.names:
            found[column] = batch.column(column)
            continue
        whole, _, part = column.partition(".")
        struct = batch.column(whole)
        parts = pc.struct_field(struct, part)
        found[whole] = pa.StructArray.from_arrays([parts], names=[part], mask=struct.is_null())
    return pa.RecordBatch.from_arrays(list(found.values()), names=list(found))

"""An open Parquet table: its rows, and the bytes in its cells, few of them in memory at once."""

import threading
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from auditor.corpus.file_names import escape_name, guess_media_kind, sniff_media_kind
from auditor.corpus.parquet_rows import compute_row_edges, read_batches
from auditor.corpus.read_medium import MediaError, format_cell_path, parse_cell_path, read_medium_bytes
from auditor.corpus.sample import Kind, Media
from auditor.corpus.tables.entry_shard import TableEntry
from auditor.corpus.tables.table import TableColumns, build_entry

BATCH = 16  # rows whose media are in memory at once
ROWS = 8192  # whose other cells are in memory at once


class OpenTable:
    """Rows and cells of a Parquet file. Cells are read forward in small batches; going back restarts a row group."""

    def __init__(self, path: str, file: pq.ParquetFile, columns: TableColumns) -> None:
        self.path, self.file, self.columns = path, file, columns
        self.type: pa.DataType = file.schema_arrow.field(columns.media).type
        self.edges = compute_row_edges(file)
        self.lock = threading.Lock()
        self.batches: Iterator[pa.Array] = iter(())
        self.cells: pa.Array = pa.array([], pa.large_binary())  # of the current batch
        self.position = self.end = 0  # row of the first cell, and the end of its row group

    @property
    def in_cells(self) -> bool:
        """Whether the table holds the bytes of its media rather than their paths."""
        binary = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
        return self.has("bytes") or any(check(self.type) for check in binary)

    def has(self, field: str) -> bool:
        return bool(pa.types.is_struct(self.type) and self.type.get_field_index(field) >= 0)

    def entries(self, start: int, stop: int | None) -> list[TableEntry]:
        """Return the entries of rows, with the place of their bytes if the table holds them."""
        stop = self.edges[-1] if stop is None else stop
        names = [name for name in self.columns.names if name != self.columns.media]  # without the bytes of media
        if self.has("path"):
            names.append(f"{self.columns.media}.path")
        elif not self.in_cells:
            names.append(self.columns.media)
        rows = (row for batch in read_batches(self.file, start, stop, ROWS, names) for row in batch.to_pylist())
        entries = [build_entry(number, fields, self.columns) for number, fields in enumerate(rows, start)]
        if not self.in_cells:
            return entries
        return [self.add_cell(entry, *cell) for entry, cell in zip(entries, self.measure(start, stop), strict=True)]

    def add_cell(self, entry: TableEntry, size: int | None, kind: Kind | None) -> TableEntry:
        if size is None:
            return entry
        path = format_cell_path(escape_name(self.path), self.columns.media, entry.row)
        kind = kind or guess_media_kind(entry.media) or self.columns.default_kind
        return replace(entry, cell=Media(path, 0, size, kind))

    def whole_rows(self, start: int, stop: int | None) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the number and all cells of each row, a few in memory at once."""
        batches = read_batches(self.file, start, self.edges[-1] if stop is None else stop, BATCH)
        yield from enumerate((row for batch in batches for row in batch.to_pylist()), start)

    def measure(self, start: int, stop: int) -> Iterator[tuple[int | None, Kind | None]]:
        """Yield size and kind of each cell with one pass over the bytes; None if a cell is null."""
        for cells in self.arrays(start, stop):
            heads = pc.binary_slice(cells, 0, 32).to_pylist()
            kinds = [sniff_media_kind(head) if head is not None else None for head in heads]
            yield from zip(pc.binary_length(cells).to_pylist(), kinds, strict=True)

    def arrays(self, start: int, stop: int) -> Iterator[pa.Array]:
        """Yield the bytes of media, a few cells at a time."""
        in_struct = self.has("bytes")
        field = f"{self.columns.media}.bytes" if in_struct else self.columns.media
        for batch in read_batches(self.file, start, stop, BATCH, [field]):
            cells = batch.column(0)
            yield (pc.struct_field(cells, "bytes") if in_struct else cells).cast(pa.large_binary())

    def read(self, media: Media) -> bytes:
        """Return the bytes of a medium of this table, in a cell or in a file."""
        cell = parse_cell_path(media.path)
        if cell is None:
            return read_medium_bytes(media)
        with self.lock:
            data = self.cell(cell[2])
        if data is None:
            raise MediaError(f"{media.path}: no bytes there")
        return data

    def cell(self, row: int) -> bytes | None:
        if not self.position <= row < self.end:
            group = bisect_right(self.edges, row)
            self.position, self.end = self.edges[group - 1 : group + 1]
            self.batches, self.cells = self.arrays(self.position, self.end), self.cells[:0]
        while row >= self.position + len(self.cells):
            self.position += len(self.cells)
            self.cells = next(self.batches)
        value: bytes | None = self.cells[row - self.position].as_py()
        return value

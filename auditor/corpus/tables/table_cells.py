"""An open Parquet table: its rows, and the bytes in its cells, few of them in memory at once."""

import threading
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from auditor.corpus.file_names import escape_name, guess_media_kind
from auditor.corpus.read_medium import MediaError, format_cell_path, parse_cell_path, read_medium_bytes
from auditor.corpus.sample import Kind, Media
from auditor.corpus.tables.entry_shard import TableEntry, sniff_media_kind
from auditor.corpus.tables.table import TableColumns, build_entry

BATCH = 16  # rows whose media are in memory at once


class OpenTable:
    """Rows and cells of a Parquet file. Cells are read forward in small batches; going back restarts a row group."""

    def __init__(self, path: str, file: pq.ParquetFile, columns: TableColumns) -> None:
        self.path, self.file, self.columns = path, file, columns
        self.type: pa.DataType = file.schema_arrow.field(columns.media).type
        counts = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        self.edges = [0, *accumulate(counts)]  # first row of each group, and the end
        self.lock = threading.Lock()
        self.batches: Iterator[pa.RecordBatch] = iter(())
        self.cells: pa.Array = pa.array([], pa.large_binary())  # of the current batch
        self.position = -1  # row of the first cell; -1: no batch yet

    @property
    def in_cells(self) -> bool:
        """Whether the table holds the bytes of its media rather than their paths."""
        binary = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
        return self.has("bytes") or any(check(self.type) for check in binary)

    @property
    def default(self) -> Kind:
        """The kind of a medium if neither its bytes nor its name shows it."""
        name = self.columns.media.lower()
        return "video" if "video" in name or guess_media_kind(name) == "video" else "image"

    def has(self, field: str) -> bool:
        return bool(pa.types.is_struct(self.type) and self.type.get_field_index(field) >= 0)

    def entries(self, start: int, stop: int | None) -> list[TableEntry]:
        """Return the entries of rows, with the place of their bytes if the table holds them."""
        stop = self.edges[-1] if stop is None else stop
        rows = self.fields(start, stop)
        sizes = self.measure(start, stop) if self.in_cells else [(None, None)] * len(rows)
        return [
            self.entry(start + number, fields, *measured)
            for number, (fields, measured) in enumerate(zip(rows, sizes, strict=True))
        ]

    def entry(self, row: int, fields: dict[str, Any], size: int | None, kind: Kind | None) -> TableEntry:
        entry = build_entry(row, fields, self.columns)
        if size is None:
            return entry
        path = format_cell_path(escape_name(self.path), self.columns.media, row)
        media = Media(path, 0, size, kind or guess_media_kind(entry.media) or self.default)
        return build_entry(row, fields, self.columns, media)

    def fields(self, start: int, stop: int) -> list[dict[str, Any]]:
        """Return the used cells of rows without the bytes of media."""
        names = [name for name in self.columns.names if name != self.columns.media]
        if self.has("path"):
            names.append(f"{self.columns.media}.path")
        elif not self.in_cells:
            names.append(self.columns.media)
        groups, skipped = self.covering(start, stop)
        table = self.file.read_row_groups(groups, names).slice(skipped, stop - start)
        rows: list[dict[str, Any]] = table.to_pylist()
        return rows

    def whole_rows(self, start: int, stop: int | None) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the number and all cells of each row, a few in memory at once."""
        stop = self.edges[-1] if stop is None else stop
        groups, skipped = self.covering(start, stop)
        number = start - skipped
        for batch in self.file.iter_batches(batch_size=BATCH, row_groups=groups):
            for row in batch.to_pylist():
                if start <= number < stop:
                    yield number, row
                number += 1

    def covering(self, start: int, stop: int) -> tuple[list[int], int]:
        """Return the row groups of a range, and the number of rows of the first group before it."""
        groups = [g for g in range(len(self.edges) - 1) if self.edges[g] < stop and self.edges[g + 1] > start]
        return groups, start - self.edges[groups[0]] if groups else 0

    def measure(self, start: int, stop: int) -> list[tuple[int | None, Kind | None]]:
        """Return size and kind of each cell with one pass over the bytes; None if a cell is null."""
        sizes: list[tuple[int | None, Kind | None]] = []
        groups, skipped = self.covering(start, stop)
        for cells in self.arrays(groups):
            heads = pc.binary_slice(cells, 0, 32).to_pylist()
            kinds = [sniff_media_kind(head) if head is not None else None for head in heads]
            sizes += zip(pc.binary_length(cells).to_pylist(), kinds, strict=True)
            if len(sizes) >= skipped + stop - start:
                break
        return sizes[skipped : skipped + stop - start]

    def arrays(self, groups: list[int]) -> Iterator[pa.Array]:
        """Yield the bytes column of row groups, a few cells at a time."""
        column = self.columns.media
        field = f"{column}.bytes" if self.has("bytes") else column
        for batch in self.file.iter_batches(batch_size=BATCH, row_groups=groups, columns=[field]):
            cells = batch.column(0)
            yield (pc.struct_field(cells, "bytes") if self.has("bytes") else cells).cast(pa.large_binary())

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
        group = self.covering(row, row + 1)[0][0]
        if not self.edges[group] <= self.position <= row:
            self.batches, self.cells, self.position = self.arrays([group]), self.cells[:0], self.edges[group]
        while row >= self.position + len(self.cells):
            self.position += len(self.cells)
            self.cells = next(self.batches)
        value: bytes | None = self.cells[row - self.position].as_py()
        return value

"""An open Parquet table: its rows, and the bytes in its cells without ever holding many of them in memory."""

import threading
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from auditor.corpus.file_names import as_text, kind_of
from auditor.corpus.read_medium import MediaError, cell_path, media_reader, parse_cell
from auditor.corpus.sample import Kind, Media
from auditor.corpus.tables.entry_shard import Entry, sniff_kind
from auditor.corpus.tables.table import Columns, entry_of

BATCH = 16  # rows whose media are in memory at once


class OpenTable:
    """Rows of a Parquet file, and its cells read forward in small batches; going back starts at their row group."""

    def __init__(self, path: str, file: pq.ParquetFile, columns: Columns) -> None:
        self.path, self.file, self.columns = path, file, columns
        self.type: pa.DataType = file.schema_arrow.field(columns.media).type
        counts = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        self.edges = [0, *accumulate(counts)]  # the rows at which groups begin, and the end
        self.lock = threading.Lock()
        self.batches: Iterator[pa.RecordBatch] = iter(())
        self.cells: pa.Array = pa.array([], pa.large_binary())  # of the current batch
        self.position = -1  # row of its first cell; no batch yet

    @property
    def in_cells(self) -> bool:
        """Whether the table holds the bytes of its media, not only their paths."""
        binary = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
        return self.has("bytes") or any(check(self.type) for check in binary)

    @property
    def default(self) -> Kind:
        """What a medium is taken for if neither its bytes nor its name tell."""
        name = self.columns.media.lower()
        return "video" if "video" in name or kind_of(name) == "video" else "image"

    def has(self, field: str) -> bool:
        return bool(pa.types.is_struct(self.type) and self.type.get_field_index(field) >= 0)

    def entries(self, start: int, stop: int | None) -> list[Entry]:
        """The rows, each with where its bytes are if the table has them."""
        stop = self.edges[-1] if stop is None else stop
        rows = self.fields(start, stop)
        sizes = self.measure(start, stop) if self.in_cells else [(None, None)] * len(rows)
        return [
            self.entry(start + number, fields, *measured)
            for number, (fields, measured) in enumerate(zip(rows, sizes, strict=True))
        ]

    def entry(self, row: int, fields: dict[str, Any], size: int | None, kind: Kind | None) -> Entry:
        entry = entry_of(row, fields, self.columns)
        if size is None:
            return entry
        path = cell_path(as_text(self.path), self.columns.media, row)
        media = Media(path, 0, size, kind or kind_of(entry.media) or self.default)
        return entry_of(row, fields, self.columns, media)

    def fields(self, start: int, stop: int) -> list[dict[str, Any]]:
        """All that matters of the rows but the bytes."""
        wanted = [name for name in self.columns.names if name != self.columns.media]
        if self.has("path"):
            wanted.append(f"{self.columns.media}.path")
        elif not self.in_cells:
            wanted.append(self.columns.media)
        groups, skipped = self.covering(start, stop)
        table = self.file.read_row_groups(groups, wanted).slice(skipped, stop - start)
        rows: list[dict[str, Any]] = table.to_pylist()
        return rows

    def whole_rows(self, start: int, stop: int | None) -> Iterator[tuple[int, dict[str, Any]]]:
        """The number and all cells of each row, a few in memory at once."""
        stop = self.edges[-1] if stop is None else stop
        groups, skipped = self.covering(start, stop)
        number = start - skipped
        for batch in self.file.iter_batches(batch_size=BATCH, row_groups=groups):
            for row in batch.to_pylist():
                if start <= number < stop:
                    yield number, row
                number += 1

    def covering(self, start: int, stop: int) -> tuple[list[int], int]:
        """The row groups a range touches, and how many rows of the first come before it."""
        groups = [g for g in range(len(self.edges) - 1) if self.edges[g] < stop and self.edges[g + 1] > start]
        return groups, start - self.edges[groups[0]] if groups else 0

    def measure(self, start: int, stop: int) -> list[tuple[int | None, Kind | None]]:
        """Size and kind of each cell, by one pass over the bytes; no size where there are none."""
        found: list[tuple[int | None, Kind | None]] = []
        groups, skipped = self.covering(start, stop)
        for cells in self.arrays(groups):
            heads = pc.binary_slice(cells, 0, 32).to_pylist()
            kinds = [sniff_kind(head) if head is not None else None for head in heads]
            found += zip(pc.binary_length(cells).to_pylist(), kinds, strict=True)
            if len(found) >= skipped + stop - start:
                break
        return found[skipped : skipped + stop - start]

    def arrays(self, groups: list[int]) -> Iterator[pa.Array]:
        """The bytes column of row groups, a few cells at a time."""
        column = self.columns.media
        wanted = f"{column}.bytes" if self.has("bytes") else column
        for batch in self.file.iter_batches(batch_size=BATCH, row_groups=groups, columns=[wanted]):
            cells = batch.column(0)
            yield (pc.struct_field(cells, "bytes") if self.has("bytes") else cells).cast(pa.large_binary())

    def read(self, media: Media) -> bytes:
        """The bytes of a medium of this table, in a cell or beside it."""
        cell = parse_cell(media.path)
        if cell is None:
            return media_reader(media)
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

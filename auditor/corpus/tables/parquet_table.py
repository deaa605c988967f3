"""Parquet tables and the Arrow files of Hugging Face, with media as paths, as bytes, or as a struct of bytes and path.

A local file is cut along its row groups, because each can be read alone. Remote files, and local files if there are
very many, are one shard each, so they are listed without opening them.
"""

import hashlib
import os
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from auditor.audit_folder.parquet_reader import PythonParquetFile
from auditor.corpus.corpus_files import is_url, open_copy, stamp_file
from auditor.corpus.file_names import escape_name, guess_media_kind, make_shard_names, sniff_media_kind
from auditor.corpus.parquet_rows import (
    BUFFER,
    compute_row_edges,
    is_arrow_path,
    list_rows,
    open_parquet,
    read_batches,
)
from auditor.corpus.read_medium import MediaError, format_cell_path, parse_cell_path, read_medium_bytes
from auditor.corpus.sample import Kind, Media
from auditor.corpus.shard import CorpusError, CorpusOptions, OpenShard, convert_shard_errors
from auditor.corpus.tables.entry_shard import TableEntry, build_entry_samples, fingerprint_entries
from auditor.corpus.tables.table import TableColumns, build_entry, choose_columns, limit_text

MAX_CUT_FILES = 256  # more files than this are not cut
MAX_PIECES = 16  # of one row group: each piece skips the rows before it
MAX_PIECE_ROWS = 2**18  # in memory at once: a few kilobytes of Parquet can hold 10^9 equal rows
BATCH = 16  # rows whose media are in memory at once
ROWS = 8192  # whose other cells are in memory at once


class OpenTable:
    """Rows and cells of a Parquet file. Cells are read forward in small batches; going back restarts a row group."""

    def __init__(
        self, path: str, file: pq.ParquetFile, columns: TableColumns, start: int = 0, stop: int | None = None
    ) -> None:
        self.path, self.file, self.columns = path, file, columns
        index = file.schema_arrow.get_field_index(columns.media)
        if index < 0:
            raise CorpusError(f"{path} has two columns {columns.media!r}: name another with --media-column")
        self.type: pa.DataType = file.schema_arrow.field(index).type
        self.edges = compute_row_edges(file)
        self.start, self.stop = start, self.edges[-1] if stop is None else stop
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

    def entries(self) -> list[TableEntry]:
        """Return the entries of the rows, with the place of their bytes if the table holds them."""
        names = [name for name in self.columns.names if name != self.columns.media]  # without the bytes of media
        if self.has("path"):
            names.append(f"{self.columns.media}.path")
        elif not self.in_cells:
            names.append(self.columns.media)
        batches = read_batches(self.file, self.start, self.stop, ROWS, names)
        rows = enumerate((row for batch in batches for row in list_rows(batch)), self.start)
        entries = list(limit_text(build_entry(number, fields, self.columns) for number, fields in rows))
        if not self.in_cells:
            return entries
        return [self.add_cell(entry, *cell) for entry, cell in zip(entries, self.measure(), strict=True)]

    def add_cell(self, entry: TableEntry, size: int | None, kind: Kind | None) -> TableEntry:
        if size is None:
            return entry
        path = format_cell_path(escape_name(self.path), self.columns.media, entry.row)
        kind = kind or guess_media_kind(entry.media) or self.columns.default_kind
        return replace(entry, cell=Media(path, 0, size, kind))

    def whole_rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the number and all cells of each row, a few in memory at once."""
        batches = read_batches(self.file, self.start, self.stop, BATCH)
        yield from enumerate((row for batch in batches for row in list_rows(batch)), self.start)

    def measure(self) -> Iterator[tuple[int | None, Kind | None]]:
        """Yield size and kind of each cell with one pass over the bytes; None if a cell is null."""
        for cells in self.arrays(self.start, self.stop):
            heads = pc.binary_slice(cells, 0, 32).to_pylist()
            kinds = [sniff_media_kind(head) if head is not None else None for head in heads]
            yield from zip(pc.binary_length(cells).to_pylist(), kinds, strict=True)

    def arrays(self, start: int, stop: int) -> Iterator[pa.Array]:
        in_struct = self.has("bytes")
        field = f"{self.columns.media}.bytes" if in_struct else self.columns.media
        for batch in read_batches(self.file, start, stop, BATCH, [field]):
            cells = batch.column(0)
            yield (pc.struct_field(cells, "bytes") if in_struct else cells).cast(pa.large_binary())

    def read(self, media: Media) -> bytes:
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


@dataclass(frozen=True, slots=True)
class ParquetShard:
    """Rows `start` to `stop` of a file, or all rows."""

    name: str
    path: str
    options: CorpusOptions
    start: int = 0
    stop: int | None = None

    def fingerprint(self) -> str:
        """Hash the size and time of the file (the digest of a remote one), its rows, and the local files they name."""
        with convert_shard_errors(self.name, self.path):
            parts = [repr((self.start, self.stop)), stamp_file(self.path)]
            if not is_url(self.path):
                with self.table() as table:
                    entries = [] if table.in_cells else table.entries()
                    parts.append(fingerprint_entries(self.folder, entries, self.options))
        return hashlib.blake2b("".join(parts).encode(), digest_size=16).hexdigest()

    @contextmanager
    def open(self) -> Iterator[OpenShard]:
        with ExitStack() as stack:
            with convert_shard_errors(self.name, self.path):
                table = stack.enter_context(self.table())
                entries = table.entries()
                samples = build_entry_samples(self.name, self.folder, entries, self.options, table.columns.default_kind)
            yield OpenShard(samples, [], table.read)

    @property
    def folder(self) -> str:
        """The folder that its paths are relative to."""
        return os.path.dirname(self.path)

    @property
    def columns(self) -> TableColumns:
        with self.table() as table:
            return table.columns

    def schema(self) -> pa.Schema:
        with self.table() as table:
            return table.file.schema_arrow

    def column_names(self) -> list[str]:
        return list(self.schema().names)

    def entries(self) -> list[TableEntry]:
        with self.table() as table:
            return table.entries()

    def rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        with self.table() as table:
            yield from table.whole_rows()

    @contextmanager
    def table(self) -> Iterator[OpenTable]:
        with ExitStack() as stack:
            if is_url(self.path) and not is_arrow_path(self.path):
                copy = stack.enter_context(open_copy(self.path))
                file = stack.enter_context(PythonParquetFile(copy, buffer_size=BUFFER))
            else:
                file = stack.enter_context(open_parquet(self.path))
            columns = choose_columns(self.path, file.schema_arrow.names, self.options)
            yield OpenTable(self.path, file, columns, self.start, self.stop)


def list_parquet_shards(files: Sequence[tuple[str, str]], options: CorpusOptions) -> list[ParquetShard]:
    if len(files) > MAX_CUT_FILES or any(is_url(path) for path, _ in files):
        return [ParquetShard(name, path, options) for path, name in files]
    pieces: list[tuple[str, str, int, int]] = []
    for path, name in files:
        cuts = _cut_parquet_file(path, options)
        pieces += [(f"{name}-{number:06d}", path, *cut) for number, cut in enumerate(cuts)]
    unique = make_shard_names([name for name, *_ in pieces])
    return [ParquetShard(name, path, options, *cut) for name, (_, path, *cut) in zip(unique, pieces, strict=True)]


def _cut_parquet_file(path: str, options: CorpusOptions) -> list[tuple[int, int]]:
    """Return (start, stop) of each shard of a file: small row groups together, large ones in a few pieces."""
    try:
        with open_parquet(path) as file:
            columns = choose_columns(path, file.schema_arrow.names, options)
            cuts = cut_row_groups(np.diff(compute_row_edges(file)).tolist(), options.shard_size)
            in_cells = OpenTable(path, file, columns).in_cells
            return align_cuts_to_media(file, columns.media, cuts) if columns.start and not in_cells else cuts
    except (OSError, ValueError, pa.ArrowException) as error:  # ValueError: column names that are not UTF-8
        form = "Arrow" if is_arrow_path(path) else "Parquet"
        raise CorpusError(f"{path} is not a readable {form} file: {error}") from error


def cut_row_groups(groups: Sequence[int], size: int) -> list[tuple[int, int]]:
    """Return row ranges of about `size` rows: whole row groups, or pieces of a single large one."""
    cuts: list[tuple[int, int]] = []
    start = stop = 0
    for rows in groups:
        if stop > start and stop - start + rows > size:
            cuts.append((start, stop))
            start = stop
        stop += rows
        piece = max(size, min(-(-rows // MAX_PIECES), MAX_PIECE_ROWS))
        while start == stop - rows and rows > size and stop - start > piece:
            cuts.append((start, start + piece))
            start, rows = start + piece, rows - piece
    if stop > start:
        cuts.append((start, stop))
    return cuts


def align_cuts_to_media(file: pq.ParquetFile, column: str, cuts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Move the end of each range to the next change of medium, so that the rows of one video stay together."""
    total = compute_row_edges(file)[-1]
    ranges: list[tuple[int, int]] = []
    start = 0
    for _, stop in cuts:
        if start < stop < total:
            stop = _find_medium_end(file, column, stop, total)
        if stop > start:
            ranges.append((start, stop))
            start = stop
    return ranges


def _find_medium_end(file: pq.ParquetFile, column: str, row: int, total: int) -> int:
    """Return the first row, from `row` on, whose medium is not that of the row before `row`."""
    batches = read_batches(file, row - 1, total, 1000, [column])
    media = (medium for batch in batches for row in list_rows(batch) for medium in row.values())
    last = next(media)
    return row + sum(1 for _ in takewhile(lambda medium: medium is not None and medium == last, media))

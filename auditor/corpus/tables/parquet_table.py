"""Parquet tables and the Arrow files of Hugging Face, with media as paths, as bytes, or as a struct of bytes and path.

A local file is cut along its row groups, because each can be read alone. Remote files, and local files if there are
very many, are one shard each, so they are listed without opening them.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from auditor.audit_folder.parquet_reader import PythonParquetFile
from auditor.corpus.corpus_files import is_url, open_copy, stamp_file
from auditor.corpus.file_names import make_shard_names
from auditor.corpus.parquet_rows import BUFFER, compute_row_edges, is_arrow_path, open_parquet, read_batches
from auditor.corpus.shard import CorpusError, CorpusOptions, OpenShard, ShardError
from auditor.corpus.tables.entry_shard import TableEntry, build_entry_samples, fingerprint_entries
from auditor.corpus.tables.table import TableColumns, choose_columns
from auditor.corpus.tables.table_cells import OpenTable

MAX_CUT_FILES = 256  # more files than this are not cut
MAX_PIECES = 16  # of one row group: each piece skips the rows before it


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
        try:
            parts = [repr((self.start, self.stop)), stamp_file(self.path)]
            if not is_url(self.path):
                with self.table() as table:
                    entries = [] if table.in_cells else table.entries(self.start, self.stop)
                    parts.append(fingerprint_entries(self.folder, entries))
        except (OSError, CorpusError, pa.ArrowException) as error:
            raise ShardError.convert(self.name, self.path, error) from error
        return hashlib.blake2b("".join(parts).encode(), digest_size=16).hexdigest()

    @contextmanager
    def open(self) -> Iterator[OpenShard]:
        with ExitStack() as stack:
            try:
                table = stack.enter_context(self.table())
                entries = table.entries(self.start, self.stop)
                samples = build_entry_samples(self.name, self.folder, entries, table.columns.default_kind)
            except (OSError, CorpusError, pa.ArrowException) as error:
                raise ShardError.convert(self.name, self.path, error) from error
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
            return table.entries(self.start, self.stop)

    def rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the number and all cells of each row, read in small batches."""
        with self.table() as table:
            yield from table.whole_rows(self.start, self.stop)

    @contextmanager
    def table(self) -> Iterator[OpenTable]:
        with ExitStack() as stack:
            if is_url(self.path) and not is_arrow_path(self.path):
                copy = stack.enter_context(open_copy(self.path))
                file = stack.enter_context(PythonParquetFile(copy, buffer_size=BUFFER))
            else:
                file = stack.enter_context(open_parquet(self.path))
            yield OpenTable(self.path, file, choose_columns(self.path, file.schema_arrow.names, self.options))


def list_parquet_shards(files: Sequence[tuple[str, str]], options: CorpusOptions) -> list[ParquetShard]:
    """List the shards of Parquet files, each with its path and its name."""
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
    except (OSError, pa.ArrowException) as error:
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
        piece = max(size, -(-rows // MAX_PIECES))
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
    media = (medium for batch in batches for medium in batch.column(0).to_pylist())
    last = next(media)
    return row + sum(1 for _ in takewhile(lambda medium: medium is not None and medium == last, media))

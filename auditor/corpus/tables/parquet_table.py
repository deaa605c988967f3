"""Parquet tables and the Arrow files of Hugging Face, with media as paths, as bytes, or as a struct of bytes and path.

A local file is cut along its row groups, because each can be read alone. Remote files, and local files if there are
very many, are one shard each, so they are listed without opening them.
"""

import hashlib
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from auditor.audit_folder.parquet_reader import PythonParquetFile
from auditor.corpus import remote_files
from auditor.corpus.file_names import make_shard_names
from auditor.corpus.read_medium import BUFFER, is_arrow_path, open_parquet
from auditor.corpus.shard import CorpusError, CorpusOptions, OpenShard, ShardError
from auditor.corpus.tables.entry_shard import TableEntry, build_entry_samples, fingerprint_entries
from auditor.corpus.tables.table import choose_columns
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
        digest = hashlib.blake2b(repr((self.start, self.stop)).encode(), digest_size=16)
        try:
            if remote_files.is_url(self.path):
                digest.update(remote_files.fingerprint_object(self.path).encode())
                return digest.hexdigest()
            status = os.stat(self.path)
            digest.update(f"{status.st_size} {status.st_mtime_ns}".encode())
            with self.table() as table:
                entries = [] if table.in_cells else table.entries(self.start, self.stop)
                digest.update(fingerprint_entries(os.path.dirname(self.path), entries).encode())
        except (OSError, CorpusError, pa.ArrowException) as error:
            raise ShardError.convert(self.name, self.path, error) from error
        return digest.hexdigest()

    @contextmanager
    def open(self) -> Iterator[OpenShard]:
        with ExitStack() as stack:
            try:
                table = stack.enter_context(self.table())
                entries = table.entries(self.start, self.stop)
                samples = build_entry_samples(self.name, os.path.dirname(self.path), entries, table.default)
            except (OSError, CorpusError, pa.ArrowException) as error:
                raise ShardError.convert(self.name, self.path, error) from error
            yield OpenShard(samples, [], table.read)

    @property
    def folder(self) -> str:
        """The folder that its paths are relative to."""
        return os.path.dirname(self.path)

    @property
    def caption_column(self) -> str:
        with self.table() as table:
            return table.columns.caption

    @property
    def timed(self) -> bool:
        """Whether its captions may have spans."""
        with self.table() as table:
            return table.columns.start is not None

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
            if remote_files.is_url(self.path) and not is_arrow_path(self.path):
                copy = stack.enter_context(
                    open(stack.enter_context(remote_files.fetch_copy(self.path)), "rb", closefd=False)
                )
                file = stack.enter_context(PythonParquetFile(copy, buffer_size=BUFFER))
            else:
                file = stack.enter_context(open_parquet(self.path))
            yield OpenTable(self.path, file, choose_columns(self.path, file.schema_arrow.names, self.options))


def list_parquet_shards(paths: Sequence[str], names: Sequence[str], options: CorpusOptions) -> list[ParquetShard]:
    """List the shards of Parquet files; `names` are the shard names of the files."""
    if len(paths) > MAX_CUT_FILES or any(remote_files.is_url(path) for path in paths):
        return [ParquetShard(name, path, options) for name, path in zip(names, paths, strict=True)]
    pieces: list[tuple[str, str, int, int]] = []
    for name, path in zip(names, paths, strict=True):
        cuts = _cut_parquet_file(path, options)
        pieces += [(f"{name}-{number:06d}", path, *cut) for number, cut in enumerate(cuts)]
    unique = make_shard_names([name for name, *_ in pieces])
    return [ParquetShard(name, path, options, *cut) for name, (_, path, *cut) in zip(unique, pieces, strict=True)]


def _cut_parquet_file(path: str, options: CorpusOptions) -> list[tuple[int, int]]:
    """Return (start, stop) of each shard of a file: small row groups together, large ones in a few pieces."""
    try:
        with open_parquet(path) as file:
            columns = choose_columns(path, file.schema_arrow.names, options)
            groups = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
            cuts = cut_row_groups(groups, options.shard_size)
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
    edges = [0, *accumulate(file.metadata.row_group(group).num_rows for group in range(file.num_row_groups))]

    @lru_cache(2)
    def column_of(group: int) -> pa.ChunkedArray:
        return file.read_row_groups([group], [column]).column(0)

    def medium(row: int) -> Any:
        group = bisect_right(edges, row) - 1
        return column_of(group)[row - edges[group]].as_py()

    ranges: list[tuple[int, int]] = []
    start = 0
    for _, stop in cuts:
        stop = max(stop, start)
        while start < stop < edges[-1] and medium(stop) == medium(stop - 1) is not None:
            stop += 1
        if stop > start:
            ranges.append((start, stop))
        start = stop
    return ranges

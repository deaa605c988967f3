"""CSV, TSV and JSON lines: one pass when the corpus is opened finds the start of each virtual shard.

A shard is a byte range, read without the rows before it. Consecutive rows of one medium stay in one shard.
"""

import csv
import io
import itertools
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import IO, Any

from auditor.corpus.caption_text import parse_record
from auditor.corpus.corpus_files import open_copy, read_range
from auditor.corpus.read_medium import read_medium_bytes
from auditor.corpus.shard import CorpusError, CorpusOptions, OpenShard, ShardError, convert_shard_errors
from auditor.corpus.tables.csv_dialect import TableDialect, find_dialect, has_header
from auditor.corpus.tables.entry_shard import TableEntry, build_entry_samples, fingerprint_entries
from auditor.corpus.tables.table import TableColumns, build_entry, choose_columns

COLUMN_SAMPLE_ROWS = 100  # of JSON lines, examined to find the columns
Fields = dict[str, Any] | None  # cells of a row; None for a line that is not a JSON object


@dataclass(frozen=True, slots=True)
class TextShard:
    """Bytes `start` to `end` of a table; `first` is the number of their first row."""

    name: str
    path: str
    dialect: TableDialect
    columns: TableColumns
    start: int
    end: int
    first: int

    def fingerprint(self) -> str:
        return fingerprint_entries(self.folder, self.entries())

    @contextmanager
    def open(self) -> Iterator[OpenShard]:
        samples = build_entry_samples(self.name, self.folder, self.entries(), self.columns.default_kind)
        yield OpenShard(samples, self.problems() if self.first == 0 else [], read_medium_bytes)

    def problems(self) -> list[str]:
        """Describe the guesses about the table; the first shard reports them once."""
        notes = []
        if not self.dialect.encoding.startswith("utf"):
            notes.append(
                f"{self.path} is not in UTF-8 and was read as {self.dialect.encoding}; "
                "set another encoding with --encoding"
            )
        if self.dialect.numbered:
            notes.append(
                f"{self.path} has no header: column {self.columns.media} was taken for the media and column "
                f"{self.columns.caption} for the captions; set others with --media-column and --caption-column"
            )
        return notes

    @property
    def folder(self) -> str:
        """The folder that its paths are relative to."""
        return os.path.dirname(self.path)

    def column_names(self) -> list[str]:
        """Return all column names; of JSON lines, those of the first row."""
        return list(self.dialect.names) or list(next((fields for _, fields in self.rows()), {}))

    def rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        yield from ((number, fields) for number, fields in self.lines() if fields is not None)

    def entries(self) -> list[TableEntry]:
        return [
            TableEntry(row, "", (), defect=f"row {row} of {self.path} is not a JSON object")
            if fields is None
            else build_entry(row, fields, self.columns)
            for row, fields in self.lines()
        ]

    def lines(self) -> Iterator[tuple[int, Fields]]:
        size = self.end - self.start
        with convert_shard_errors(self.name, self.path):
            data = read_range(self.path, self.start, size)
        if len(data) != size:
            raise ShardError(self.name, f"{self.path} is shorter than when the corpus was opened")
        for row, (_, fields) in enumerate(_read_text_rows(io.BytesIO(data), self.dialect), self.first):
            yield row, fields


def list_text_shards(path: str, form: str, name: str, options: CorpusOptions) -> list[TextShard]:
    try:
        with open_copy(path) as file:
            return _cut_text_table(file, path, form, name, options)
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error}") from error
    except csv.Error as error:
        raise CorpusError(f"{path} is not a readable {form.upper()} table: {error}") from error


def _cut_text_table(file: IO[bytes], path: str, form: str, name: str, options: CorpusOptions) -> list[TextShard]:
    dialect, start = _read_column_names(file, path, find_dialect(file, form, options), options)
    file.seek(start)
    rows = ((start + end, fields) for end, fields in _read_text_rows(file, dialect))
    first_rows = list(itertools.islice(rows, COLUMN_SAMPLE_ROWS))
    if not first_rows:
        raise CorpusError(f"{path} has no rows")
    names = dialect.names or tuple(dict.fromkeys(name for _, fields in first_rows for name in fields or ()))
    if dialect.numbered:
        options = _guess_columns([fields or {} for _, fields in first_rows], options)
    columns = choose_columns(path, names, options)
    pieces = list(_cut_byte_ranges(itertools.chain(first_rows, rows), columns.media, start, options.shard_size))
    return [TextShard(f"{name}-{number:06d}", path, dialect, columns, *piece) for number, piece in enumerate(pieces)]


def _read_column_names(
    file: IO[bytes], path: str, dialect: TableDialect, options: CorpusOptions
) -> tuple[TableDialect, int]:
    """Return the dialect with the column names, and the offset of the first row."""
    if dialect.form == "jsonl":
        return dialect, 0
    file.seek(0)
    end, values = next(dialect.records(dialect.lines(file)), (0, []))
    if not values:
        raise CorpusError(f"{path} is empty: a table begins with its column names")
    cells = [value.removeprefix("\ufeff").strip() for value in values]
    if has_header(cells) if options.header is None else options.header:
        return replace(dialect, names=tuple(cells)), end
    return replace(dialect, names=tuple(str(number) for number in range(1, len(cells) + 1)), numbered=True), 0


def _guess_columns(rows: list[dict[str, Any]], options: CorpusOptions) -> CorpusOptions:
    """Guess which unnamed columns hold media (paths or URLs) and captions (the longest of the other texts)."""
    cells = {name: [str(row.get(name) or "") for row in rows] for name in rows[0]}
    media = options.media_column or max(cells, key=lambda name: sum(not has_header([cell]) for cell in cells[name]))
    text_columns = [name for name in cells if name not in (media, options.key_column)]
    longest = max(text_columns, key=lambda name: sum(map(len, cells[name])), default=None)
    return replace(options, media_column=media, caption_column=options.caption_column or longest)


def _cut_byte_ranges(
    rows: Iterable[tuple[int, Fields]], media: str, start: int, size: int
) -> Iterator[tuple[int, int, int]]:
    """Yield (start, end, first row) of byte ranges of `size` media."""
    first, count, end, previous = 0, 0, start, None
    for row, (row_end, fields) in enumerate(rows):
        current = fields.get(media) if fields else None
        if not current or current != previous:
            if count == size:
                yield start, end, first
                start, first, count = end, row, 0
            count += 1
        previous, end = current, row_end
    yield start, end, first


def _read_text_rows(file: IO[bytes], dialect: TableDialect) -> Iterator[tuple[int, Fields]]:
    """Yield each row with the number of bytes up to its end."""
    if dialect.form != "jsonl":
        for end, values in dialect.records(dialect.lines(file)):
            yield end, dict(zip(dialect.names, values, strict=False))
        return
    end = 0
    for line in dialect.lines(file):
        end += len(line)
        if text := dialect.text(line).removeprefix("\ufeff").strip():
            yield end, parse_record(text)

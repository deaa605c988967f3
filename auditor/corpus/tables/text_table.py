"""CSV, TSV and JSON lines: one pass when the corpus is opened finds where each virtual shard begins.

A shard is a stretch of bytes, so that it is small to ship and is read without what comes before it. Rows that follow
one another and name the same medium stay together.
"""

import csv
import io
import itertools
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

from auditor.corpus import remote_files
from auditor.corpus.caption_text import parse_record
from auditor.corpus.read_medium import media_reader
from auditor.corpus.sample import Kind
from auditor.corpus.shard import CorpusError, CorpusOptions, OpenShard, ShardError
from auditor.corpus.tables.csv_dialect import Dialect, find_dialect, has_header
from auditor.corpus.tables.entry_shard import Entry, entries_fingerprint, samples_of
from auditor.corpus.tables.table import Columns, choose_columns, entry_of

LOOKED_AT = 100  # rows of JSON lines that tell which columns there are
Fields = dict[str, Any] | None  # of a row; None for a line that is no JSON object


@dataclass(frozen=True, slots=True)
class TextShard:
    """The bytes `start` to `end` of a table, which begin with row `first`."""

    name: str
    path: str
    dialect: Dialect
    columns: Columns
    start: int
    end: int
    first: int

    def fingerprint(self) -> str:
        """Of the rows, and of the files they name."""
        return entries_fingerprint(self.folder, self.entries())

    @contextmanager
    def open(self) -> Iterator[OpenShard]:
        default: Kind = "video" if "video" in self.columns.media.lower() else "image"
        samples = samples_of(self.name, self.folder, self.entries(), default)
        yield OpenShard(samples, self.problems() if self.first == 0 else [], media_reader)

    def problems(self) -> list[str]:
        """What was found out about the table and may be wrong; said once, by its first shard."""
        found = []
        if not self.dialect.encoding.startswith("utf"):
            found.append(
                f"{self.path} is not in UTF-8 and was read as {self.dialect.encoding}; --encoding says otherwise"
            )
        if self.dialect.numbered:
            found.append(
                f"{self.path} has no header: column {self.columns.media} was taken for the media and column "
                f"{self.columns.caption} for the captions; --media-column and --caption-column say otherwise"
            )
        return found

    @property
    def folder(self) -> str:
        """What its paths are relative to."""
        return os.path.dirname(self.path)

    @property
    def caption_column(self) -> str:
        return self.columns.caption

    @property
    def timed(self) -> bool:
        """Whether its captions may have spans."""
        return self.columns.start is not None

    def column_names(self) -> list[str]:
        """All of them; of JSON lines those of the first row, as others may have others."""
        return list(self.dialect.names) or list(next((fields for _, fields in self.rows()), {}))

    def rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """The number and the cells of each row that can be read."""
        for number, (_, fields) in enumerate(_rows(io.BytesIO(self.content()), self.dialect), self.first):
            if fields is not None:
                yield number, fields

    def entries(self) -> list[Entry]:
        rows = _rows(io.BytesIO(self.content()), self.dialect)
        return [self.entry(self.first + number, fields) for number, (_, fields) in enumerate(rows)]

    def entry(self, row: int, fields: Fields) -> Entry:
        if fields is None:
            return Entry(row, "", (), defect=f"row {row} of {self.path} is not a JSON object")
        return entry_of(row, fields, self.columns)

    def content(self) -> bytes:
        try:
            if remote_files.is_url(self.path):
                data = remote_files.read_range(self.path, self.start, self.end - self.start)
            else:
                with open(self.path, "rb") as file:
                    file.seek(self.start)
                    data = file.read(self.end - self.start)
        except FileNotFoundError:
            raise ShardError(self.name, f"{self.path} does not exist") from None
        except (OSError, CorpusError) as error:
            raise ShardError(self.name, str(error)) from error
        if len(data) != self.end - self.start:
            raise ShardError(self.name, f"{self.path} is shorter than when the corpus was opened")
        return data


def list_text(path: str, form: str, name: str, options: CorpusOptions) -> list[TextShard]:
    """Read the table once and cut it."""
    try:
        if remote_files.is_url(path):
            with remote_files.fetched(path) as descriptor, open(descriptor, "rb", closefd=False) as file:
                return _cut(file, path, form, name, options)
        with open(path, "rb") as file:
            return _cut(file, path, form, name, options)
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error}") from error
    except csv.Error as error:
        raise CorpusError(f"{path} is not a readable {form.upper()} table: {error}") from error


def _cut(file: BinaryIO, path: str, form: str, name: str, options: CorpusOptions) -> list[TextShard]:
    dialect, start = _header(file, path, find_dialect(file, form, options), options)
    file.seek(start)
    rows = ((start + end, fields) for end, fields in _rows(file, dialect))
    looked_at = list(itertools.islice(rows, LOOKED_AT))
    if not looked_at:
        raise CorpusError(f"{path} has no rows")
    names = dialect.names or tuple(dict.fromkeys(name for _, fields in looked_at for name in fields or ()))
    if dialect.numbered:
        options = _guessed([fields or {} for _, fields in looked_at], options)
    columns = choose_columns(path, names, options)
    pieces = list(_pieces(itertools.chain(looked_at, rows), columns.media, start, options.shard_size))
    return [TextShard(f"{name}-{number:06d}", path, dialect, columns, *piece) for number, piece in enumerate(pieces)]


def _header(file: BinaryIO, path: str, dialect: Dialect, options: CorpusOptions) -> tuple[Dialect, int]:
    """The dialect with the names of the columns, and where the rows begin."""
    if dialect.form == "jsonl":
        return dialect, 0
    file.seek(0)
    end, values = next(dialect.records(dialect.lines(file)), (0, []))
    if not values:
        raise CorpusError(f"{path} is empty: a table begins with the names of its columns")
    cells = [value.removeprefix("\ufeff").strip() for value in values]
    if has_header(cells) if options.header is None else options.header:
        return replace(dialect, names=tuple(cells)), end
    return replace(dialect, names=tuple(str(number) for number in range(1, len(cells) + 1)), numbered=True), 0


def _guessed(rows: list[dict[str, Any]], options: CorpusOptions) -> CorpusOptions:
    """Which of the columns without names hold media (paths or URLs) and captions (the longest text of the others)."""
    names = list(rows[0])
    media = options.media_column or max(
        names, key=lambda name: sum(not has_header([str(row.get(name) or "")]) for row in rows)
    )
    others = [name for name in names if name not in (media, options.key_column)]
    longest = max(others, key=lambda name: sum(len(str(row.get(name) or "")) for row in rows), default=None)
    return replace(options, media_column=media, caption_column=options.caption_column or longest)


def _pieces(rows: Iterable[tuple[int, Fields]], media: str, start: int, size: int) -> Iterator[tuple[int, int, int]]:
    """(start, end, first row) of stretches of `size` media."""
    first, count, end, previous = 0, 0, start, None
    for row, (after, fields) in enumerate(rows):
        current = fields.get(media) if fields else None
        if not current or current != previous:
            if count == size:
                yield start, end, first
                start, first, count = end, row, 0
            count += 1
        previous, end = current, after
    yield start, end, first


def _rows(file: BinaryIO, dialect: Dialect) -> Iterator[tuple[int, Fields]]:
    """Each row with the number of bytes up to its end."""
    if dialect.form != "jsonl":
        for after, values in dialect.records(dialect.lines(file)):
            yield after, dict(zip(dialect.names, values, strict=False))
        return
    after = 0
    for line in dialect.lines(file):
        after += len(line)
        if text := dialect.text(line).removeprefix("\ufeff").strip():
            yield after, parse_record(text)

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
from dataclasses import dataclass
from typing import Any, BinaryIO

from auditor.corpus import remote
from auditor.corpus.captions import TOO_LONG, parse_record, safe_text
from auditor.corpus.media import media_reader
from auditor.corpus.shard import CorpusError, CorpusOptions, OpenShard, ShardError
from auditor.corpus.tables.entries import Entry, entries_fingerprint, samples_of
from auditor.corpus.tables.table import Columns, choose_columns, entry_of
from auditor.sample import Kind

LOOKED_AT = 100  # rows of JSON lines that tell which columns there are
Fields = dict[str, Any] | None  # of a row; None for a line that is no JSON object


@dataclass(frozen=True, slots=True)
class TextShard:
    """The bytes `start` to `end` of a table, which begin with row `first`."""

    name: str
    path: str
    form: str
    header: tuple[str, ...]  # of CSV and TSV
    columns: Columns
    start: int
    end: int
    first: int

    def fingerprint(self) -> str:
        """Of the rows, and of the files they name."""
        return entries_fingerprint(os.path.dirname(self.path), self.entries())

    @contextmanager
    def open(self) -> Iterator[OpenShard]:
        default: Kind = "video" if "video" in self.columns.media.lower() else "image"
        samples = samples_of(self.name, os.path.dirname(self.path), self.entries(), default)
        yield OpenShard(samples, [], media_reader)

    def entries(self) -> list[Entry]:
        rows = _rows(io.BytesIO(self.content()), self.form, self.header)
        return [self.entry(self.first + number, fields) for number, (_, fields) in enumerate(rows)]

    def entry(self, row: int, fields: Fields) -> Entry:
        if fields is None:
            return Entry(row, "", (), defect=f"row {row} of {self.path} is not a JSON object")
        return entry_of(row, fields, self.columns)

    def content(self) -> bytes:
        try:
            if remote.is_url(self.path):
                data = remote.read_range(self.path, self.start, self.end - self.start)
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
        if remote.is_url(path):
            with remote.fetched(path) as descriptor, open(descriptor, "rb", closefd=False) as file:
                return _cut(file, path, form, name, options)
        with open(path, "rb") as file:
            return _cut(file, path, form, name, options)
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error}") from error
    except csv.Error as error:
        raise CorpusError(f"{path} is not a readable {form.upper()} table: {error}") from error


def _cut(file: BinaryIO, path: str, form: str, name: str, options: CorpusOptions) -> list[TextShard]:
    header = _header(file, path, form)
    start = file.tell()
    rows = ((start + end, fields) for end, fields in _rows(file, form, header))
    looked_at = list(itertools.islice(rows, LOOKED_AT))
    if not looked_at:
        raise CorpusError(f"{path} has no rows")
    names = header or tuple(dict.fromkeys(name for _, fields in looked_at for name in fields or ()))
    columns = choose_columns(path, names, options)
    pieces = list(_pieces(itertools.chain(looked_at, rows), columns.media, start, options.shard_size))
    return [
        TextShard(f"{name}-{number:06d}", path, form, header, columns, *piece) for number, piece in enumerate(pieces)
    ]


def _header(file: BinaryIO, path: str, form: str) -> tuple[str, ...]:
    """The first record of a CSV or TSV; leaves the file behind it."""
    if file.read(2) in (b"\xff\xfe", b"\xfe\xff"):
        raise CorpusError(f"{path} is in UTF-16: convert it to UTF-8 (iconv -f utf-16 -t utf-8)")
    file.seek(0)
    if form == "jsonl":
        return ()
    end, values = next(_records(file, form), (0, []))
    if not values:
        raise CorpusError(f"{path} is empty: a table begins with the names of its columns")
    file.seek(end)
    return tuple(value.removeprefix("\ufeff").strip() for value in values)


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


def _rows(lines: Iterable[bytes], form: str, header: tuple[str, ...]) -> Iterator[tuple[int, Fields]]:
    """Each row with the number of bytes up to its end."""
    if form != "jsonl":
        for after, values in _records(lines, form):
            yield after, dict(zip(header, values, strict=False))
        return
    after = 0
    for line in lines:
        after += len(line)
        if line.strip():
            yield after, parse_record(line)


def _records(lines: Iterable[bytes], form: str) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(TOO_LONG)
    after = 0

    def texts() -> Iterator[str]:
        nonlocal after
        for line in lines:
            after += len(line)
            # a lone carriage return is no end of a row; csv refuses it outside quotes
            yield safe_text(line.decode("utf-8", "replace")).rstrip("\r\n").replace("\r", " ") + "\n"

    # the reader takes a further line only where a quoted field is still open, so `after` is the end of the record
    for values in csv.reader(texts(), delimiter="\t" if form == "tsv" else ","):
        if values:
            yield after, values

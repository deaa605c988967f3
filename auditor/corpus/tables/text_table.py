"""CSV, TSV and JSON lines: one pass when the corpus is opened finds the start of each virtual shard.

A shard is a byte range, read without the rows before it. Consecutive rows of one medium stay in one shard. DuckDB's
`sniff_csv` is not used: it reports a header for a table of paths and captions that has none, reads only three
encodings, and gives no byte offsets of rows.
"""

import codecs
import csv
import io
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import IO, Any

from auditor.corpus.caption_text import find_encoding, parse_record, replace_unsafe
from auditor.corpus.corpus_files import is_url, open_copy, read_range
from auditor.corpus.file_names import guess_media_kind
from auditor.corpus.read_medium import read_medium_bytes
from auditor.corpus.shard import (
    DEFAULT_OPTIONS,
    CorpusError,
    CorpusOptions,
    OpenShard,
    ShardError,
    convert_shard_errors,
)
from auditor.corpus.tables.entry_shard import TableEntry, build_entry_samples, fingerprint_entries, refuse_outside_media
from auditor.corpus.tables.table import TableColumns, build_entry, choose_columns, limit_text

COLUMN_SAMPLE_ROWS = 100  # of JSON lines, examined to find the columns
Fields = dict[str, Any] | None  # cells of a row; None for a line that is not a JSON object
DELIMITERS = ",;\t|"
DELIMITER_ROWS = 50  # examined to detect the delimiter
SAMPLE = 65_536  # bytes examined to detect encoding and line ends
CHUNK = 2**20
MAX_CELL = 16 * 2**20  # characters of a cell
MAX_LINE = 2 * MAX_CELL  # a sparse file may hold a line of terabytes
# byte order marks, and the encodings of lines, which have no mark
MARKS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe\0\0": "utf-32-le", b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}


@dataclass(frozen=True, slots=True)
class TableDialect:
    """How a table is written. `numbered`: the table has no column names, and `names` are 1, 2, ..."""

    form: str  # csv, tsv or jsonl
    encoding: str
    delimiter: str = ","
    names: tuple[str, ...] = ()
    numbered: bool = False
    returns: bool = False  # rows end with a lone carriage return, as on old Macs

    def lines(self, file: IO[bytes]) -> Iterator[bytes]:
        """Yield the lines of a file, or of a byte range of one, with their line ends; a longer line in pieces."""
        if not self.returns and not self.wide:
            yield from iter(lambda: file.readline(MAX_LINE), b"")
            return
        encoding = self.encoding if self.wide else "latin-1"  # which keeps every byte
        text = io.TextIOWrapper(file, encoding, "replace", newline="\r" if self.returns else "\n")
        try:
            yield from (line.encode(encoding) for line in iter(lambda: text.readline(MAX_LINE), ""))
        finally:
            text.detach()  # else the file would be closed

    @property
    def wide(self) -> bool:
        """Whether a line break has more than one byte."""
        return self.encoding.startswith(("utf-16", "utf-32"))

    def text(self, line: bytes) -> str:
        return replace_unsafe(line.decode(self.encoding, "replace"))

    def records(self, lines: Iterable[bytes]) -> Iterator[tuple[int, list[str]]]:
        """Yield the cells of each row of a CSV with the number of bytes up to its end."""
        csv.field_size_limit(MAX_CELL)
        end = 0

        def texts() -> Iterator[str]:
            nonlocal end
            for line in lines:
                end += len(line)
                # a lone carriage return does not end a row; csv rejects it outside quotes
                yield self.text(line).rstrip("\r\n").replace("\r", " ") + "\n"

        # the reader takes a further line only inside a quoted field, so `end` is the end of the row
        for values in csv.reader(texts(), delimiter=self.delimiter):
            if values:
                yield end, values


def find_dialect(file: IO[bytes], form: str, options: CorpusOptions) -> TableDialect:
    """Detect the dialect from the beginning of a table; changes the position of the file."""
    dialect = TableDialect(form, find_table_encoding(file, options.encoding))
    file.seek(0)
    if form == "jsonl":
        return dialect
    start = file.read(SAMPLE)
    dialect = replace(dialect, returns=b"\r" in start and b"\n" not in start and not dialect.wide)
    file.seek(0)
    lines = list(itertools.islice(dialect.lines(file), 20 * DELIMITER_ROWS))
    delimiter = options.delimiter or ("\t" if form == "tsv" else _guess_delimiter(dialect, lines))
    return replace(dialect, delimiter=delimiter)


def find_table_encoding(file: IO[bytes], default: str | None) -> str:
    """Find the encoding from the whole file: the only caption beyond ASCII may be in the last row."""
    start = file.read(SAMPLE)
    if encoding := next((name for mark, name in MARKS.items() if start.startswith(mark)), default):
        return encoding
    if b"\0" in start and (guess := find_encoding(start)).startswith("utf-16"):
        return guess
    file.seek(0)
    decoder = codecs.getincrementaldecoder("utf-8")()
    while chunk := file.read(CHUNK):
        try:
            decoder.decode(chunk)
        except UnicodeDecodeError as error:
            first = max(0, error.start - SAMPLE // 2)
            return find_encoding(error.object[first : first + SAMPLE])
    return "utf-8"


def _guess_delimiter(dialect: TableDialect, lines: Sequence[bytes]) -> str:
    """Return the delimiter that gives most of the first rows the same number of cells (over 1), else a comma."""

    def score(delimiter: str) -> tuple[bool, float, int]:
        try:
            widths = [len(cells) for _, cells in replace(dialect, delimiter=delimiter).records(lines)][:DELIMITER_ROWS]
        except csv.Error:
            return False, 0.0, 0
        width = widths[0] if widths else 0
        return width > 1, sum(count == width for count in widths) / max(len(widths), 1), width

    return max(DELIMITERS, key=score)


def has_header(cells: Sequence[str]) -> bool:
    """Return whether cells are column names: none of them names a medium."""
    return not any(is_url(cell) or ("." in cell and guess_media_kind(cell) is not None) for cell in cells)


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
    options: CorpusOptions = DEFAULT_OPTIONS

    def fingerprint(self) -> str:
        return fingerprint_entries(self.folder, self.entries(), self.options)

    @contextmanager
    def open(self) -> Iterator[OpenShard]:
        entries, kind = self.entries(), self.columns.default_kind
        samples = build_entry_samples(self.name, self.folder, entries, self.options, kind)
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
                f"{self.columns.captions[0]} for the captions; set others with --media-column and --caption-column"
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
        entries = (
            TableEntry(row, "", (), defect=f"row {row} of {self.path} is not a JSON object")
            if fields is None
            else build_entry(row, fields, self.columns)
            for row, fields in self.lines()
        )
        return list(limit_text(entries))

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
    media = [fields.get(columns.media) for _, fields in first_rows if fields]
    refuse_outside_media(path, [place for place in media if isinstance(place, str) and place], options)
    pieces = list(_cut_byte_ranges(itertools.chain(first_rows, rows), columns.media, start, options.shard_size))
    return [
        TextShard(f"{name}-{number:06d}", path, dialect, columns, *piece, options)
        for number, piece in enumerate(pieces)
    ]


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
    longest = sorted(text_columns, key=lambda name: -sum(map(len, cells[name])))[:1]
    return replace(options, media_column=media, caption_column=options.caption_column or tuple(longest))


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

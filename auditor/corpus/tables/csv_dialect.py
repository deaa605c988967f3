"""Detect how a text table is written: its encoding, its delimiter, and whether it begins with column names.

DuckDB's `sniff_csv` is not used: it reports a header for a table of paths and captions that has none, reads only three
encodings, and gives no byte offsets of rows.
"""

import codecs
import csv
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import IO

from auditor.corpus.caption_text import ENCODING_SAMPLE_BYTES, MAX_CAPTION_BYTES, find_encoding, replace_unsafe
from auditor.corpus.corpus_files import is_url
from auditor.corpus.file_names import guess_media_kind
from auditor.corpus.shard import CorpusOptions

DELIMITERS = ",;\t|"
DELIMITER_ROWS = 50  # examined to detect the delimiter
CHUNK = 2**20
# byte order marks, and the encodings of lines, which have no mark
MARKS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe\0\0": "utf-32-le", b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_RETURN = re.compile(rb"[^\r]*\r|[^\r]+")


@dataclass(frozen=True, slots=True)
class TableDialect:
    """How a table is written. `numbered`: the table has no column names, and `names` are 1, 2, ..."""

    form: str  # csv, tsv or jsonl
    encoding: str
    delimiter: str = ","
    names: tuple[str, ...] = ()
    numbered: bool = False
    returns: bool = False  # rows end with a lone carriage return, as on old Macs

    def lines(self, file: IO[bytes]) -> Iterable[bytes]:
        """Return the lines of a file, or of a byte range of one, with their line ends."""
        if self.returns:
            return (line[0] for line in _RETURN.finditer(file.read()))
        if not self.wide:
            return file
        text = file.read().decode(self.encoding, "replace")
        return (line[0].encode(self.encoding) for line in _LINE.finditer(text))

    @property
    def wide(self) -> bool:
        """Whether a line break has more than one byte."""
        return self.encoding.startswith(("utf-16", "utf-32"))

    def text(self, line: bytes) -> str:
        return replace_unsafe(line.decode(self.encoding, "replace"))

    def records(self, lines: Iterable[bytes]) -> Iterator[tuple[int, list[str]]]:
        """Yield the cells of each row of a CSV with the number of bytes up to its end."""
        csv.field_size_limit(MAX_CAPTION_BYTES)
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
    start = file.read(ENCODING_SAMPLE_BYTES)
    dialect = replace(dialect, returns=b"\r" in start and b"\n" not in start and not dialect.wide)
    file.seek(0)
    lines = list(itertools.islice(dialect.lines(file), 20 * DELIMITER_ROWS))
    delimiter = options.delimiter or ("\t" if form == "tsv" else _guess_delimiter(dialect, lines))
    return replace(dialect, delimiter=delimiter)


def find_table_encoding(file: IO[bytes], default: str | None) -> str:
    """Find the encoding from the whole file: the only caption beyond ASCII may be in the last row."""
    start = file.read(ENCODING_SAMPLE_BYTES)
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
            first = max(0, error.start - ENCODING_SAMPLE_BYTES // 2)
            return find_encoding(error.object[first : first + ENCODING_SAMPLE_BYTES])
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

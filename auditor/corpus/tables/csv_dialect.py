"""How a text table is written: its encoding, its delimiter, and whether it begins with the names of its columns.

Each is found out where it is not given: Unicode by its bytes, another encoding by its bytes beyond ASCII, the delimiter
by the one that cuts the first rows into equally many cells, a header by the absence of anything that names a medium.
"""

import codecs
import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO

from auditor.corpus import remote_files
from auditor.corpus.caption_text import BYTE_ORDER_MARKS, LOOKED_AT, TOO_LONG, find_encoding, safe_text
from auditor.corpus.file_names import kind_of
from auditor.corpus.shard import CorpusOptions

DELIMITERS = ",;\t|"
ROWS = 50  # that tell the delimiter
CHUNK = 2**20
MARKED = {  # with the order of their bytes, for lines that bear no mark
    ("utf-16", b"\xff\xfe"): "utf-16-le",
    ("utf-16", b"\xfe\xff"): "utf-16-be",
    ("utf-32", b"\xff\xfe\0\0"): "utf-32-le",
}
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_RETURN = re.compile(rb"[^\r]*\r|[^\r]+")


@dataclass(frozen=True, slots=True)
class Dialect:
    """`names` are those of the columns; `numbered` where the table has none and they are called 1, 2, ..."""

    form: str  # csv, tsv or jsonl
    encoding: str
    delimiter: str = ","
    names: tuple[str, ...] = ()
    numbered: bool = False
    returns: bool = False  # rows end with a carriage return alone, as in tables of old Macs

    def lines(self, file: BinaryIO) -> Iterable[bytes]:
        """The lines of a file, or of a stretch of one, with their ends."""
        if self.returns:
            return (line[0] for line in _RETURN.finditer(file.read()))
        if not self.wide:
            return file
        text = file.read().decode(self.encoding, "replace")
        return (line[0].encode(self.encoding) for line in _LINE.finditer(text))

    @property
    def wide(self) -> bool:
        """Whether a line break takes more than one byte."""
        return self.encoding.startswith(("utf-16", "utf-32"))

    def text(self, line: bytes) -> str:
        return safe_text(line.decode(self.encoding, "replace"))

    def records(self, lines: Iterable[bytes]) -> Iterator[tuple[int, list[str]]]:
        """Each row of a CSV as its cells, with the number of bytes up to its end."""
        csv.field_size_limit(TOO_LONG)
        after = 0

        def texts() -> Iterator[str]:
            nonlocal after
            for line in lines:
                after += len(line)
                # a lone carriage return is no end of a row; csv refuses it outside quotes
                yield self.text(line).rstrip("\r\n").replace("\r", " ") + "\n"

        # the reader takes a further line only where a quoted field is still open, so `after` is the end of the record
        for values in csv.reader(texts(), delimiter=self.delimiter):
            if values:
                yield after, values


def find_dialect(file: BinaryIO, form: str, options: CorpusOptions) -> Dialect:
    """Look at a table from its beginning; the position of the file afterwards is anywhere."""
    dialect = Dialect(form, table_encoding(file, options.encoding))
    file.seek(0)
    if form == "jsonl":
        return dialect
    start = file.read(LOOKED_AT)
    dialect = replace(dialect, returns=b"\r" in start and b"\n" not in start and not dialect.wide)
    file.seek(0)
    lines = list(_first(dialect.lines(file), 20 * ROWS))
    delimiter = options.delimiter or ("\t" if form == "tsv" else _delimiter(dialect, lines))
    return replace(dialect, delimiter=delimiter)


def table_encoding(file: BinaryIO, given: str | None) -> str:
    """Of the whole file: one caption beyond ASCII in the last row tells it."""
    start = file.read(LOOKED_AT)
    for mark, encoding in BYTE_ORDER_MARKS.items():
        if start.startswith(mark):
            return MARKED.get((encoding, mark), "utf-8")
    if given is not None:
        return given
    if b"\0" in start and (found := find_encoding(start)).startswith("utf-16"):
        return found
    file.seek(0)
    decoder = codecs.getincrementaldecoder("utf-8")()
    while chunk := file.read(CHUNK):
        try:
            decoder.decode(chunk)
        except UnicodeDecodeError as error:
            near = max(0, error.start - LOOKED_AT // 2)
            return find_encoding(error.object[near : near + LOOKED_AT])
    return "utf-8"


def _first(lines: Iterable[bytes], most: int) -> Iterator[bytes]:
    for number, line in enumerate(lines):
        if number == most:
            return
        yield line


def _delimiter(dialect: Dialect, lines: Sequence[bytes]) -> str:
    """The one that cuts most of the first rows into the same number of cells, several; a comma where none does."""

    def score(delimiter: str) -> tuple[bool, float, int]:
        try:
            widths = [len(cells) for _, cells in replace(dialect, delimiter=delimiter).records(lines)][:ROWS]
        except csv.Error:
            return False, 0.0, 0
        width = widths[0] if widths else 0
        return width > 1, sum(found == width for found in widths) / max(len(widths), 1), width

    return max(DELIMITERS, key=score)


def has_header(cells: Sequence[str]) -> bool:
    """Names of columns name no medium."""
    return not any(remote_files.is_url(cell) or ("." in cell and kind_of(cell) is not None) for cell in cells)

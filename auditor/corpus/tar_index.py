"""Where the members of a tar are: a walk over its headers that survives damage.

The standard `tarfile` stops, or raises, at the first bad header; here the walk is taken up again at the next header
whose checksum is right, and what was skipped is told. Reads ustar, GNU (long names, big sizes) and pax (path, size).
"""

import os
import re
from dataclasses import dataclass, field, replace

from auditor.corpus.file_names import as_text

BLOCK = 512
CHUNK = 2048 * BLOCK
LONGEST_EXTENSION = 2**20  # of a long name or a pax header: more is damage, not a name
_CHECKSUM = re.compile(rb"[ 0-7]{5}")  # how the field begins in a header, and hardly ever elsewhere

_RECORD = re.compile(rb"(\d{1,7}) ([^=]+)=")


class NotATarError(Exception):
    """Not one readable header in the file."""


@dataclass(frozen=True, slots=True)
class Member:
    """One file of the archive. `present` is less than `size` where the archive ends early.

    A link, a sparse file or a device has a name but no bytes of its own: `regular` is False.
    """

    name: str
    offset: int
    size: int
    present: int
    regular: bool = True


@dataclass(frozen=True, slots=True)
class Header:
    """The fields of a header block that matter here."""

    name: str
    size: int
    type: bytes
    extended: bool  # an old GNU sparse file whose map goes on in the next block

    @property
    def has_data(self) -> bool:
        """Links, devices, folders and fifos (1 to 6) have none, whatever their size field says."""
        return self.type not in b"123456"


@dataclass(slots=True)
class TarIndex:
    """The members in file order, and what was wrong on the way."""

    members: list[Member] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def index_tar(fd: int, size: int) -> TarIndex:
    """Walk the tar of `size` bytes behind the descriptor. Reads headers only."""
    return _Walk(fd, size).run()


def parse_header(block: bytes) -> Header | None:
    """The header in a block of 512 bytes; None if its checksum or a number is wrong."""
    recorded = parse_number(block[148:156])
    if recorded is None or recorded not in _checksums(block):
        return None
    size = parse_number(block[124:136])
    if size is None or size < 0:
        return None
    name, type_ = _text(block[:100]), block[156:157]
    if block[257:263] == b"ustar\0" and block[345]:  # GNU ("ustar ") keeps times where POSIX keeps the prefix
        name = f"{_text(block[345:500])}/{name}"
    if type_ == b"\0":
        type_ = b"5" if name.endswith("/") else b"0"
    return Header(name, size, type_, extended=type_ == b"S" and block[482] != 0)


def parse_number(digits: bytes) -> int | None:
    """A number of a header: octal digits, or base 256 where the first bit is set."""
    if digits[0] in (0x80, 0xFF):
        value = int.from_bytes(digits[1:], "big")
        return value if digits[0] == 0x80 else value - 256 ** (len(digits) - 1)
    octal = digits.split(b"\0", 1)[0].strip()
    if not octal:
        return 0
    return int(octal, 8) if re.fullmatch(rb"[0-7]+", octal) else None


def _checksums(block: bytes) -> tuple[int, int]:
    rest = block[:148] + block[156:]
    unsigned = 256 + sum(rest)
    if rest.isascii():
        return unsigned, unsigned
    return unsigned, unsigned - 256 * sum(byte > 127 for byte in rest)  # some old writers summed signed bytes


def _text(field_: bytes) -> str:
    return field_.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")  # names that differ in any byte stay apart


def _padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


class _Walk:
    def __init__(self, fd: int, size: int) -> None:
        self.fd, self.size = fd, size
        self.index = TarIndex()
        self.pending: dict[str, str] = {}  # what extension headers say of the next member
        self.everywhere: dict[str, str] = {}  # what a global pax header says of all that follow
        self.marked = False  # the end-of-archive mark was seen
        self.headers = 0
        self.resumed = -1  # where the walk last went on after a bad header

    def run(self) -> TarIndex:
        position = 0
        while position < self.size:
            block = self.read(position, BLOCK)
            if not block.strip(b"\0"):
                position = self.skip_zeros(position)
            elif (header := parse_header(block) if len(block) == BLOCK else None) is None:
                position = self.resume(position)
            else:
                self.headers += 1
                self.marked = False
                position = self.take(header, position)
        if not self.headers and not self.marked:
            raise NotATarError
        if not self.marked and not self.index.problems:
            self.problem("no end-of-archive mark: the shard may have been cut off")
        return self.index

    def read(self, offset: int, size: int) -> bytes:
        return os.pread(self.fd, min(size, max(0, self.size - offset)), offset)

    def problem(self, message: str) -> None:
        self.index.problems.append(message)

    def take(self, header: Header, position: int) -> int:
        """Note the member (or extension) whose header is at `position`; returns where the next header is."""
        start = position + BLOCK
        if header.type in (b"L", b"K", b"x", b"X", b"g"):
            self.extend(header, start)
            return start + _padded(header.size)
        said = self.everywhere | self.pending
        self.pending = {}
        name, size = said.get("path") or header.name, header.size
        if (stated := said.get("size", "")).isascii() and stated.isdecimal() and len(stated) < 20:
            size = int(stated)
        more = header.extended
        while more:
            extension = self.read(start, BLOCK)
            more = len(extension) == BLOCK and extension[504] != 0
            start += BLOCK
        if not header.has_data:
            size = 0
        if header.type != b"5":
            sparse = header.type == b"S" or any(record.startswith("GNU.sparse") for record in said)
            name = said.get("GNU.sparse.name", name)
            self.note(name, start, size, regular=header.has_data and not sparse)
        return start + _padded(size)

    def note(self, name: str, start: int, size: int, *, regular: bool) -> None:
        present = max(0, min(size, self.size - start))
        if present < size:
            self.problem(f"the shard ends inside {as_text(name)}: {size - present} of its {size} bytes are missing")
        self.index.members.append(Member(name, start, size, present, regular))

    def extend(self, header: Header, start: int) -> None:
        """Keep what a long-name or pax header says of what follows it."""
        data = self.read(start, min(header.size, LONGEST_EXTENSION))
        if len(data) < header.size:
            self.problem(f"the extension header at offset {start - BLOCK} is cut off or far too long")
        elif header.type == b"L":
            self.pending["path"] = _text(data)
        elif header.type == b"g":
            self.everywhere |= _pax_records(data)
        elif header.type in (b"x", b"X"):
            self.pending |= _pax_records(data)

    def skip_zeros(self, position: int) -> int:
        """Go on after the end-of-archive mark: nothing should follow, but concatenated or holed tars do exist."""
        start = position
        while position < self.size:
            chunk = self.read(position, CHUNK)
            data = chunk.lstrip(b"\0")
            if data:
                position += (len(chunk) - len(data)) // BLOCK * BLOCK
                break
            position += len(chunk)
        self.pending = {}
        self.marked = True
        if position < self.size:
            self.problem(
                f"{position - start} zero bytes at offset {start} and more after them: "
                "readers that stop at the end-of-archive mark see nothing of what follows"
            )
        return min(position, self.size)

    def resume(self, position: int) -> int:
        """The offset of the next good header after the bad one at `position`, or the end."""
        self.pending = {}
        found = self.find_aligned(position + BLOCK)
        if found is None:
            found = self.find_shifted(position)
        if found is None:
            self.problem(f"bad header at offset {position}: no good one in the {self.size - position} bytes after it")
            return self.size
        self.problem(f"bad header at offset {position}: the walk goes on with the good one at offset {found}")
        self.resumed = found
        return found

    def find_aligned(self, position: int) -> int | None:
        while position + BLOCK <= self.size:
            chunk = self.read(position, CHUNK)
            for at in range(0, len(chunk) - BLOCK + 1, BLOCK):
                if _CHECKSUM.match(chunk, at + 148) and parse_header(chunk[at : at + BLOCK]):
                    return position + at
            if len(chunk) < BLOCK:
                break
            position += len(chunk) // BLOCK * BLOCK
        return None

    def find_shifted(self, bad: int) -> int | None:
        """Where bytes were lost or gained, headers are no longer on the grid: look for their magic instead.

        Lost bytes bring the next header nearer, into the space of the member before it, which is then incomplete.
        """
        last = self.index.members[-1] if self.index.members else None
        # never twice to the same place: a header found behind the bad one may lead straight back to it
        found = self.find_magic(max(last.offset if last else bad + 1, self.resumed + 1))
        if last and found is not None and found < bad:
            self.index.members[-1] = replace(last, present=max(0, last.size - (bad - found)))
        return found

    def find_magic(self, position: int) -> int | None:
        while position + BLOCK <= self.size:
            chunk = self.read(position, CHUNK + BLOCK)
            at = chunk.find(b"ustar", 257)
            while 0 <= at <= len(chunk) - (BLOCK - 257):
                if parse_header(chunk[at - 257 : at + BLOCK - 257]):
                    return position + at - 257
                at = chunk.find(b"ustar", at + 1)
            position += CHUNK
        return None


def _pax_records(data: bytes) -> dict[str, str]:
    """The `length keyword=value` lines of a pax header, as far as they make sense."""
    records: dict[str, str] = {}
    position = 0
    while match := _RECORD.match(data, position):
        length = int(match[1])
        if length <= match.end() - position or position + length > len(data):
            break
        value = data[match.end() : position + length - 1]
        records[match[2].decode("utf-8", "backslashreplace")] = value.decode("utf-8", "surrogateescape")
        position += length
    return records

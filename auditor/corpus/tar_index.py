"""Find the members of a tar by walking over its headers, even if some are damaged.

The standard `tarfile` stops or raises at the first bad header. This walk continues at the next header with a valid
checksum and reports the skipped bytes. It reads ustar, GNU (long names, big sizes) and pax (path, size).
"""

import os
import re
from dataclasses import dataclass, replace

from auditor.corpus.file_names import escape_name

BLOCK = 512
CHUNK = 2048 * BLOCK
MAX_EXTENSION_BYTES = 2**20  # of a long name or a pax header; a larger one is damaged
_CHECKSUM = re.compile(rb"[ 0-7]{5}")  # start of the field in a header, rare elsewhere

_RECORD = re.compile(rb"(\d{1,7}) ([^=]+)=")


class NotATarError(Exception):
    """The file has no readable header."""


@dataclass(frozen=True, slots=True)
class TarMember:
    """One file of the archive. `present` is less than `size` if the archive ends early.

    `regular` is False for a link, a sparse file or a device, which have no bytes of their own.
    """

    name: str
    offset: int
    size: int
    present: int
    regular: bool = True


@dataclass(frozen=True, slots=True)
class TarHeader:
    """The fields of a header block that the walk needs."""

    name: str
    size: int
    type: bytes
    extended: bool  # an old GNU sparse file whose map continues in the next block


@dataclass(frozen=True, slots=True)
class TarIndex:
    """The members in file order, and the problems of the walk."""

    members: list[TarMember]
    problems: list[str]


def index_tar(fd: int, size: int) -> TarIndex:
    return _TarWalker(fd, size).run()


def parse_tar_header(block: bytes) -> TarHeader | None:
    """Parse a block of 512 bytes; return None if its checksum or a number is wrong."""
    fields = block[:148] + block[156:]
    recorded, checksum = parse_tar_number(block[148:156]), 256 + sum(fields)
    # some old writers added signed bytes
    if recorded != checksum and recorded != checksum - 256 * sum(byte > 127 for byte in fields):
        return None
    size = parse_tar_number(block[124:136])
    if size is None or size < 0:
        return None
    name, type_ = _decode_name(block[:100]), block[156:157]
    if block[257:263] == b"ustar\0" and block[345]:  # GNU ("ustar ") stores times in the prefix field of POSIX
        name = f"{_decode_name(block[345:500])}/{name}"
    if type_ == b"\0":
        type_ = b"5" if name.endswith("/") else b"0"
    return TarHeader(name, size, type_, extended=type_ == b"S" and block[482] != 0)


def parse_tar_number(digits: bytes) -> int | None:
    """Parse a number of a header: octal digits, or base 256 if the first bit is set."""
    if digits[0] in (0x80, 0xFF):
        value = int.from_bytes(digits[1:], "big")
        return value if digits[0] == 0x80 else value - 256 ** (len(digits) - 1)
    octal = digits.split(b"\0", 1)[0].strip()
    if not octal:
        return 0
    return int(octal, 8) if re.fullmatch(rb"[0-7]+", octal) else None


def _decode_name(field_: bytes) -> str:
    return field_.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")  # different bytes stay different names


def _round_up_to_block(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


class _TarWalker:
    def __init__(self, fd: int, size: int) -> None:
        self.fd, self.size = fd, size
        self.members: list[TarMember] = []
        self.problems: list[str] = []
        self.pending: dict[str, str] = {}  # fields of extension headers for the next member
        self.defaults: dict[str, str] = {}  # fields of a global pax header for all members after it
        self.ended = False  # the end-of-archive mark has been read
        self.headers = 0
        self.resumed = -1  # where the walk last continued after a bad header

    def run(self) -> TarIndex:
        position = 0
        while position < self.size:
            block = self.read(position, BLOCK)
            if not block.strip(b"\0"):
                position = self.skip_zeros(position)
            elif (header := parse_tar_header(block) if len(block) == BLOCK else None) is None:
                position = self.find_next_header(position)
            else:
                self.headers += 1
                self.ended = False
                position = self.add_entry(header, position)
        if not self.headers and not self.ended:
            raise NotATarError
        if not self.ended and not self.problems:
            self.problems.append("no end-of-archive mark: the shard may have been cut off")
        return TarIndex(self.members, self.problems)

    def read(self, offset: int, size: int) -> bytes:
        return os.pread(self.fd, min(size, max(0, self.size - offset)), offset)

    def add_entry(self, header: TarHeader, position: int) -> int:
        """Add the member (or extension) whose header is at `position`; return the offset of the next header."""
        start = position + BLOCK
        if header.type in (b"L", b"K", b"x", b"X", b"g"):
            self.read_extension(header, start)
            return start + _round_up_to_block(header.size)
        fields = self.defaults | self.pending
        self.pending = {}
        name, size = fields.get("path") or header.name, header.size
        if (stated := fields.get("size", "")).isascii() and stated.isdecimal() and len(stated) < 20:
            size = int(stated)
        continued = header.extended
        while continued:
            extension = self.read(start, BLOCK)
            continued = len(extension) == BLOCK and extension[504] != 0
            start += BLOCK
        # links, devices, folders and fifos (types 1 to 6) have no data, even if their size field is not 0
        has_data = header.type not in b"123456"
        size = size if has_data else 0
        if header.type != b"5":
            sparse = header.type == b"S" or any(record.startswith("GNU.sparse") for record in fields)
            name = fields.get("GNU.sparse.name", name)
            present = max(0, min(size, self.size - start))
            if present < size:
                missing = f"{size - present} of its {size} bytes are missing"
                self.problems.append(f"the shard ends inside {escape_name(name)}: {missing}")
            self.members.append(TarMember(name, start, size, present, regular=has_data and not sparse))
        return start + _round_up_to_block(size)

    def read_extension(self, header: TarHeader, start: int) -> None:
        """Store the fields of a long-name or pax header for the members after it."""
        data = self.read(start, min(header.size, MAX_EXTENSION_BYTES))
        if len(data) < header.size:
            self.problems.append(f"the extension header at offset {start - BLOCK} is cut off or far too long")
        elif header.type == b"L":
            self.pending["path"] = _decode_name(data)
        elif header.type == b"g":
            self.defaults |= _parse_pax_records(data)
        elif header.type in (b"x", b"X"):
            self.pending |= _parse_pax_records(data)

    def skip_zeros(self, position: int) -> int:
        """Continue after the end-of-archive mark: concatenated tars and tars with holes have members there."""
        start = position
        while position < self.size:
            chunk = self.read(position, CHUNK)
            data = chunk.lstrip(b"\0")
            if data:
                position += (len(chunk) - len(data)) // BLOCK * BLOCK
                break
            position += len(chunk)
        self.pending = {}
        self.ended = True
        if position < self.size:
            self.problems.append(
                f"{position - start} zero bytes at offset {start} and more data after them: "
                "readers that stop at the end-of-archive mark miss that data"
            )
        return min(position, self.size)

    def find_next_header(self, position: int) -> int:
        """Return the offset of the next good header after the bad one at `position`, or the end."""
        self.pending = {}
        start = self.find_aligned(position + BLOCK)
        if start is None:
            start = self.find_shifted(position)
        if start is None:
            rest = self.size - position
            self.problems.append(f"bad header at offset {position}: no good one in the {rest} bytes after it")
            return self.size
        self.problems.append(f"bad header at offset {position}: the walk continues with the good one at offset {start}")
        self.resumed = start
        return start

    def find_aligned(self, position: int) -> int | None:
        while position + BLOCK <= self.size:
            chunk = self.read(position, CHUNK)
            for start in range(0, len(chunk) - BLOCK + 1, BLOCK):
                if _CHECKSUM.match(chunk, start + 148) and parse_tar_header(chunk[start : start + BLOCK]):
                    return position + start
            if len(chunk) < BLOCK:
                break
            position += len(chunk) // BLOCK * BLOCK
        return None

    def find_shifted(self, bad: int) -> int | None:
        """Find a header by its magic number: after lost or added bytes, headers are no longer at multiples of 512.

        Lost bytes move the next header into the space of the member before it, which is then incomplete.
        """
        last = self.members[-1] if self.members else None
        # never twice to the same offset: a header before the bad one may lead back to it
        start = self.find_magic(max(last.offset if last else bad + 1, self.resumed + 1))
        if last and start is not None and start < bad:
            self.members[-1] = replace(last, present=max(0, last.size - (bad - start)))
        return start

    def find_magic(self, position: int) -> int | None:
        while position + BLOCK <= self.size:
            chunk = self.read(position, CHUNK + BLOCK)
            magic = chunk.find(b"ustar", 257)
            while 0 <= magic <= len(chunk) - (BLOCK - 257):
                if parse_tar_header(chunk[magic - 257 : magic + BLOCK - 257]):
                    return position + magic - 257
                magic = chunk.find(b"ustar", magic + 1)
            position += CHUNK
        return None


def _parse_pax_records(data: bytes) -> dict[str, str]:
    """Parse the `length keyword=value` lines of a pax header, up to the first invalid one."""
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

"""A checksum of a Parquet file in its own footer: damage anywhere shows, and the file still appears in one rename.

The file is written with a checksum of zeros among its metadata, hashed as it is, and the zeros are overwritten with the
hash. To check it, the hash is put back to zeros on the way.
"""

import hashlib
import re
from pathlib import Path
from typing import IO

KEY = "checksum"
UNSEALED = "blake2b:" + "0" * 32  # the value to write under KEY
SEALED = re.compile(rb"blake2b:[0-9a-f]{32}")
CHUNK = 2**20


class DamagedError(Exception):
    """Not the bytes that were written."""


def seal(path: Path) -> None:
    """Give a file that has just been written its checksum; without effect on one that has no place for it."""
    with path.open("r+b") as file:
        start, footer = read_footer(file)
        place = footer.rfind(UNSEALED.encode())
        if place >= 0:
            file.seek(start + place)
            file.write(f"blake2b:{content_hash(file, start, footer)}".encode())


def is_sealed_whole(file: IO[bytes]) -> bool | None:
    """Whether a file is as it was written; None where it has no checksum."""
    try:
        start, footer = read_footer(file)
    except DamagedError:
        return False
    found = list(SEALED.finditer(footer))
    if not found:
        return None
    mark = found[-1]
    unsealed = footer[: mark.start()] + UNSEALED.encode() + footer[mark.end() :]
    return mark[0].decode() == f"blake2b:{content_hash(file, start, unsealed)}"


def read_footer(file: IO[bytes]) -> tuple[int, bytes]:
    """Where the footer starts, and all from there to the end."""
    size = file.seek(0, 2)
    file.seek(max(0, size - 8))
    end = file.read(8)
    length = int.from_bytes(end[:4], "little") + 8
    if end[4:] != b"PAR1" or length > size:
        raise DamagedError
    file.seek(size - length)
    return size - length, file.read(length)


def content_hash(file: IO[bytes], start: int, footer: bytes) -> str:
    """Of the bytes before `start`, as they are, and of the footer as given; the file's position stays."""
    position = file.tell()
    digest = hashlib.blake2b(digest_size=16)
    file.seek(0)
    left = start
    while left > 0 and (chunk := file.read(min(CHUNK, left))):
        digest.update(chunk)
        left -= len(chunk)
    digest.update(footer)
    file.seek(position)
    return digest.hexdigest()

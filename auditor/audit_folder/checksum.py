"""A checksum of a Parquet file in its own footer: it detects damage anywhere, and one rename still publishes the file.

The file is hashed with a checksum of zeros in its metadata; then the hash replaces the zeros.
"""

import hashlib
import re
from pathlib import Path
from typing import IO

CHECKSUM_KEY = "checksum"
EMPTY_CHECKSUM = "blake2b:" + "0" * 32  # the value to write under CHECKSUM_KEY
CHECKSUM = re.compile(rb"blake2b:[0-9a-f]{32}")
CHUNK = 2**20


class FooterError(Exception):
    """The file has no valid Parquet footer."""


def write_checksum(path: Path) -> None:
    """Write the checksum of a new file into its footer, if the footer has a place for it."""
    with path.open("r+b") as file:
        start, footer = read_footer(file)
        place = footer.rfind(EMPTY_CHECKSUM.encode())
        if place >= 0:
            checksum = f"blake2b:{hash_content(file, start, footer)}"
            file.seek(start + place)
            file.write(checksum.encode())


def verify_checksum(file: IO[bytes]) -> bool | None:
    """Return whether a file is as it was written, or None if it has no checksum."""
    try:
        start, footer = read_footer(file)
    except FooterError:
        return False
    matches = list(CHECKSUM.finditer(footer))
    if not matches:
        return None
    checksum = matches[-1]
    original = footer[: checksum.start()] + EMPTY_CHECKSUM.encode() + footer[checksum.end() :]
    return checksum[0].decode() == f"blake2b:{hash_content(file, start, original)}"


def read_footer(file: IO[bytes]) -> tuple[int, bytes]:
    """Return the offset of the footer, and the bytes from there to the end."""
    size = file.seek(0, 2)
    file.seek(max(0, size - 8))
    end = file.read(8)
    length = int.from_bytes(end[:4], "little") + 8
    if end[4:] != b"PAR1" or length > size:
        raise FooterError
    file.seek(size - length)
    return size - length, file.read(length)


def hash_content(file: IO[bytes], start: int, footer: bytes) -> str:
    digest = hashlib.blake2b(digest_size=16)
    file.seek(0)
    remaining = start
    while remaining > 0 and (chunk := file.read(min(CHUNK, remaining))):
        digest.update(chunk)
        remaining -= len(chunk)
    digest.update(footer)
    return digest.hexdigest()

"""Open a tar and read it by offset: plain or compressed, local or behind fsspec.

A remote tar is fetched whole, a compressed one (detected by its first bytes) is unpacked, both to an unnamed temporary
file. Offsets are those of the unpacked tar, and paths to its members end with `#compression=...`.
"""

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import IO

import pyarrow as pa

from auditor.corpus.corpus_files import open_copy, open_file
from auditor.corpus.tar_index import TarIndex, index_tar

COMPRESSIONS = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd"}
CHUNK = 2**16  # bytes; the most that a damaged end of a compressed shard costs
_TAR = re.compile(r"\.(tar(\.(gz|bz2|zst|zstd))?|tgz)$", re.IGNORECASE)
_COMPRESSION = re.compile(r"#compression=(gzip|bz2|zstd)$")


@dataclass(frozen=True, slots=True)
class OpenTar:
    """A tar that can be read by offset. `path` is the path of its members in an audit; `problems` are its defects."""

    fd: int
    path: str
    size: int
    problems: list[str]

    def index(self) -> TarIndex:
        """Find the members. Raises NotATarError."""
        return index_tar(self.fd, self.size)

    def read(self, offset: int, size: int) -> bytes:
        """Read `size` bytes, or as many as there are. One pread returns at most 2 GiB."""
        data = os.pread(self.fd, size, offset)
        while len(data) < size and (chunk := os.pread(self.fd, size - len(data), offset + len(data))):
            data += chunk
        return data


def is_tar(path: str) -> bool:
    return _TAR.search(path) is not None


def split_compression(path: str) -> tuple[str, str | None]:
    packed = _COMPRESSION.search(path)
    return (path[: packed.start()], packed[1]) if packed else (path, None)


@contextmanager
def open_tar(path: str) -> Iterator[OpenTar]:
    """Open a tar by its path or URL. Raises OSError or CorpusError."""
    with ExitStack() as stack:
        problems: list[str] = []
        file = stack.enter_context(open_copy(path))
        start = os.pread(file.fileno(), 4, 0)
        if compression := next((name for magic, name in COMPRESSIONS.items() if start.startswith(magic)), None):
            packed, file = file, stack.enter_context(tempfile.TemporaryFile(prefix="auditor-"))
            problems += _unpack_tar(packed, compression, file)
            path = f"{path}#compression={compression}"
        yield OpenTar(file.fileno(), path, os.fstat(file.fileno()).st_size, problems)


def read_compressed(path: str, compression: str, offset: int, size: int) -> bytes:
    """Read a byte range of the tar in a compressed file. Unpacks everything before the range and nothing after it."""
    with open_file(path) as source, pa.CompressedInputStream(source, compression) as stream:
        while offset > 0 and (skipped := len(stream.read(min(offset, 2**20)))):
            offset -= skipped
        return bytes(stream.read(size))


def _unpack_tar(packed: IO[bytes], compression: str, copy: IO[bytes]) -> Iterator[str]:
    """Unpack as far as possible and yield the problems: a damaged end costs the samples there, not the shard."""
    with pa.CompressedInputStream(packed, compression) as stream:
        chunk = b"start"
        while chunk:
            try:
                chunk = stream.read(CHUNK)
            except (pa.ArrowException, OSError) as error:
                yield f"cannot be unpacked to its end: {error}"
                break
            copy.write(chunk)
    copy.flush()

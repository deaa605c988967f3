"""Open a tar and read it by offset: plain or compressed, local or behind fsspec.

A remote tar is fetched whole. A compressed tar (gzip, bzip2, zstd, detected by its first bytes) is unpacked. Both use
an unnamed temporary file that disappears with the process. Offsets of a compressed tar are those of the unpacked one,
and paths to its members end with `#compression=...`.
"""

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pyarrow as pa

from auditor.corpus import remote_files
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
    """Return whether a path has the extension of a tar."""
    return _TAR.search(path) is not None


def split_compression(path: str) -> tuple[str, str | None]:
    """Split a path into the tar and its compression, if any."""
    packed = _COMPRESSION.search(path)
    return (path[: packed.start()], packed[1]) if packed else (path, None)


@contextmanager
def open_tar(path: str) -> Iterator[OpenTar]:
    """Open a tar by its path or URL. Raises OSError or CorpusError."""
    with ExitStack() as stack:
        problems: list[str] = []
        fd = stack.enter_context(_open_descriptor(path))
        if compression := _sniff_compression(os.pread(fd, 4, 0)):
            fd = stack.enter_context(_unpack_tar(fd, compression, problems))
            path = f"{path}#compression={compression}"
        yield OpenTar(fd, path, os.fstat(fd).st_size, problems)


def read_compressed(path: str, compression: str, offset: int, size: int) -> bytes:
    """Read a byte range of the tar in a compressed file. Unpacks everything before the range and nothing after it."""
    with ExitStack() as stack:
        source = remote_files.open_url(path) if remote_files.is_url(path) else open(path, "rb")  # noqa: SIM115 (closed below)
        stack.enter_context(source)
        stream = stack.enter_context(pa.CompressedInputStream(source, compression))
        while offset > 0 and (skipped := len(stream.read(min(offset, 2**20)))):
            offset -= skipped
        return bytes(stream.read(size))


@contextmanager
def _open_descriptor(path: str) -> Iterator[int]:
    if remote_files.is_url(path):
        with remote_files.fetch_copy(path) as fd:
            yield fd
        return
    fd = os.open(path, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


def _sniff_compression(start: bytes) -> str | None:
    return next((name for magic, name in COMPRESSIONS.items() if start.startswith(magic)), None)


@contextmanager
def _unpack_tar(fd: int, compression: str, problems: list[str]) -> Iterator[int]:
    """Unpack as far as possible: a damaged end costs the samples there, not the shard."""
    with tempfile.TemporaryFile(prefix="auditor-") as copy:
        with open(fd, "rb", closefd=False) as packed, pa.CompressedInputStream(packed, compression) as stream:
            while chunk := _read_unpacked_chunk(stream, problems):
                copy.write(chunk)
        copy.flush()
        yield copy.fileno()


def _read_unpacked_chunk(stream: pa.CompressedInputStream, problems: list[str]) -> bytes:
    try:
        return bytes(stream.read(CHUNK))
    except (pa.ArrowException, OSError) as error:
        problems.append(f"cannot be unpacked to its end: {error}")
        return b""

"""How a tar is opened and read by offset: plain or compressed, local or behind fsspec.

A remote tar is fetched whole, a compressed one (gzip, bzip2, zstd: told by its first bytes, not by its name) is
unpacked, each into a temporary file without a name that vanishes with the process. Offsets of a compressed tar are
those of the unpacked one, and paths to its members carry `#compression=...`.
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
CHUNK = 2**16  # what a damaged end of a compressed shard may cost
_TAR = re.compile(r"\.(tar(\.(gz|bz2|zst|zstd))?|tgz)$", re.IGNORECASE)
_PACKED = re.compile(r"#compression=(gzip|bz2|zstd)$")


@dataclass(frozen=True, slots=True)
class OpenTar:
    """A tar that can be read by offset. `path` is how its members are found again; `problems` are its damages."""

    fd: int
    path: str
    size: int
    problems: list[str]

    def index(self) -> TarIndex:
        """Where its members are; raises NotATarError."""
        return index_tar(self.fd, self.size)

    def read(self, offset: int, size: int) -> bytes:
        """All of the bytes asked for, or as many as there are: one pread returns at most 2 GiB."""
        data = os.pread(self.fd, size, offset)
        while len(data) < size and (more := os.pread(self.fd, size - len(data), offset + len(data))):
            data += more
        return data


def is_tar(path: str) -> bool:
    """By its name."""
    return _TAR.search(path) is not None


def split_compression(path: str) -> tuple[str, str | None]:
    """The tar that a path names, and what it is compressed with."""
    packed = _PACKED.search(path)
    return (path[: packed.start()], packed[1]) if packed else (path, None)


@contextmanager
def open_tar(path: str) -> Iterator[OpenTar]:
    """A tar by its path or URL; OSError or CorpusError where it cannot be had."""
    with ExitStack() as stack:
        problems: list[str] = []
        fd = stack.enter_context(_descriptor(path))
        if compression := _sniff(os.pread(fd, 4, 0)):
            fd = stack.enter_context(_unpacked(fd, compression, problems))
            path = f"{path}#compression={compression}"
        yield OpenTar(fd, path, os.fstat(fd).st_size, problems)


def read_packed(path: str, compression: str, offset: int, size: int) -> bytes:
    """A stretch of the tar in a compressed file. Unpacks all that comes before, and nothing after."""
    with ExitStack() as stack:
        source = remote_files.open_url(path) if remote_files.is_url(path) else open(path, "rb")  # noqa: SIM115 (closed below)
        stack.enter_context(source)
        stream = stack.enter_context(pa.CompressedInputStream(source, compression))
        while offset > 0 and (skipped := len(stream.read(min(offset, 2**20)))):
            offset -= skipped
        return bytes(stream.read(size))


@contextmanager
def _descriptor(path: str) -> Iterator[int]:
    if remote_files.is_url(path):
        with remote_files.fetched(path) as fd:
            yield fd
        return
    fd = os.open(path, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


def _sniff(start: bytes) -> str | None:
    return next((name for magic, name in COMPRESSIONS.items() if start.startswith(magic)), None)


@contextmanager
def _unpacked(fd: int, compression: str, problems: list[str]) -> Iterator[int]:
    """The tar inside, as far as it can be unpacked: a damaged end costs the samples there, not the shard."""
    with tempfile.TemporaryFile(prefix="auditor-") as copy:
        with open(fd, "rb", closefd=False) as packed, pa.CompressedInputStream(packed, compression) as stream:
            while chunk := _unpack(stream, problems):
                copy.write(chunk)
        copy.flush()
        yield copy.fileno()


def _unpack(stream: pa.CompressedInputStream, problems: list[str]) -> bytes:
    try:
        return bytes(stream.read(CHUNK))
    except (pa.ArrowException, OSError) as error:
        problems.append(f"cannot be unpacked to its end: {error}")
        return b""

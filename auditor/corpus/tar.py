"""Shards that are tars, as WebDataset writes them: plain or compressed, local or behind fsspec.

A remote shard is fetched whole, a compressed one (gzip, bzip2, zstd: told by its first bytes, not by its name) is
unpacked, each into a temporary file without a name that vanishes with the process. Offsets of a compressed shard are
those of the unpacked tar, and its media carry `#compression=...` in their path so that `auditor.corpus.media`
finds them too.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pyarrow as pa

from auditor.corpus import remote
from auditor.corpus.group import Part, build_sample, group_parts
from auditor.corpus.media import MediaError
from auditor.corpus.names import split_key
from auditor.corpus.shard import DEFAULTS, CorpusError, CorpusOptions, OpenShard, ShardError
from auditor.corpus.tarindex import Member, NotATarError, TarIndex, index_tar
from auditor.sample import Media

COMPRESSIONS = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd"}
CHUNK = 2**16  # what a damaged end of a compressed shard may cost


@dataclass(frozen=True, slots=True)
class TarShard:
    """One tar. `path` is absolute, or a URL."""

    name: str
    path: str
    options: CorpusOptions = DEFAULTS

    def fingerprint(self) -> str:
        """blake2b of the content of a local tar; from the store's own digest (ETag) and size for a remote one."""
        try:
            if remote.is_url(self.path):
                return remote.fingerprint(self.path)
            with open(self.path, "rb") as file:
                return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
        except (OSError, CorpusError) as error:
            raise self.unreadable(error) from error

    @contextmanager
    def open(self) -> Iterator[OpenShard]:
        with ExitStack() as stack:
            try:
                fd = stack.enter_context(_descriptor(self.path))
                compression = sniff_compression(os.pread(fd, 4, 0))
                problems: list[str] = []
                if compression:
                    fd = stack.enter_context(_unpacked(fd, compression, problems))
                shard = self.index(fd, compression, problems)
            except (OSError, CorpusError) as error:
                raise self.unreadable(error) from error
            yield shard

    def index(self, fd: int, compression: str | None, problems: list[str]) -> OpenShard:
        size = os.fstat(fd).st_size
        if size == 0:
            raise ShardError(self.name, f"{self.path} is empty (0 bytes)")
        try:
            index = index_tar(fd, size)
        except NotATarError:
            raise ShardError(self.name, f"{self.path} is not a tar: no readable header in {size} bytes") from None
        media_path = self.path if compression is None else f"{self.path}#compression={compression}"
        groups = group_parts(_part(member, media_path) for member in index.members)

        def read(item: Part | Media) -> bytes:
            data = _pread(fd, item.offset, item.size)
            if len(data) < item.size:
                raise MediaError(f"{self.path} was cut while it was read: no {item.size} bytes at {item.offset}")
            return data

        samples = [
            build_sample(self.name, key, occurrence, parts, read, self.options)
            for (key, occurrence), parts in groups.items()
        ]
        return OpenShard(samples, problems + index.problems + _unnamed(index), read)

    def unreadable(self, error: OSError | CorpusError) -> ShardError:
        if isinstance(error, ShardError):
            return error
        if isinstance(error, FileNotFoundError):
            return ShardError(self.name, f"{self.path} does not exist")
        return ShardError(self.name, str(error) if isinstance(error, CorpusError) else f"{self.path}: {error}")


def sniff_compression(start: bytes) -> str | None:
    """What the first bytes of a file say it is compressed with."""
    return next((name for magic, name in COMPRESSIONS.items() if start.startswith(magic)), None)


@contextmanager
def _descriptor(path: str) -> Iterator[int]:
    if remote.is_url(path):
        with remote.fetched(path) as fd:
            yield fd
        return
    fd = os.open(path, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


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


def _pread(fd: int, offset: int, size: int) -> bytes:
    """All of the bytes asked for, or as many as there are: one pread returns at most 2 GiB."""
    data = os.pread(fd, size, offset)
    while len(data) < size and (more := os.pread(fd, size - len(data), offset + len(data))):
        data += more
    return data


def _part(member: Member, path: str) -> Part:
    defect = None
    if not member.regular:
        defect = f"{member.name} is a link or a sparse file, not a regular member"
    elif member.present < member.size:
        defect = f"{member.name} is cut off: {member.present} of {member.size} bytes are there"
    return Part(member.name, path, member.offset, member.size, defect)


def _unnamed(index: TarIndex) -> list[str]:
    """Members that belong to no sample are told, not dropped in silence."""
    names = [member.name for member in index.members if split_key(member.name) is None]
    if not names:
        return []
    return [f"{len(names)} members without a key (no extension, hidden or meta), such as {names[0]}"]

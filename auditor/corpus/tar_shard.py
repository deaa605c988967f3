"""Shards that are tars, as WebDataset writes them: plain or compressed, local or behind fsspec."""

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from auditor.corpus import img2dataset, remote_files
from auditor.corpus.file_names import as_text, split_key
from auditor.corpus.read_medium import MediaError
from auditor.corpus.sample import Media
from auditor.corpus.sample_files import Part, build_sample, group_parts, sample_problems
from auditor.corpus.shard import DEFAULTS, CorpusError, CorpusOptions, OpenShard, ShardError
from auditor.corpus.tar_archive import OpenTar, open_tar
from auditor.corpus.tar_index import Member, NotATarError, TarIndex


@dataclass(frozen=True, slots=True)
class TarShard:
    """One tar. `path` is absolute, or a URL."""

    name: str
    path: str
    options: CorpusOptions = DEFAULTS

    def fingerprint(self) -> str:
        """blake2b of the content of a local tar; from the store's own digest (ETag) and size for a remote one.

        With that of img2dataset's table where one lies beside it.
        """
        try:
            own = digest_of(self.path)
            table = img2dataset.beside(self.path, ".parquet")
            return (
                own
                if table is None
                else hashlib.blake2b(f"{own} {digest_of(table)}".encode(), digest_size=16).hexdigest()
            )
        except (OSError, CorpusError) as error:
            raise self.unreadable(error) from error

    @contextmanager
    def open(self) -> Iterator[OpenShard]:
        with ExitStack() as stack:
            try:
                tar = stack.enter_context(open_tar(self.path))
                shard = self.index(tar)
            except (OSError, CorpusError) as error:
                raise self.unreadable(error) from error
            yield shard

    def index(self, tar: OpenTar) -> OpenShard:
        if tar.size == 0:
            raise ShardError(self.name, f"{self.path} is empty (0 bytes)")
        try:
            index = tar.index()
        except NotATarError:
            raise ShardError(self.name, f"{self.path} is not a tar: no readable header in {tar.size} bytes") from None

        def read(item: Part | Media) -> bytes:
            data = tar.read(item.offset, item.size)
            if len(data) < item.size:
                raise MediaError(f"{self.path} was cut while it was read: no {item.size} bytes at {item.offset}")
            return data

        samples = [
            build_sample(self.name, key, occurrence, parts, read, self.options)
            for (key, occurrence), parts in group_members(index, tar.path).items()
        ]
        lost, told = img2dataset.tried_samples(self.name, self.path, {s.key for s in samples}, self.options)
        problems = tar.problems + index.problems + _unnamed(index) + sample_problems(samples) + told
        return OpenShard(samples + lost, problems, read)

    def unreadable(self, error: OSError | CorpusError) -> ShardError:
        if isinstance(error, ShardError):
            return error
        if isinstance(error, FileNotFoundError):
            return ShardError(self.name, f"{self.path} does not exist")
        return ShardError(self.name, str(error) if isinstance(error, CorpusError) else f"{self.path}: {error}")


def digest_of(path: str) -> str:
    if remote_files.is_url(path):
        return remote_files.fingerprint(path)
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def group_members(index: TarIndex, path: str) -> dict[tuple[str, int], dict[str, Part]]:
    """(key, occurrence) -> the members of a sample by extension; `path` is that of the tar."""
    return group_parts(_part(member, path) for member in index.members)


def _part(member: Member, path: str) -> Part:
    defect = None
    if not member.regular:
        defect = f"{as_text(member.name)} is a link or a sparse file, not a regular member"
    elif member.present < member.size:
        defect = f"{as_text(member.name)} is cut off: {member.present} of {member.size} bytes are there"
    return Part(member.name, path, member.offset, member.size, defect)


def _unnamed(index: TarIndex) -> list[str]:
    """Members that belong to no sample are told, not dropped in silence."""
    names = [member.name for member in index.members if split_key(member.name) is None]
    if not names:
        return []
    return [f"{len(names)} members without a key (no extension, hidden or meta), such as {as_text(names[0])}"]

"""Tar shards as WebDataset writes them: plain or compressed, local or behind fsspec."""

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from auditor.corpus.corpus_files import hash_file
from auditor.corpus.file_names import escape_name, split_key
from auditor.corpus.img2dataset import find_companion, find_lost_samples
from auditor.corpus.read_medium import MediaError
from auditor.corpus.sample import Media
from auditor.corpus.sample_files import (
    SampleFile,
    build_sample,
    complete_sources,
    describe_text_problems,
    group_sample_files,
)
from auditor.corpus.shard import DEFAULT_OPTIONS, CorpusOptions, OpenShard, ShardError, convert_shard_errors
from auditor.corpus.tar_archive import OpenTar, open_tar
from auditor.corpus.tar_index import NotATarError, TarIndex, TarMember


@dataclass(frozen=True, slots=True)
class TarShard:
    """One tar. `path` is absolute, or a URL."""

    name: str
    path: str
    options: CorpusOptions = DEFAULT_OPTIONS

    def fingerprint(self) -> str:
        """Hash the content of a local tar, or the store's own digest (ETag) and size of a remote one.

        The hash includes img2dataset's table beside the tar, if there is one.
        """
        with convert_shard_errors(self.name, self.path):
            digest = hash_file(self.path)
            table = find_companion(self.path, ".parquet")
            if table is None:
                return digest
            return hashlib.blake2b(f"{digest} {hash_file(table)}".encode(), digest_size=16).hexdigest()

    @contextmanager
    def open(self) -> Iterator[OpenShard]:
        with ExitStack() as stack:
            with convert_shard_errors(self.name, self.path):
                shard = self.index(stack.enter_context(open_tar(self.path)))
            yield shard

    def index(self, tar: OpenTar) -> OpenShard:
        if tar.size == 0:
            raise ShardError(self.name, f"{self.path} is empty (0 bytes)")
        try:
            index = tar.index()
        except NotATarError:
            raise ShardError(self.name, f"{self.path} is not a tar: no readable header in {tar.size} bytes") from None

        def read(item: SampleFile | Media) -> bytes:
            data = tar.read(item.offset, item.size)
            if len(data) < item.size:
                raise MediaError(f"{self.path} became shorter while it was read: no {item.size} bytes at {item.offset}")
            return data

        groups = group_tar_members(index, tar.path).items()
        samples = complete_sources([build_sample(self.name, *key, files, read, self.options) for key, files in groups])
        missing, notes = find_lost_samples(self.name, self.path, {s.key for s in samples}, self.options)
        problems = tar.problems + index.problems
        if names := [member.name for member in index.members if split_key(member.name) is None]:
            example = escape_name(names[0])
            problems.append(f"{len(names)} members without a key (no extension, hidden or meta), such as {example}")
        return OpenShard(samples + missing, problems + describe_text_problems(samples, self.options) + notes, read)


def group_tar_members(index: TarIndex, path: str) -> dict[tuple[str, int], dict[str, SampleFile]]:
    """Group members by (key, occurrence), then by extension; `path` is the path of the tar."""
    files = (SampleFile(m.name, path, m.offset, m.size, _describe_damage(m)) for m in index.members)
    return group_sample_files(files)


def _describe_damage(member: TarMember) -> str | None:
    if not member.regular:
        return f"{escape_name(member.name)} is a link or a sparse file, not a regular member"
    if member.present < member.size:
        return f"{escape_name(member.name)} is cut off: it has {member.present} of {member.size} bytes"
    return None

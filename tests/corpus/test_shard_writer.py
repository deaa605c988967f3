"""Written shards: equal samples give equal bytes, a shard is complete or absent, and it reads back unchanged."""

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from auditor.corpus.shard_writer import Members, write_shard
from auditor.corpus.tar_archive import open_tar


def test_the_same_samples_give_the_same_bytes_from_memory_and_from_files(tmp_path: Path) -> None:
    (tmp_path / "photo").write_bytes(b"pixels" * 300)
    first: list[tuple[str, Members]] = [("a", {"jpg": tmp_path / "photo", "txt": b"one"}), ("b" * 120, {"txt": b""})]
    second: list[tuple[str, Members]] = [("a", {"jpg": b"pixels" * 300, "txt": b"one"}), ("b" * 120, {"txt": b""})]
    assert write_shard(tmp_path / "new" / "1.tar", first) == write_shard(tmp_path / "new" / "2.tar", second) == 2
    assert (tmp_path / "new" / "1.tar").read_bytes() == (tmp_path / "new" / "2.tar").read_bytes()
    with tarfile.open(tmp_path / "new" / "1.tar") as tar, open_tar(str(tmp_path / "new" / "1.tar")) as ours:
        members = ours.index().members
        assert [member.name for member in members] == tar.getnames() == ["a.jpg", "a.txt", f"{'b' * 120}.txt"]
        for member in members:
            content = tar.extractfile(member.name)
            assert content is not None and content.read() == ours.read(member.offset, member.size)


def test_a_shard_is_complete_or_absent(tmp_path: Path) -> None:
    def samples() -> Iterator[tuple[str, Members]]:
        yield "a", {"txt": b"one"}
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_shard(tmp_path / "1.tar", samples())
    assert not list(tmp_path.iterdir())

"""Paths of 4,000 characters and with newlines: in folders, tables and shards; every one is a row."""

import os
from pathlib import Path

from auditor.corpus.open_corpus import open_corpus
from auditor.corpus.sample import Sample
from tests.support.corpora import make_picture, write_members

NAMES = ["new\nline", "re\rturn", "tab\t", "esc\x1b[31m", "quote'\"", "e" * 240, "\u202egnp"]


def read_samples(spec: Path | str) -> list[Sample]:
    samples: list[Sample] = []
    for shard in open_corpus(str(spec)).shards:
        with shard.open() as opened:
            for sample in opened.samples:
                samples.append(sample)
                if sample.media is not None and sample.problem is None:
                    assert opened.read(sample.media)
    return samples


def write_deep_file(root: Path, data: bytes) -> int:
    """Write a file whose path has about 4,000 characters, folder by folder, and return the length of the path."""
    here = os.open(root, os.O_RDONLY)
    length = len(str(root))
    while length < 3800:
        os.mkdir("d" * 200, dir_fd=here)
        deeper = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here, length = deeper, length + 201
    for name, content in (("a.jpg", data), ("a.txt", b"deep")):
        with os.fdopen(os.open(name, os.O_WRONLY | os.O_CREAT, dir_fd=here), "wb") as file:
            file.write(content)
    os.close(here)
    return length + 6


def test_a_folder(tmp_path: Path) -> None:
    picture = make_picture(1)
    for name in NAMES:
        (tmp_path / f"{name}.jpg").write_bytes(picture)
        (tmp_path / f"{name}.txt").write_text("x")
    assert 3800 < write_deep_file(tmp_path, picture) < 4096
    samples = read_samples(tmp_path)
    assert len(samples) == len(NAMES) + 1
    assert [sample.problem for sample in samples] == [None] * len(samples)
    assert len({sample.key for sample in samples}) == len(samples)


def test_a_table(tmp_path: Path) -> None:
    (tmp_path / "new\nline.png").write_bytes(make_picture(1, form="PNG"))
    rows = ['"new\nline.png",x', "d/" * 2000 + "a.png,y", "e" * 300 + ".png,z", "f" * 100_000 + ".png,w"]
    (tmp_path / "t.csv").write_text("image,caption\n" + "\n".join(rows) + "\n")
    samples = read_samples(tmp_path / "t.csv")
    assert [sample.problem and sample.problem.status for sample in samples] == [None, *["missing_media"] * 3]
    assert [sample.captions for sample in samples] == [("x",), ("y",), ("z",), ("w",)]


def test_a_shard(tmp_path: Path) -> None:
    names = [*NAMES, "d/" * 2000 + "a"]
    picture = make_picture(1)
    members = [(f"{name}{ending}", data) for name in names for ending, data in ((".jpg", picture), (".txt", b"x"))]
    samples = read_samples(write_members(tmp_path / "s.tar", members))
    assert len(samples) == len(names) and all(sample.problem is None for sample in samples)


def test_a_shard_of_many_members(tmp_path: Path) -> None:
    """200,000 members take ten times as long (docs/security.md)."""
    members = [(f"{n:06d}{ending}", b"x") for n in range(10_000) for ending in (".jpg", ".txt")]
    samples = read_samples(write_members(tmp_path / "s.tar", members))
    assert len(samples) == 10_000 and samples[-1].captions == ("x",)

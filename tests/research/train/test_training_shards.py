"""The corpus of a run: counted samples, excluded samples, and the share of each process."""

from collections import Counter
from pathlib import Path

import pytest

from auditor.corpus.open_corpus import CorpusError
from auditor.corpus.sample import Problem
from auditor.errors import AuditorError
from auditor.research.train.training_reader import read_media_bytes
from auditor.research.train.training_shards import ShardSlice, assign_slices, count_shards
from tests.support.corpora import write_members
from tests.support.training import make_png, write_shards


def test_what_cannot_be_used_is_left_out_and_counted(tmp_path: Path) -> None:
    image = make_png("red", "blue")
    path = write_members(
        tmp_path / "a.tar",
        [
            ("a.png", image),
            ("a.txt", b"one\n\n  two  \r\n"),
            ("b.json", b'{"captions": ["x", " ", 3, "y"]}'),
            ("b.png", image),
            ("c.png", image),
            ("c.json", b'{"caption": "z"}'),
            ("d.png", image),  # no caption
            ("e.txt", b"no medium"),
            ("f.png", image),
            ("f.json", b"{broken"),
            ("a.png", image),  # again
            ("g.png", b""),
            ("g.txt", b"of nothing"),
        ],
    )
    found = count_shards(str(path))
    assert (found.samples, found.pairs("all"), found.pairs("one"), found.most_captions) == (3, 5, 3, 2)
    assert found.left_out == {"missing_caption": 2, "missing_media": 1, "duplicate_key": 1, "corrupt": 1}
    assert found.examples == ["a: d: no .txt and no .json"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: p.mkdir(), "no tar, no image or video and no table"),
        (lambda p: None, "does not exist"),
        (lambda p: p.write_bytes(b"this is not a tar" * 100), "is not a tar"),
        (lambda p: p.write_bytes(b""), "is empty"),
        (lambda p: write_members(p, []), "holds no pairs"),
        (lambda p: write_members(p, [("a.png", b"x"), ("b.txt", b"y")]), "holds no pairs"),
    ],
)
def test_bad_shards_are_one_clear_line(tmp_path: Path, make, message: str) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "shard.tar"
    make(path)
    with pytest.raises(AuditorError, match=message) as caught:
        count_shards(str(path))
    assert "\n" not in str(caught.value) and "shard.tar" in str(caught.value)


def test_a_list_with_commas_is_told_how_lists_are_written(tmp_path: Path) -> None:
    home = write_shards(tmp_path, count=2, size=1)
    with pytest.raises(CorpusError, match=r"a\.tar::b\.tar"):
        count_shards(f"{home}/000.tar,{home}/001.tar")
    assert count_shards(f"{home}/000.tar::{home}/001.tar").samples == 2


@pytest.mark.parametrize("shard_count", [1, 2, 3, 7])
@pytest.mark.parametrize("readers", [1, 2, 3, 4])
def test_slices_cover_everything_once_and_evenly(shard_count: int, readers: int) -> None:
    owners: Counter[tuple[int, int]] = Counter()
    sizes = []
    for reader in range(readers):
        mine = {(p.shard, i) for p in assign_slices(shard_count, reader, readers) for i in range(p.part, 12, p.parts)}
        owners.update(mine)
        sizes.append(len(mine))
    assert len(owners) == 12 * shard_count and set(owners.values()) == {1}
    assert len(set(sizes)) == 1


def test_many_shards_are_never_cut() -> None:
    assert {piece.parts for piece in assign_slices(1001, 3, 4)} == {1}


def test_a_file_that_is_gone_shifts_no_number_and_is_a_failure_where_it_was_seen(tmp_path: Path) -> None:
    for key in "abc":
        (tmp_path / f"{key}.png").write_bytes(make_png("red", "blue"))
    (tmp_path / "t.csv").write_text("image,caption\n" + "".join(f"{key}.png,a caption\n" for key in "abc"))
    (shard,) = count_shards(str(tmp_path / "t.csv")).shards
    with shard.open() as opened:
        before = {sample.key: number for number, sample in ShardSlice(0).samples(opened)}
        (tmp_path / "b.png").unlink()
        found = {sample.key: read_media_bytes(opened, sample) for sample in opened.samples}
    assert isinstance(found["b"], Problem) and found["b"].status == "missing_media" and found["a"] == found["c"]
    with shard.open() as opened:
        after = {sample.key: number for number, sample in ShardSlice(0).samples(opened)}
    assert after == {key: before[key] for key in "ac"}

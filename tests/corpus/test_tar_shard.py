"""Tar shards: every key in exactly one sample per occurrence, captions and media found, bad shards named."""

import bz2
import gzip
import json
import os
import pickle
import random
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from auditor.corpus.open_corpus import CorpusError, CorpusOptions, OpenShard, Shard, ShardError, open_corpus
from auditor.corpus.read_medium import MediaError, read_media
from auditor.corpus.sample import Sample
from auditor.corpus.shard_writer import write_shard
from auditor.corpus.tar_shard import TarShard
from tests.support.corpora import write_members


def samples_of(path: Path, options: CorpusOptions | None = None) -> list[Sample]:
    with only(path, options).open() as shard:
        return shard.samples


def only(path: Path, options: CorpusOptions | None = None) -> Shard:
    (shard,) = open_corpus(str(path), options or CorpusOptions()).shards
    return shard


def found(sample: Sample, shard: OpenShard) -> bytes:
    assert sample.media is not None
    return shard.read(sample.media)


def test_a_shard_round_trips_and_browsers_read_the_same_bytes(tmp_path: Path) -> None:
    written = {f"dir/{number}": os.urandom(number * 300) for number in range(1, 9)}
    write_shard(tmp_path / "s.tar", ((key, {"jpg": data, "txt": b"one\n\n two \r\n"}) for key, data in written.items()))
    with only(tmp_path / "s.tar").open() as shard:
        assert {sample.key: found(sample, shard) for sample in shard.samples} == written
        assert all(sample.captions == ("one", "two") and sample.problem is None for sample in shard.samples)
        assert shard.problems == []
        for sample in shard.samples:
            assert sample.media is not None
            media = sample.media
            assert read_media(media.path, media.offset, media.size) == written[sample.key]
    assert [path.name for path in tmp_path.iterdir()] == ["s.tar"]  # nothing unfinished is left


def test_members_of_a_sample_need_not_be_adjacent(tmp_path: Path) -> None:
    members = [(f"{key}.{ext}", f"{key}{ext}".encode()) for key in "abcde" for ext in ("png", "txt")]
    random.Random(0).shuffle(members)
    samples = samples_of(write_members(tmp_path / "s.tar", members))
    assert {sample.key: sample.captions for sample in samples} == {key: (f"{key}txt",) for key in "abcde"}
    assert all(sample.problem is None for sample in samples)


def test_grouping_equals_the_naive_one(tmp_path: Path) -> None:
    """All members of one key and extension, counted: the n-th of each belongs to the n-th occurrence of the key."""
    rng = random.Random(1)
    members = [(f"{rng.choice('abc')}.{rng.choice(['jpg', 'txt', 'json'])}", b"x") for _ in range(40)]
    samples = samples_of(write_members(tmp_path / "s.tar", members))
    for key in "abc":
        counts = {ext: sum(name == f"{key}.{ext}" for name, _ in members) for ext in ("jpg", "txt", "json")}
        mine = [sample for sample in samples if sample.key == key]
        assert [sample.occurrence for sample in mine] == list(range(max(counts.values())))
        assert sum(sample.media is not None for sample in mine) == counts["jpg"]
        assert sum(bool(sample.captions) for sample in mine) == counts["txt"]
        assert {sample.problem.status for sample in mine[1:] if sample.problem} == {"duplicate_key"}


def test_every_defect_is_a_row_with_a_reason(tmp_path: Path) -> None:
    members = [
        ("good.jpg", b"x"), ("good.txt", b"fine"),
        ("no-media.txt", b"alone"),
        ("no-media-either.json", b"{}"),
        ("foreign.heic", b"x"), ("foreign.txt", b"fine"),
        ("no-caption.jpg", b"x"),
        ("blank.jpg", b"x"), ("blank.txt", b" \n\n"),
        ("empty.jpg", b""), ("empty.txt", b"fine"),
        ("broken.jpg", b"x"), ("broken.json", b"{not json"),
        ("again.jpg", b"x"), ("again.txt", b"1"), ("again.jpg", b"y"), ("again.txt", b"2"),
    ]  # fmt: skip
    samples = samples_of(write_members(tmp_path / "s.tar", members))
    status = [(sample.key, sample.problem.status if sample.problem else "ok") for sample in samples]
    assert status == [
        ("good", "ok"),
        ("no-media", "missing_media"),
        ("no-media-either", "missing_media"),
        ("foreign", "missing_media"),
        ("no-caption", "missing_caption"),
        ("blank", "missing_caption"),
        ("empty", "corrupt"),
        ("broken", "missing_caption"),
        ("again", "ok"),
        ("again", "duplicate_key"),
    ]
    assert all(sample.problem is None or sample.problem.message for sample in samples)
    assert samples[-1].captions == ("2",)


@pytest.mark.parametrize(
    ("text", "record", "captions"),
    [
        (b"from text", {"caption": "from json"}, ("from text",)),
        (None, {"caption": "one"}, ("one",)),
        (None, {"captions": ["one", "", "two", 3], "caption": "not this"}, ("one", "two")),
        (b"\n", {"caption": "after a blank text"}, ("after a blank text",)),
        (b"\xef\xbb\xbfmarked\n", None, ("marked",)),
        ("zwei\nZeilen".encode("utf-16"), None, ("zwei", "Zeilen")),
        (b"caf\xe9 \x00", None, ("café \ufffd",)),
        (b"a\x0cb\xe2\x80\xa8c\rd", None, ("a\x0cb\u2028c", "d")),
    ],
)
def test_captions(tmp_path: Path, text: bytes | None, record: object, captions: tuple[str, ...]) -> None:
    members = {"jpg": b"x"} | ({"txt": text} if text is not None else {})
    members |= {"json": json.dumps(record).encode()} if record is not None else {}
    write_shard(tmp_path / "s.tar", [("a", members)])
    (sample,) = samples_of(tmp_path / "s.tar")
    assert sample.captions == captions
    assert pa.array(sample.captions, pa.string()).to_pylist() == list(captions)


def test_lone_surrogates_and_deep_json_are_made_safe(tmp_path: Path) -> None:
    deep = b"[" * 100_000
    write_shard(
        tmp_path / "s.tar",
        [("a", {"jpg": b"x", "json": b'{"caption": "\\ud800 \\ud83d\\ude00"}'}), ("b", {"jpg": b"x", "json": deep})],
    )
    first, second = samples_of(tmp_path / "s.tar")
    assert first.captions == ("\ufffd \U0001f600",)
    assert second.problem is not None and second.problem.status == "missing_caption"


def test_a_text_may_be_one_caption(tmp_path: Path) -> None:
    write_shard(tmp_path / "s.tar", [("a", {"jpg": b"x", "txt": b"one\ntwo\n"})])
    assert samples_of(tmp_path / "s.tar", CorpusOptions(captions="whole"))[0].captions == ("one\ntwo",)


def test_uids_are_taken_if_they_are_128_bits(tmp_path: Path) -> None:
    good, bad = "0123456789ABCDEF0123456789abcdef", "0123"
    records = [(uid, {"jpg": b"x", "json": json.dumps({"uid": uid, "caption": "c"}).encode()}) for uid in (good, bad)]
    write_shard(tmp_path / "s.tar", records)
    assert [sample.uid for sample in samples_of(tmp_path / "s.tar")] == [good.lower(), None]


@pytest.mark.parametrize(
    ("extensions", "medium"),
    [(["seg.png", "jpg"], "jpg"), (["jpg", "mp4"], "mp4"), (["8.png", "8.txt"], "8.png"), (["JPG"], "jpg")],
)
def test_which_member_is_the_medium(tmp_path: Path, extensions: list[str], medium: str) -> None:
    write_members(tmp_path / "s.tar", [(f"d.x/a.{ext}", ext.lower().encode()) for ext in extensions])
    with only(tmp_path / "s.tar").open() as shard:
        (sample,) = shard.samples
        assert sample.key == "d.x/a"
        assert found(sample, shard) == medium.encode()
        assert bool(sample.captions) == any("txt" in ext for ext in extensions)


def test_names_are_keys_and_never_paths(tmp_path: Path) -> None:
    names = ["../../etc/evil.jpg", "/abs/evil.jpg", ".hidden.jpg", "noext", "__meta__/a.json", "d/._apple.jpg"]
    write_members(tmp_path / "s.tar", [(name, b"x") for name in names])
    with only(tmp_path / "s.tar").open() as shard:
        assert [sample.key for sample in shard.samples] == ["../../etc/evil", "/abs/evil"]
        assert shard.problems == ["4 members without a key (no extension, hidden or meta), such as .hidden.jpg"]
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["s.tar"]


def test_links_are_never_followed(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "s.tar", "w") as tar:
        info = tarfile.TarInfo("a.jpg")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(info)
    (sample,) = samples_of(tmp_path / "s.tar")
    assert sample.problem is not None and "link" in sample.problem.message


def test_a_cut_member_is_corrupt_and_the_others_are_not(tmp_path: Path) -> None:
    write_shard(tmp_path / "s.tar", [(key, {"txt": b"fine", "jpg": b"x" * 5000}) for key in "abc"])
    whole = (tmp_path / "s.tar").read_bytes()
    with tarfile.open(tmp_path / "s.tar") as tar:
        last = tar.getmember("c.jpg").offset_data
    (tmp_path / "s.tar").write_bytes(whole[: last + 1000])
    with only(tmp_path / "s.tar").open() as shard:
        assert [sample.problem is None for sample in shard.samples] == [True, True, False]
        assert shard.samples[2].problem is not None
        assert shard.samples[2].problem.status == "corrupt"
        assert shard.samples[2].problem.message == "c.jpg is cut off: it has 1000 of 5000 bytes"
        assert "ends inside c.jpg" in shard.problems[0]


def test_a_bad_header_leaves_a_reason(tmp_path: Path) -> None:
    write_shard(tmp_path / "s.tar", [(key, {"jpg": b"x" * 700, "txt": b"fine"}) for key in "abcd"])
    data = bytearray((tmp_path / "s.tar").read_bytes())
    with tarfile.open(tmp_path / "s.tar") as tar:
        bad = tar.getmember("b.jpg").offset
    data[bad + 10] ^= 0xFF
    (tmp_path / "s.tar").write_bytes(data)
    with only(tmp_path / "s.tar").open() as shard:
        assert {sample.key: sample.problem.status if sample.problem else "ok" for sample in shard.samples} == {
            "a": "ok", "b": "missing_media", "c": "ok", "d": "ok",
        }  # fmt: skip
        assert f"offset {bad}:" in shard.problems[0]


@pytest.mark.parametrize(
    ("content", "said"), [(b"", "is empty"), (b"<html>not found</html>", "is not a tar"), (None, "does not exist")]
)
def test_a_bad_shard_is_named_only_when_opened(tmp_path: Path, content: bytes | None, said: str) -> None:
    (tmp_path / "bad.tar").write_bytes(content or b"")
    shard = only(tmp_path / "bad.tar")
    if content is None:
        (tmp_path / "bad.tar").unlink()
        with pytest.raises(ShardError, match=said):
            shard.fingerprint()
    with pytest.raises(ShardError, match=f"^bad: .*{said}") as caught, shard.open():
        pass
    assert pickle.loads(pickle.dumps(caught.value)).shard == "bad"


@pytest.mark.parametrize(
    ("suffix", "compression"),
    [("tar.gz", "gzip"), ("tgz", "gzip"), ("tar.bz2", "bz2"), ("tar.zst", "zstd"), ("tar", "gzip")],
)
def test_compressed_tars(tmp_path: Path, suffix: str, compression: str) -> None:
    write_shard(tmp_path / "plain", [("a", {"jpg": os.urandom(3000), "txt": b"fine"})])
    plain = (tmp_path / "plain").read_bytes()
    pack: dict[str, Callable[[bytes], bytes]] = {
        "gzip": gzip.compress,
        "bz2": bz2.compress,
        "zstd": lambda data: pa.compress(data, "zstd", asbytes=True),
    }
    path = tmp_path / f"s.{suffix}"
    path.write_bytes(pack[compression](plain))
    with only(path).open() as shard:
        (sample,) = shard.samples
        assert sample.media is not None
        assert sample.media.path == f"{path}#compression={compression}"
        expected = plain[sample.media.offset :][: sample.media.size]
        assert found(sample, shard) == expected
        assert read_media(sample.media.path, sample.media.offset, sample.media.size) == expected


def test_a_cut_gzip_costs_its_end_only(tmp_path: Path) -> None:
    write_shard(tmp_path / "plain", [(key, {"jpg": os.urandom(2**20), "txt": b"fine"}) for key in "abc"])
    packed = gzip.compress((tmp_path / "plain").read_bytes())
    (tmp_path / "s.tar.gz").write_bytes(packed[: int(len(packed) * 0.8)])
    with only(tmp_path / "s.tar.gz").open() as shard:
        assert [sample.problem.status if sample.problem else "ok" for sample in shard.samples] == [
            "ok",
            "ok",
            "corrupt",
        ]
        assert shard.problems


def test_fingerprints_follow_the_content(tmp_path: Path) -> None:
    for name, caption in (("a", b"1"), ("b", b"1"), ("c", b"2")):
        write_shard(tmp_path / f"{name}.tar", [("k", {"jpg": b"x", "txt": caption})])
    a, b, c = (shard.fingerprint() for shard in open_corpus(str(tmp_path)).shards)
    assert a == b != c


def test_shards_can_be_pickled(tmp_path: Path) -> None:
    write_shard(tmp_path / "a.tar", [("k", {"jpg": b"x", "txt": b"1"})])
    shard = pickle.loads(pickle.dumps(only(tmp_path / "a.tar")))
    assert isinstance(shard, TarShard) and isinstance(shard, Shard)
    with shard.open() as opened:
        assert opened.samples[0].shard == "a"
    assert len(pickle.dumps(shard)) < 1000


def test_a_shard_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    write_shard(tmp_path / "a.tar", [("k", {"jpg": b"x" * 2000, "txt": b"1"})])
    with only(tmp_path / "a.tar").open() as shard:
        os.truncate(tmp_path / "a.tar", 1000)
        with pytest.raises(MediaError, match="became shorter while it was read"):
            found(shard.samples[0], shard)


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[tuple[str, Mapping[str, bytes]]]:
        yield "a", {"jpg": b"x"}
        raise CorpusError("no more")

    with pytest.raises(CorpusError):
        write_shard(tmp_path / "a.tar", broken())
    assert list(tmp_path.iterdir()) == []

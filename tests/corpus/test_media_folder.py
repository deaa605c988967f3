"""Folders of media with sidecars, and COCO: virtual shards that hold every file once."""

import json
import os
import pickle
from pathlib import Path

import pytest

from auditor.corpus.open_corpus import Corpus, CorpusError, CorpusOptions, open_corpus
from auditor.corpus.read_medium import MediaError
from auditor.corpus.sample import Sample


def fill(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def all_samples(corpus: Corpus) -> list[Sample]:
    found = []
    for shard in corpus.shards:
        with pickle.loads(pickle.dumps(shard)).open() as opened:
            for sample in opened.samples:
                assert sample.shard == shard.name
                if sample.media is not None and sample.media.size > 0:
                    assert opened.read(sample.media) == Path(sample.media.path).read_bytes()
            found += opened.samples
    return found


def statuses(samples: list[Sample]) -> list[tuple[str, int, str]]:
    return [(sample.key, sample.occurrence, sample.problem.status if sample.problem else "ok") for sample in samples]


def test_sidecars_at_any_depth(tmp_path: Path) -> None:
    fill(
        tmp_path,
        {
            "b.jpg": b"B", "b.txt": b"one\ntwo",
            "sub/dir/a.PNG": b"A", "sub/dir/a.json": b'{"caption": "three"}',
            "clip.mp4": b"V", "clip.txt": b"four",
            "alone.txt": b"no medium", "bare.gif": b"G", "raw.heic": b"H", "void.jpg": b"", "void.txt": b"five",
            ".hidden.jpg": b"x", ".git/x.jpg": b"x", "README": b"x", "notes.md": b"x",
        },
    )  # fmt: skip
    samples = all_samples(open_corpus(str(tmp_path)))
    assert statuses(samples) == [
        ("alone", 0, "missing_media"),
        ("b", 0, "ok"),
        ("bare", 0, "missing_caption"),
        ("clip", 0, "ok"),
        ("raw", 0, "missing_media"),
        ("sub/dir/a", 0, "ok"),
        ("void", 0, "corrupt"),
    ]
    assert [sample.captions for sample in samples if sample.problem is None] == [("one", "two"), ("four",), ("three",)]
    assert [sample.media.kind for sample in samples if sample.key in ("b", "clip") and sample.media] == [
        "image",
        "video",
    ]


def test_media_that_share_a_key_are_told_apart(tmp_path: Path) -> None:
    fill(tmp_path, {f"clip.{n}.mp4": b"V" for n in (1, 2, 10)} | {"clip.2.txt": b"second", "clip.txt": b"nobody's"})
    fill(tmp_path, {"same.jpg": b"J", "same.png": b"P", "same.txt": b"which?"})
    samples = all_samples(open_corpus(str(tmp_path)))
    assert statuses(samples) == [
        ("clip.1", 0, "missing_caption"),
        ("clip.2", 0, "ok"),
        ("clip.10", 0, "missing_caption"),
        ("clip", 0, "missing_media"),
        ("same", 0, "ok"),
        ("same", 1, "duplicate_key"),
    ]


def test_a_key_is_the_same_alone_and_among_siblings(tmp_path: Path) -> None:
    files = {"clip.1.mp4": b"V", "clip.1.txt": b"one"}
    alone = all_samples(open_corpus(str(fill(tmp_path / "alone", files))))
    among = all_samples(open_corpus(str(fill(tmp_path / "among", {**files, "clip.2.mp4": b"W"}))))
    assert statuses(alone) == [("clip.1", 0, "ok")] and statuses(among)[0] == ("clip.1", 0, "ok")


def test_sidecars_are_named_like_their_media(tmp_path: Path) -> None:
    fill(tmp_path, {"a.jpg": b"A", "a.jpg.txt": b"with its extension", "b.1.png": b"B", "b.txt": b"the only one"})
    samples = all_samples(open_corpus(str(tmp_path)))
    assert statuses(samples) == [("a", 0, "ok"), ("b.1", 0, "ok")]
    assert [sample.captions for sample in samples] == [("with its extension",), ("the only one",)]


def test_a_key_never_lies_in_two_shards(tmp_path: Path) -> None:
    fill(tmp_path, {f"{n}.{ext}": b"x" for n in range(25) for ext in ("jpg", "txt")})
    corpus = open_corpus(str(tmp_path), CorpusOptions(shard_size=10))
    assert [shard.name for shard in corpus.shards] == [f"{tmp_path.name}-{n:06d}" for n in range(3)]
    samples = all_samples(corpus)
    assert [sample.key for sample in samples] == [str(n) for n in range(25)]
    assert all(sample.problem is None for sample in samples)


def test_the_hostile_folder_has_a_row_for_every_file(shared: Path) -> None:
    folder = shared / "data" / "hostile"
    media = [path for path in folder.rglob("*") if path.suffix not in (".txt", ".md", ".json", "")]
    samples = all_samples(open_corpus(str(folder)))
    with_media = [sample for sample in samples if sample.media is not None]
    foreign = [path for path in media if path.suffix in (".heic",)]
    assert len(with_media) == len(media) - len(foreign)
    assert len({(sample.key, sample.occurrence) for sample in samples}) == len(samples)


def test_fingerprints_follow_files_and_captions(tmp_path: Path) -> None:
    fill(tmp_path, {"a.jpg": b"A", "a.txt": b"one", "b.jpg": b"B", "b.txt": b"two"})
    first, second = open_corpus(str(tmp_path), CorpusOptions(shard_size=1)).shards
    before = first.fingerprint(), second.fingerprint()
    assert before == (first.fingerprint(), second.fingerprint())
    stat = (tmp_path / "a.txt").stat()
    (tmp_path / "a.txt").write_bytes(b"eno")
    os.utime(tmp_path / "a.txt", ns=(stat.st_atime_ns, stat.st_mtime_ns))  # same size and time, other words
    (tmp_path / "b.jpg").write_bytes(b"longer")
    assert first.fingerprint() != before[0]
    assert second.fingerprint() != before[1]


def test_files_that_vanish_after_listing(tmp_path: Path) -> None:
    fill(tmp_path, {"a.jpg": b"A", "a.txt": b"one", "b.jpg": b"B", "b.txt": b"two", "c.jpg": b"C"})
    (shard,) = open_corpus(str(tmp_path)).shards
    (tmp_path / "a.jpg").unlink()
    (tmp_path / "c.jpg").unlink()
    with shard.open() as opened:
        assert statuses(opened.samples) == [("a", 0, "missing_media"), ("b", 0, "ok"), ("c", 0, "missing_media")]
        assert opened.samples[1].media is not None
        (tmp_path / "b.jpg").unlink()
        with pytest.raises(MediaError, match=r"b\.jpg does not exist"):
            opened.read(opened.samples[1].media)


def coco(folder: Path, record: object) -> str:
    fill(folder, {"images/1.jpg": b"1", "images/sub/2.jpg": b"2", "captions.json": json.dumps(record).encode()})
    return f"coco:{folder}/captions.json::{folder}/images"


def test_coco(tmp_path: Path) -> None:
    images = [{"id": 7, "file_name": "1.jpg"}, {"id": 8, "file_name": "sub/2.jpg"}, {"id": 9, "file_name": "gone.jpg"}]
    captions = [(7, "one"), (8, "two"), (7, " one more "), (99, "of an image that is not listed")]
    spec = coco(
        tmp_path,
        {
            "images": [*images, {"id": 10, "file_name": "1.png"}],
            "annotations": [{"image_id": i, "caption": c} for i, c in captions],
        },
    )
    corpus = open_corpus(spec, CorpusOptions(shard_size=2))
    assert [shard.name for shard in corpus.shards] == ["captions-000000", "captions-000001", "captions-000002"]
    samples = {sample.key: sample for sample in all_samples(open_corpus(spec))}
    assert samples["1"].captions == ("one", "one more")
    assert samples["sub/2"].captions == ("two",)
    assert {key: sample.problem.status for key, sample in samples.items() if sample.problem} == {
        "gone": "missing_media",
        "1.png": "missing_media",
        "image_id 99": "missing_media",
    }
    before = [shard.fingerprint() for shard in corpus.shards]
    assert before == [shard.fingerprint() for shard in open_corpus(spec, CorpusOptions(shard_size=2)).shards]
    (tmp_path / "images" / "1.jpg").write_bytes(b"other")
    assert before != [shard.fingerprint() for shard in corpus.shards]


@pytest.mark.parametrize(
    ("record", "said"),
    [([], "not in COCO's form"), ({"images": []}, "lists no images"), ({"images": [{"id": 1}]}, "no file_name")],
)
def test_wrong_coco_raises(tmp_path: Path, record: object, said: str) -> None:
    with pytest.raises(CorpusError, match=said):
        open_corpus(coco(tmp_path, record))
    for spec in (
        "coco:captions.json",
        f"coco:{tmp_path}/none.json::{tmp_path}",
        f"coco:{tmp_path}/captions.json::/none",
    ):
        with pytest.raises(CorpusError, match=r"coco:captions.json::folder|does not exist|not a folder"):
            open_corpus(spec)

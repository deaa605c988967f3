"""Corpora on S3 (a real server) and in fsspec's memory: listed, fetched in one GET, fingerprinted, and left clean."""

import gc
import io
import os
import pickle
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor.corpus import corpus_files
from auditor.corpus.corpus_files import digest, hash_file
from auditor.corpus.open_corpus import CorpusError, CorpusOptions, Shard, ShardError, open_corpus
from auditor.corpus.read_medium import MediaError, read_media
from auditor.corpus.shard_writer import write_shard
from tests.support.s3 import Bucket, bucket, s3_endpoint  # noqa: F401

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)


@pytest.fixture
def tars(tmp_path: Path) -> Path:
    for number in range(3):
        samples = ((f"{number}-{key}", {"jpg": os.urandom(3000), "txt": b"fine"}) for key in "ab")
        write_shard(tmp_path / "tars" / f"{number:05d}.tar", samples)
    return tmp_path / "tars"


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the watched folder of temporary files."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    yield tmp_path / "scratch"
    gc.collect()


@pytest.fixture
def memory() -> Iterator[Any]:
    fs = fsspec.filesystem("memory")
    yield fs
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]


def content(shard: Shard) -> dict[str, tuple[bytes, tuple[str, ...]]]:
    with pickle.loads(pickle.dumps(shard)).open() as opened:
        return {s.key: (opened.read(s.media), s.captions) for s in opened.samples if s.media is not None}


def test_tars_on_s3_are_what_they_are_on_disk(bucket: Bucket, tars: Path, scratch: Path) -> None:  # noqa: F811
    url = bucket.upload(tars, "deep/er/")
    local = open_corpus(str(tars))
    contents = [content(shard) for shard in local.shards]
    for spec in ("", "/", "/*.tar", "/{00000..00002}.tar", f"/00000.tar::{url}/0000{{1,2}}.tar"):
        corpus = open_corpus(url + spec)
        assert corpus.root == url
        assert [shard.name for shard in corpus.shards] == [shard.name for shard in local.shards]
        assert [content(shard) for shard in corpus.shards] == contents
        assert list(scratch.iterdir()) == []


def test_a_shard_is_fetched_in_one_get(bucket: Bucket, tars: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    import s3fs

    url = bucket.upload(tars)
    calls: list[tuple[str, object]] = []
    plain = s3fs.S3FileSystem._call_s3

    async def counted(self: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        calls.append((method, kwargs.get("Range")))
        return await plain(self, method, *args, **kwargs)

    (shard, *_) = open_corpus(url).shards
    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", counted)
    with shard.open() as opened:
        for sample in opened.samples:
            assert sample.media is not None
            opened.read(sample.media)
    assert [call for call in calls if call[0] == "get_object"] == [("get_object", None)]
    media = opened.samples[0].media
    assert media is not None
    calls.clear()
    assert read_media(media.path, media.offset, media.size) == content(shard)[opened.samples[0].key][0]
    assert len([call for call in calls if call[1]]) == 1  # a browser takes one range


def test_fingerprints_on_s3_follow_the_content(bucket: Bucket, tars: Path) -> None:  # noqa: F811
    url = bucket.upload(tars)
    first, second, _ = open_corpus(url).shards
    before = first.fingerprint()
    assert before == first.fingerprint() != second.fingerprint()
    bucket.put("00000.tar", (tars / "00001.tar").read_bytes())
    assert first.fingerprint() == second.fingerprint()


def test_shards_that_are_gone_or_bad_are_named(bucket: Bucket, tars: Path, scratch: Path) -> None:  # noqa: F811
    url = bucket.upload(tars)
    first, second, third = open_corpus(url).shards
    bucket.delete("00000.tar")
    bucket.put("00001.tar", b"")
    bucket.put("00002.tar", b"<Error>AccessDenied</Error>")
    for shard, said in ((first, "does not exist"), (second, "is empty"), (third, "is not a tar")):
        with pytest.raises(ShardError, match=f"^{shard.name}: .*{said}"), shard.open():
            pass
    with pytest.raises(ShardError, match=r"00000: .*does not exist"):
        first.fingerprint()
    assert list(scratch.iterdir()) == []


def test_wrong_urls_raise(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    with pytest.raises(CorpusError, match=r"nothing.tar does not exist"):
        open_corpus(f"{bucket.url}/nothing.tar")
    with pytest.raises(CorpusError, match=r"s3://no-such-bucket-here/x does not exist"):
        open_corpus("s3://no-such-bucket-here/x")
    with pytest.raises(MediaError, match="does not exist"):
        read_media(f"{bucket.url}/nothing.tar", 0, 10)


def test_folders_tables_and_coco_on_s3(bucket: Bucket) -> None:  # noqa: F811
    bucket.put("media/sub/a.png", PNG)
    bucket.put("media/sub/a.txt", b"one\ntwo")
    bucket.put("media/b.png", PNG + b"b")
    bucket.put("table/t.csv", f"image,text\n../media/b.png,csv\n{bucket.url}/media/sub/a.png,url\n".encode())
    bucket.put(
        "coco.json", b'{"images": [{"id": 1, "file_name": "b.png"}], "annotations": [{"image_id": 1, "caption": "c"}]}'
    )
    table = io.BytesIO()
    pq.write_table(pa.table({"image": [{"bytes": PNG, "path": None}], "text": ["cell"]}), table)
    bucket.put("cells/p.parquet", table.getvalue())

    (folder,) = open_corpus(f"{bucket.url}/media").shards
    assert content(folder) == {"sub/a": (PNG, ("one", "two")), "b": (PNG + b"b", ())}
    (text,) = open_corpus(f"{bucket.url}/table/t.csv", CorpusOptions(media_root=(bucket.url,))).shards
    with text.open() as opened:
        assert [sample.captions for sample in opened.samples] == [("csv",), ("url",)]
        assert opened.samples[1].media is not None
        assert opened.read(opened.samples[1].media) == PNG
    (coco,) = open_corpus(f"coco:{bucket.url}/coco.json::{bucket.url}/media").shards
    assert content(coco) == {"b": (PNG + b"b", ("c",))}
    (parquet,) = open_corpus(f"{bucket.url}/cells").shards
    assert content(parquet) == {"000000000": (PNG, ("cell",))}
    cell = f"{bucket.url}/cells/p.parquet#column=image&row=0"
    assert read_media(cell, 0, len(PNG)) == PNG
    for shard in (folder, text, coco, parquet):
        assert shard.fingerprint() == shard.fingerprint()
    before = folder.fingerprint()
    bucket.put("media/sub/a.txt", b"eno\ntwo")
    (again,) = open_corpus(f"{bucket.url}/media").shards
    assert again.fingerprint() != before


def test_a_store_without_digests_is_read_to_be_fingerprinted(memory: Any, tars: Path) -> None:
    for path in tars.iterdir():
        memory.pipe_file(f"/c/{path.name}", path.read_bytes())
    corpus = open_corpus("memory://c")
    local = open_corpus(str(tars))
    assert [content(shard) for shard in corpus.shards] == [content(shard) for shard in local.shards]
    assert [shard.fingerprint() for shard in corpus.shards] == [shard.fingerprint() for shard in local.shards]


def test_a_remote_folder_is_cut_like_a_local_one(memory: Any) -> None:
    for n in range(12):
        memory.pipe_file(f"/m/{n}.png", PNG)
        memory.pipe_file(f"/m/{n}.txt", f"{n}".encode())
    shards = open_corpus("memory://m", CorpusOptions(shard_size=5)).shards
    assert [len(content(shard)) for shard in shards] == [5, 5, 2]
    assert list(content(shards[2])) == ["10", "11"]


def test_a_file_is_hashed_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, reads = tmp_path / "0.tar", []
    content = corpus_files._hash_content
    monkeypatch.setattr(corpus_files, "_hash_content", lambda file: (reads.append(file), content(file))[1])
    path.write_bytes(b"one")
    first = hash_file(str(path))
    assert hash_file(str(path)) == first and len(reads) == 2  # changed a moment ago: its times show nothing
    monkeypatch.setattr(corpus_files, "SETTLED_SECONDS", -60.0)
    assert [hash_file(str(path)) for _ in range(3)] == [first] * 3 and len(reads) == 3
    times = path.stat()
    path.with_suffix(".new").write_bytes(b"two")
    os.utime(path.with_suffix(".new"), ns=(times.st_atime_ns, times.st_mtime_ns))
    path.with_suffix(".new").rename(path)
    assert hash_file(str(path)) == digest(b"two") != first

"""Audit and training read hostile corpora in the same way: equal keys, and equal captions at equal indices.

Corpora are made up of odd members: captions with BOMs, in UTF-16, with U+2028 and form feeds, JSON of all kinds, keys
that are repeated, interrupted or dotted, links, folders, names that are no keys; as a tar, packed or not, or a folder.
"""

import gzip
import io
import json
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from auditor.corpus.open_corpus import open_corpus
from auditor.research.train.training_loader import MediaLoader, PairLoader
from auditor.research.train.training_reader import LoaderConfig
from auditor.research.train.training_shards import TrainError, count_shards
from auditor.workers.decoder_pool import DecoderPool
from model.pixels import PixelSpec
from tests.support.training import make_png

PICTURE = make_png("red", "blue", 4)
Row = tuple[str, str, int, str]  # shard, key, caption_index, caption


@pytest.fixture(scope="module")
def pool() -> Iterator[DecoderPool]:
    with DecoderPool(PixelSpec(size=(4, 4)), workers=1) as pool:
        yield pool


words = st.text(st.sampled_from("ab \n\r\t\f\v\x1c\x85\u2028\u2029\ufeff\x00\u00e9\ud83d\ud800"), max_size=12)
encodings = st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "latin-1"])
texts = st.builds(lambda text, encoding: text.encode(encoding, "replace"), words, encodings) | st.binary(max_size=8)
captions = words | st.lists(words | st.none() | st.integers() | st.lists(words, max_size=1), max_size=3) | st.none()
records = st.dictionaries(st.sampled_from(["caption", "captions", "Captions", "uid", "text"]), captions, max_size=3)
jsons = st.builds(
    lambda record, encoding, cut: json.dumps(record).encode(encoding)[: None if cut else -1],
    records | captions,
    encodings,
    st.booleans() | st.just(True),
)
File = tuple[str, str, bytes, bytes, str]  # key, extension, content of a .txt and of a .json, what it is
keys = st.sampled_from(["a", "b", "c", "A", "dir/a", "./a", "dir/b", "a b", "é", "__a__", ".hidden", "", "x" * 120])
media = st.sampled_from(["jpg", "png", "PNG", "mp4", "seg.png", "0.png"])
sidecars = st.sampled_from(["txt", "TXT", "json", "0.txt"])
kinds = st.sampled_from(["file", "file", "file", "link", "folder"])
odd: st.SearchStrategy[File] = st.tuples(keys, media | sidecars | st.sampled_from(["cls", ""]), texts, jsons, kinds)


@st.composite
def corpora(draw: st.DrawFn) -> list[File]:
    """Complete samples among unusual members, in order or shuffled."""
    files: list[File] = []
    for key in draw(st.lists(keys, max_size=6)):
        text, record = draw(texts), draw(jsons)
        files += [(key, end, text, record, "file") for end in (draw(media), draw(sidecars))]
    files += draw(st.lists(odd, max_size=4))
    return draw(st.permutations(files)) if draw(st.booleans()) else files


def content(extension: str, text: bytes, record: bytes) -> bytes:
    last = extension.rpartition(".")[2].lower()
    return text if last == "txt" else record if last == "json" else PICTURE


def write_shard(path: Path, files: Sequence[File], packed: bool) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for key, extension, text, record, kind in files:
            info = tarfile.TarInfo(f"{key}.{extension}" if extension else key or "plain")
            data = content(extension, text, record) if kind == "file" else b""
            info.size = len(data)
            info.type = {"file": tarfile.REGTYPE, "link": tarfile.SYMTYPE, "folder": tarfile.DIRTYPE}[kind]
            info.linkname = "/etc/passwd" if kind == "link" else ""
            tar.addfile(info, io.BytesIO(data))
    path.write_bytes(gzip.compress(buffer.getvalue(), 1) if packed else buffer.getvalue())


def write_folder(root: Path, files: Sequence[File]) -> None:
    for key, extension, text, record, _ in files:
        path = root / (f"{key}.{extension}" if extension else key or "plain")
        if not path.is_dir() and not any(parent.is_file() for parent in path.parents):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content(extension, text, record))


def audited(spec: str) -> list[Row]:
    """The captions that the audit reads, without the rows that have a problem."""
    rows = []
    for shard in open_corpus(spec).shards:
        with shard.open() as opened:
            good = [sample for sample in opened.samples if sample.problem is None]
        rows += [(s.shard, s.key, index, caption) for s in good for index, caption in enumerate(s.captions)]
    return sorted(rows)


def trained(spec: str, pool: DecoderPool) -> tuple[list[Row], list[Row]]:
    """The captions that the training loader and the validation loader return in one epoch."""
    try:
        found = count_shards(spec)
    except TrainError:  # not one pair
        return [], []
    config = LoaderConfig(batch=found.pairs("all"), shuffle=5)
    loader = PairLoader(found, config, pool)
    with closing(iter(loader)) as batches:
        draws = next(batches).draws
    assert not loader.failures
    pairs = [(d.sample.shard, d.sample.key, index, d.caption) for d in draws for index in d.captions]
    media = [captions for batch in MediaLoader(found, config, pool) for captions in batch.captions]
    keyed = {draw.number: draw.sample for draw in draws}
    in_order = [keyed[number] for number in sorted(keyed)]
    listed = [
        (sample.shard, sample.key, index, caption)
        for sample, captions in zip(in_order, media, strict=True)
        for index, caption in enumerate(captions)
    ]
    return sorted(pairs), sorted(listed)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(first=corpora(), second=corpora(), packed=st.booleans())
def test_shards(pool: DecoderPool, first: list[File], second: list[File], packed: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_shard(Path(folder, "0.tar"), first, packed)
        write_shard(Path(folder, "1.tar"), second, not packed)
        expected = audited(folder)
        assert trained(folder, pool) == (expected, expected)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(files=corpora())
def test_a_folder(pool: DecoderPool, files: list[File]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_folder(Path(folder), [*files, ("z", "png", b"", b"", "file"), ("z", "txt", b"one", b"", "file")])
        expected = audited(folder)
        assert expected and trained(folder, pool) == (expected, expected)

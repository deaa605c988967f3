"""Tables: columns found by name, rows cut without loss, Parquet cells read in any order as Arrow reads them."""

import csv
import io
import itertools
import json
import pickle
import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditor.corpus.open_corpus import Corpus, CorpusError, CorpusOptions, ShardError, open_corpus
from auditor.corpus.read_medium import format_cell_path, read_media
from auditor.corpus.sample import Sample
from auditor.corpus.tables.parquet_table import cut_row_groups
from auditor.corpus.tables.text_table import list_text_shards

PNG = b"\x89PNG\r\n\x1a\n"
MP4 = b"\0\0\0\x20ftypisom"


def samples_of(corpus: Corpus) -> list[Sample]:
    found: list[Sample] = []
    for shard in corpus.shards:
        with pickle.loads(pickle.dumps(shard)).open() as opened:
            found += opened.samples
    return found


def images(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(PNG + name.encode())


def statuses(samples: list[Sample]) -> list[tuple[str, str]]:
    return [(sample.key, sample.problem.status if sample.problem else "ok") for sample in samples]


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "parquet"])
def test_the_same_rows_in_every_form(tmp_path: Path, form: str) -> None:
    images(tmp_path, "img/a.png", "img/b.jpg", "c")
    (tmp_path / "n.bin").write_bytes(b"neither")
    rows = [
        ("img/a.png", 'says "hi",\tor\nnot'),
        ("img/b.jpg", "two"),
        ("img/b.jpg", "of the same picture"),
        ("c", "no extension, but a picture"),
        ("n.bin", "no picture"),
        (str(tmp_path / "img/a.png"), "absolute"),
        ("https://example.org/x/y.mp4?size=1", "remote"),
        ("gone.jpg", "not there"),
        ("img/b.jpg", ""),
        ("", "names nothing"),
    ]
    path = write_table(tmp_path / f"table.{form}", ["image_path", "caption"], rows)
    assert ("https://example.org/x/y.mp4?size=1", "outside") in statuses(samples_of(open_corpus(str(path))))
    samples = samples_of(open_corpus(str(path), CorpusOptions(media_root=("https://example.org",))))
    assert statuses(samples) == [
        ("img/a", "ok"),
        ("img/b", "ok"),
        ("c", "ok"),
        ("n", "missing_media"),
        ("https://example.org/x/y.mp4?size=1", "ok"),
        ("gone", "missing_media"),
        ("000000009", "missing_media"),
    ]
    assert samples[0].captions == ('says "hi",\tor\nnot', "absolute")  # the same file, however it is named
    assert samples[1].captions == ("two", "of the same picture")
    assert samples[4].media is not None
    assert (samples[4].media.kind, samples[4].media.size) == ("video", -1)
    assert samples[1].media is not None
    assert read_media(samples[1].media.path, 0, samples[1].media.size) == PNG + b"img/b.jpg"


def write_table(path: Path, columns: list[str], rows: Sequence[tuple[str, ...]]) -> Path:
    records = [dict(zip(columns, row, strict=True)) for row in rows]
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(records), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    else:
        with path.open("w", newline="") as file:
            writer = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writerows([columns, *rows])
    return path


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c"]),
            st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=30),
        ),
        min_size=1,
        max_size=30,
    ),
    st.integers(1, 7),
    st.sampled_from(["csv", "tsv", "jsonl"]),
    st.sampled_from(["\n", "\r\n"]),
)
def test_cut_tables_hold_what_the_whole_one_holds(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], size: int, form: str, end: str
) -> None:
    path = tmp_path_factory.mktemp("t") / f"t.{form}"
    text = io.StringIO()
    if form == "jsonl":
        text.writelines(json.dumps({"image": image, "text": caption}) + end for image, caption in rows)
    else:
        csv.writer(text, delimiter="\t" if form == "tsv" else ",", lineterminator=end).writerows(
            [("image", "text"), *rows]
        )
    path.write_bytes(text.getvalue().encode())
    shards = list_text_shards(str(path), form, "t", CorpusOptions(shard_size=size))
    found = [(entry.media, entry.captions) for shard in shards for entry in shard.entries()]
    assert found == [(image, (caption.strip(),) if caption.strip() else ()) for image, caption in rows]
    assert [entry.row for shard in shards for entry in shard.entries()] == list(range(len(rows)))
    runs = 1 + sum(before[0] != after[0] for before, after in itertools.pairwise(rows))
    assert len(shards) == -(-runs // size)


@pytest.mark.parametrize(
    ("columns", "media", "caption"),
    [
        (["URL", "TEXT", "similarity"], "URL", "TEXT"),
        (["id", "file_name", "title"], "file_name", "title"),
        (["text", "image", "url"], "image", "text"),
        (["video", "sentence"], "video", "sentence"),
    ],
)
def test_usual_columns_are_found(tmp_path: Path, columns: list[str], media: str, caption: str) -> None:
    path = write_table(tmp_path / "t.csv", columns, [tuple(f"{name}.jpg" for name in columns)])
    (sample,) = samples_of(open_corpus(str(path)))
    assert sample.key == media
    assert sample.captions == (f"{caption}.jpg",)


def test_columns_can_be_named(tmp_path: Path) -> None:
    images(tmp_path, "a.png", "b.png")
    path = write_table(
        tmp_path / "t.csv",
        ["image", "where", "caption", "words", "n"],
        [("x", "a.png", "y", "said", "k1"), ("x", "b.png", "y", "so", "k1")],
    )
    options = CorpusOptions(media_column="where", caption_column="words", key_column="n")
    first, second = samples_of(open_corpus(str(path), options))
    assert (first.key, first.captions, first.problem) == ("k1", ("said",), None)
    assert second.occurrence == 1
    assert second.problem is not None and second.problem.status == "duplicate_key"


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        ("a,b\n1,2\n", CorpusOptions(), "which column holds the media.*'a', 'b'.*--media-column"),
        ("image,b\n1,2\n", CorpusOptions(), "which column holds the captions.*--caption-column"),
        ("image,text\n1,2\n", CorpusOptions(media_column="none"), "no column 'none'"),
        ("image,text\n", CorpusOptions(), "has no rows"),
        ("", CorpusOptions(), "is empty"),
    ],
)
def test_wrong_tables_raise(tmp_path: Path, content: str, options: CorpusOptions, said: str) -> None:
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(CorpusError, match=said):
        open_corpus(str(tmp_path / "t.csv"), options)


def test_a_broken_parquet_raises(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(b"PAR1 no")
    for name, said in (("t.parquet", "not a readable Parquet"),):
        with pytest.raises(CorpusError, match=said):
            open_corpus(str(tmp_path / name))


def test_a_line_that_is_not_json_is_a_row(tmp_path: Path) -> None:
    images(tmp_path, "a.png")
    (tmp_path / "t.jsonl").write_text('{"image": "a.png", "captions": ["one", "two"]}\n{broken\n\n[1]\n')
    samples = samples_of(open_corpus(str(tmp_path / "t.jsonl")))
    assert statuses(samples) == [("a", "ok"), ("000000001", "corrupt"), ("000000002", "corrupt")]
    assert samples[0].captions == ("one", "two")


def test_metadata_beside_its_images(tmp_path: Path) -> None:
    images(tmp_path, "a.png", "b.png")
    write_table(tmp_path / "metadata.csv", ["file_name", "text"], [("a.png", "one"), ("b.png", "two")])
    assert statuses(samples_of(open_corpus(str(tmp_path)))) == [("a", "ok"), ("b", "ok")]


def test_text_tables_that_change_or_vanish(tmp_path: Path) -> None:
    images(tmp_path, "a.png", "b.png")
    path = write_table(tmp_path / "t.csv", ["image", "text"], [("a.png", "one"), ("b.png", "two")])
    first, second = open_corpus(str(path), CorpusOptions(shard_size=1)).shards
    before = first.fingerprint(), second.fingerprint()
    (tmp_path / "a.png").write_bytes(b"another picture")
    assert first.fingerprint() != before[0]
    assert second.fingerprint() == before[1]
    path.write_text("image,text\n")
    with pytest.raises(ShardError, match=r"t-000001: .*shorter"), second.open():
        pass
    path.unlink()
    with pytest.raises(ShardError, match=r"t-000000: .*does not exist"):
        first.fingerprint()


def hugging_face(path: Path, rows: int, row_group: int) -> list[bytes | None]:
    """A table as `datasets` writes it: a struct of bytes and path; every seventh cell is null."""
    rng = random.Random(0)
    cells = [
        None if n % 7 == 6 else (MP4 if n % 5 == 4 else PNG) + rng.randbytes(rng.randrange(2000)) for n in range(rows)
    ]
    image = [{"bytes": data, "path": f"{n}.png" if n % 2 else None} for n, data in enumerate(cells)]
    table = pa.table(
        {"image": image, "caption": [[f"{n}", f"again {n}"] for n in range(rows)], "other": list(range(rows))}
    )
    pq.write_table(table, path, row_group_size=row_group)
    return cells


@pytest.mark.parametrize(("rows", "row_group", "size"), [(100, 10, 25), (100, 100, 30), (100, 33, 10), (40, 7, 1000)])
def test_cells_are_read_in_any_order(tmp_path: Path, rows: int, row_group: int, size: int) -> None:
    cells = hugging_face(tmp_path / "t.parquet", rows, row_group)
    corpus = open_corpus(str(tmp_path / "t.parquet"), CorpusOptions(shard_size=size))
    seen = 0
    for shard in corpus.shards:
        with shard.open() as opened:
            numbered = list(enumerate(opened.samples, start=seen))
            seen += len(numbered)
            for n, sample in [*numbered, *random.Random(1).sample(numbered, len(numbered))]:
                data = cells[n]
                assert sample.captions == (str(n), f"again {n}")
                if data is None:
                    assert sample.problem is not None and sample.problem.status == "missing_media"
                    continue
                assert sample.key == (str(n) if n % 2 else f"{n:09d}")
                assert sample.problem is None and sample.media is not None
                assert sample.media.kind == ("video" if n % 5 == 4 else "image")
                assert sample.media.path == format_cell_path(str(tmp_path / "t.parquet"), "image", n)
                assert opened.read(sample.media) == data
            if n % 10 == 0 and sample.media:
                assert read_media(sample.media.path, 0, sample.media.size) == cells[n]
    assert seen == rows


def test_bare_bytes_and_repeated_paths(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"jpg": [PNG, b"", None], "txt": ["one", "two", "three"], "__key__": ["x", "y", "z"]}),
        tmp_path / "a.parquet",
    )
    same = [{"bytes": PNG, "path": "image.png"}] * 3
    pq.write_table(pa.table({"image": same, "text": ["one", "two", "three"]}), tmp_path / "b.parquet")
    first = samples_of(open_corpus(str(tmp_path / "a.parquet")))
    assert statuses(first) == [("x", "ok"), ("y", "corrupt"), ("z", "missing_media")]
    second = samples_of(open_corpus(str(tmp_path / "b.parquet")))
    assert statuses(second) == [("image", "ok"), ("image.png", "ok"), ("image.png#000000002", "ok")]


@given(st.lists(st.integers(0, 200), max_size=12), st.integers(1, 60))
def test_cuts_cover_every_row_once(groups: list[int], size: int) -> None:
    cuts = cut_row_groups(groups, size)
    assert [row for start, stop in cuts for row in range(start, stop)] == list(range(sum(groups)))
    assert all(stop > start for start, stop in cuts)
    assert all(stop - start <= max(size, -(-max(groups) // 16)) for start, stop in cuts)


def test_a_large_row_group_is_cut_into_few_pieces() -> None:
    """Each piece skips the rows before it, so a thousand pieces would read the group a thousand times."""
    assert cut_row_groups([1_000_000], 1000) == [(start, start + 62_500) for start in range(0, 1_000_000, 62_500)]


def test_many_parquet_files_are_not_opened_to_be_listed(tmp_path: Path) -> None:
    for n in range(300):
        (tmp_path / f"{n:05d}.parquet").write_bytes(b"not opened")
    corpus = open_corpus(str(tmp_path))
    assert [shard.name for shard in corpus.shards[:2]] == ["00000", "00001"]
    with pytest.raises(ShardError, match="00000: "), corpus.shards[0].open():
        pass


def test_parquet_fingerprints(tmp_path: Path) -> None:
    images(tmp_path, "a.png", "b.png")
    path = write_table(tmp_path / "t.parquet", ["image", "text"], [("a.png", "one"), ("b.png", "two")])
    (shard,) = open_corpus(str(path)).shards
    before = shard.fingerprint()
    assert shard.fingerprint() == before
    (tmp_path / "a.png").write_bytes(b"another picture")
    assert shard.fingerprint() != before
    path.unlink()
    with pytest.raises(ShardError, match="does not exist"):
        shard.fingerprint()


def test_keys_are_relative_and_keep_their_dots(tmp_path: Path) -> None:
    """The same file has the same key alone and among siblings; no key begins with a slash."""
    outside = tmp_path / "elsewhere" / "o.jpg"
    images(tmp_path, "list/img.v1.jpg", "list/img.v2.jpg", "elsewhere/o.jpg")
    inside = str(tmp_path / "list" / "img.v1.jpg")
    alone = write_table(tmp_path / "list" / "alone.csv", ["image", "caption"], [("img.v2.jpg", "alone")])
    rows = [(inside, "absolute"), ("./img.v2.jpg", "relative"), (str(outside), "outside")]
    several = write_table(tmp_path / "list" / "several.csv", ["image", "caption"], rows)
    assert [sample.key for sample in samples_of(open_corpus(str(alone)))] == ["img.v2"]
    options = CorpusOptions(media_root=(str(outside.parent),))
    keys = [sample.key for sample in samples_of(open_corpus(str(several), options))]
    assert keys == ["img.v1", "img.v2", str(outside.with_suffix("")).lstrip("/")]
    upwards = write_table(tmp_path / "list" / "up.csv", ["image", "caption"], [("../elsewhere/o.jpg", "up")])
    assert [sample.key for sample in samples_of(open_corpus(str(upwards), options))] == keys[2:]
    with pytest.raises(CorpusError, match=f"--media-root {outside.parent} allows it"):
        open_corpus(str(upwards))

"""Read one medium: files, byte ranges, moved corpora, and errors that name what is missing."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor.corpus.read_medium import (
    MediaError,
    MediaPlaces,
    format_cell_path,
    parse_cell_path,
    read_media,
    relocate_path,
)


def test_files_and_byte_ranges(tmp_path: Path) -> None:
    (tmp_path / "a#1.bin").write_bytes(bytes(range(100)))
    path = str(tmp_path / "a#1.bin")
    assert read_media(path, 10, 5) == bytes(range(10, 15))
    assert read_media(path, 0, -1) == bytes(range(100))


def test_missing_media_are_named(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"12345")
    for path, offset, size, said in (
        (str(tmp_path / "none"), 0, 1, "none does not exist"),
        (str(tmp_path / "short"), 3, 10, "too short: 2 of 10 bytes at offset 3"),
        (str(tmp_path), 0, 1, "cannot be read"),
        ("ssh://host/etc/passwd", 0, 1, "not read over this protocol"),
        (str(tmp_path / "none.parquet#column=a&row=0"), 0, 1, "does not exist"),
        (str(tmp_path / "none.tar#compression=gzip"), 0, 1, "does not exist"),
        (str(tmp_path / "short#column=a&row=0"), 0, 1, "cannot be read"),
    ):
        with pytest.raises(MediaError, match=said):
            read_media(path, offset, size)


def test_cells(tmp_path: Path) -> None:
    table = str(tmp_path / "t.parquet")
    values = [b"a", None, b"ccc", b"dddd", b"e"] * 10
    pq.write_table(pa.table({"the column & more": values}), table, row_group_size=20)
    assert parse_cell_path(format_cell_path(table, "the column & more", 3)) == (table, "the column & more", 3)
    for row, value in enumerate(values):
        if value is not None:
            assert read_media(format_cell_path(table, "the column & more", row), 0, len(value)) == value
    for row, said in ((1, "no bytes"), (50, "has 50 rows: there is no row 50")):
        with pytest.raises(MediaError, match=said):
            read_media(format_cell_path(table, "the column & more", row), 0, 1)


def test_a_corpus_that_moved(tmp_path: Path) -> None:
    new = tmp_path / "new"
    (new / "x").mkdir(parents=True)
    (new / "x" / "1.tar").write_bytes(b"12345")
    for old_root in ("/old/corpus", "/old/corpus/", None):
        assert MediaPlaces((str(new),), old_root).read("/old/corpus/x/1.tar", 1, 2) == b"23"
    assert relocate_path("/other/1.tar", str(new), "/old/corpus") == "/other/1.tar"
    assert relocate_path("/old/corpus-two/x/1.tar", str(new), "/old/corpus") == "/old/corpus-two/x/1.tar"
    assert relocate_path("s3://b/c/x/1.tar", str(new), "s3://b/c") == str(new / "x" / "1.tar")
    assert relocate_path("/old/x/t.parquet#column=a&row=1", "s3://b", "/old") == "s3://b/x/t.parquet#column=a&row=1"
    with pytest.raises(MediaError, match=r"/old/corpus/nowhere.tar is not read: it lies outside"):
        MediaPlaces((str(new),)).read("/old/corpus/nowhere.tar", 0, 1)

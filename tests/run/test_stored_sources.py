"""Stored embeddings with several captions per row: each column of captions has text vectors of its own."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor.cli import run_command_line
from auditor.corpus.stored import stored_corpora, vector_shard
from auditor.python_api import Audit
from tests.support.corpora import make_caption
from tests.support.stored import make_pairs, make_uids, normalize_rows, write_clip_retrieval, write_datacomp

COUNT, WIDTH = 240, 16
SOURCES = ("alt", "raw", "refined")
NO_ALT, NO_CAPTION, BAD_RAW = 7, 9, 11  # rows of the table
Floats = npt.NDArray[np.float32]
ROWS = "SELECT key, caption_index, caption_source, caption, status, error_message, similarity, score, uid FROM samples"


def make_source_table() -> tuple[pa.Table, Floats, dict[str, Floats]]:
    """Media with three captions; half of the refined ones are swapped, and the vectors of raw ones are of two parts."""
    visual, alt = make_pairs(COUNT, WIDTH, swapped=0)
    refined = np.where((np.arange(COUNT) % 2 == 0)[:, None], alt, np.roll(alt, 1, axis=0))
    parts = np.stack([visual, alt], axis=1)
    raw = normalize_rows(parts.mean(axis=1))
    lists = parts.tolist()
    lists[BAD_RAW] = None
    captions = {name: [f"{make_caption(row)}. The words are {name}." for row in range(COUNT)] for name in SOURCES}
    missing: Any = {"alt": (NO_ALT, NO_CAPTION), "raw": (NO_CAPTION,), "refined": (NO_CAPTION,)}
    for name, rows in missing.items():
        captions[name] = [None if row in rows else text for row, text in enumerate(captions[name])]  # type: ignore[misc]
    vectors = {"alt_vector": list(alt), "refined_vector": list(refined), "image": list(visual)}
    columns = {"key": [f"{row:04d}" for row in range(COUNT)], "score": [float(row) for row in range(COUNT)]}
    table = pa.table({"uid": make_uids(COUNT), **columns, **captions, **vectors})
    table = table.append_column("raw_vector", pa.array(lists, pa.list_(pa.list_(pa.float32()))))
    return table, visual, {"alt": alt, "raw": raw, "refined": refined}


def build_command(corpus: Path | str, out: Path, **changes: str | None) -> list[str]:
    vectors = ",".join(f"{name}_vector" for name in SOURCES)
    options = {"visual-column": "image", "caption-column": ",".join(SOURCES), "text-column": vectors, **changes}
    flags = [word for name, value in options.items() if value is not None for word in (f"--{name}", value)]
    return ["audit", str(corpus), "--out", str(out), "--quiet", *flags]


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("sources")
    pq.write_table(make_source_table()[0], place / "v.parquet")
    assert run_command_line(build_command(place / "v.parquet", place / "audit")) == 0
    return place / "audit"


def read_source_rows(folder: Path) -> list[dict[str, Any]]:
    with Audit(folder) as opened:
        return opened.sql(f"{ROWS} ORDER BY key, caption_index").to_pylist()


def test_each_caption_is_a_row_with_the_vector_of_its_source(audited: Path) -> None:
    _, visual, texts = make_source_table()
    rows = read_source_rows(audited)
    assert len(rows) == 3 * (COUNT - 1) - 1 + 1 and len({row["uid"] for row in rows}) == len(rows)
    for number in range(COUNT):
        names = [name for name in SOURCES if not (name == "alt" and number == NO_ALT)]
        media_rows = [row for row in rows if row["key"] == f"{number:04d}"]
        assert {row["score"] for row in media_rows} == {float(number)}
        if number == NO_CAPTION:
            assert [(row["status"], row["caption_source"]) for row in media_rows] == [("missing_caption", None)]
            continue
        assert [(row["caption_index"], row["caption_source"]) for row in media_rows] == list(enumerate(names))
        for name, row in zip(names, media_rows, strict=True):
            if (number, name) == (BAD_RAW, "raw"):
                assert (row["status"], row["error_message"]) == ("bad_vector", "the text vector is missing")
            else:
                assert row["caption"] == f"{make_caption(number)}. The words are {name}."
                assert row["similarity"] == pytest.approx(float(visual[number] @ texts[name][number]), abs=2e-3)
    assert [row["uid"] for row in rows if row["caption_index"] == 0] == make_uids(COUNT)


def test_parts_belong_to_the_source_with_lists_of_vectors(audited: Path) -> None:
    with Audit(audited) as opened:
        sql = "SELECT DISTINCT caption_source AS source, parts, part_ends IS NOT NULL AS ends FROM samples"
        rows = opened.sql(f"{sql} WHERE status = 'ok' ORDER BY source").to_pylist()
    assert [(row["source"], row["parts"], row["ends"]) for row in rows] == [
        ("alt", None, False),
        ("raw", 2, True),
        ("refined", None, False),
    ]


def test_everything_speaks_per_source(audited: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "kept.parquet"
    assert run_command_line(["summary", str(audited)]) == 0
    assert "raw is better for 118 media, refined for 0," in capsys.readouterr().out
    assert run_command_line(["filter", str(audited), "--best-caption", "--out", str(out)]) == 0
    table = pq.read_table(out).to_pylist()
    assert len(table) == COUNT - 1
    assert not any(row["caption_source"] == "refined" and int(row["key"]) % 2 for row in table)


def test_cutting_a_file_changes_no_row(audited: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in (
        (stored_corpora, "LARGE_FILE_BYTES", 10),
        (stored_corpora, "SHARD_ROWS", 70),
        (vector_shard, "STRETCH_ROWS", 8),
    ):
        monkeypatch.setattr(module, name, value)
    assert run_command_line(build_command(audited.parent / "v.parquet", tmp_path / "audit")) == 0
    names = ("key", "caption_source", "caption", "status", "score", "similarity")
    rows = [
        [tuple(row[name] for name in names) for row in read_source_rows(out)] for out in (audited, tmp_path / "audit")
    ]
    assert rows[0] == rows[1]


def test_matrices_of_the_published_layouts(tmp_path: Path) -> None:
    corpus = write_clip_retrieval(tmp_path / "clip", parts=1)
    shutil.copytree(corpus / "text_emb", corpus / "alt_emb")
    (corpus / "alt_emb/text_emb_0.npy").rename(corpus / "alt_emb/alt_emb_0.npy")
    metadata = corpus / "metadata/metadata_0.parquet"
    table = pq.read_table(metadata)
    pq.write_table(table.append_column("alt", table["license"]), metadata)
    options: dict[str, str | None] = {"visual-column": None, "caption-column": "alt,caption"}
    options["text-column"] = "alt_emb,text_emb"
    assert run_command_line(build_command(f"clip-retrieval:{corpus}", tmp_path / "a", **options)) == 0
    corpus = write_datacomp(tmp_path / "comp", files=1)
    with np.load(corpus / "part-0.npz") as arrays:
        np.savez(corpus / "part-0.npz", **arrays, url_txt=arrays["l14_txt"])
    options |= {"caption-column": "text,url", "text-column": "l14_txt,url_txt"}
    assert run_command_line(build_command(f"datacomp:{corpus}", tmp_path / "b", **options)) == 0
    for folder, names in ((tmp_path / "a", ("alt", "caption")), (tmp_path / "b", ("text", "url"))):
        with Audit(folder) as opened:
            sql = (
                "SELECT caption_index, caption_source, count(*), sum(similarity) FROM samples GROUP BY ALL ORDER BY ALL"
            )
            (first, second) = opened.sql(sql).to_pylist()
        assert (first["caption_source"], second["caption_source"]) == names
        assert list(first.values())[2:] == pytest.approx(list(second.values())[2:])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"text-column": "alt_vector,raw_vector"},
            "3 columns of captions (alt, raw, refined), but 2 of text vectors (alt_vector, raw_vector)",
        ),
        ({"text-column": "alt_vector,raw_vector,other"}, "no column 'other'"),
        ({"caption-column": "alt,raw,other"}, "no column 'other'"),
        ({"text-column": "alt_vector,raw_vector,score"}, "column 'score'"),
        ({"text-column": "alt_vector,alt_vector,raw_vector"}, "text_column names 'alt_vector' twice"),
        ({"caption-fields": "alt"}, "name its columns with --caption-column"),
    ],
)
def test_a_wrong_name_or_number_is_one_line(
    audited: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, str], reason: str
) -> None:
    assert run_command_line(build_command(audited.parent / "v.parquet", tmp_path / "out", **changes)) == 1
    error = capsys.readouterr().err
    assert reason in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()

"""Captions of several sources from the corpus to an audit, its exports and the audit of the exports."""

import csv
import json
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from auditor.corpus.shard import CorpusOptions
from auditor.errors import AuditError
from auditor.faults.apply_repair import replace_captions
from auditor.keep.export_table import select_cell
from auditor.python_api import Audit
from auditor.python_api import audit as audit_frame
from auditor.run.audit_config import AuditConfig
from auditor.run.extend import extend_audit
from auditor.run.run_audit import run_audit
from auditor.run.verify import verify_audit
from tests.support.clips import make_numbered_clip
from tests.support.corpora import make_picture, write_tar

SOURCES = ("alt", "raw", "refined")
ROWS: list[dict[str, Any]] = [
    {"file_name": f"{n}.jpg", **{source: f"{source} text {n}" for source in SOURCES}, "width": n} for n in range(4)
]


def make_config(corpus: Path, model: str, **options: Any) -> AuditConfig:
    out = corpus.with_name(f"audit-{corpus.name}")
    return AuditConfig(str(corpus), str(out), model, CorpusOptions(**options), allow_random_weights=True, quiet=True)


def run(corpus: Path, model: str, **options: Any) -> Audit:
    config = make_config(corpus, model, **options)
    run_audit(config)
    return Audit(config.out)


def write_table(folder: Path, form: str) -> Path:
    import pyarrow as pa

    for number in range(4):
        (folder / f"{number}.jpg").write_bytes(make_picture(number))
    path = folder / f"t.{form}"
    rows = ROWS if form != "parquet" else [{**row, "alt": [row["alt"], f"second {row['width']}"]} for row in ROWS]
    if form == "csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(ROWS[0]))
            writer.writeheader()
            writer.writerows(rows)
    elif form == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        fields = [(name, pa.list_(pa.string()) if name == "alt" else pa.string()) for name in ("file_name", *SOURCES)]
        schema = pa.schema(
            [pa.field(*f, nullable=False) for f in fields] + [("width", pa.int64())], metadata={"a": "b"}
        )
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    return path


def list_rows(audit: Audit, where: str = "TRUE") -> set[tuple[Any, ...]]:
    columns = "key, caption, caption_source"
    return {tuple(row.values()) for row in audit.sql(f"SELECT {columns} FROM samples WHERE {where}").to_pylist()}


def read_cells(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        return [dict(row) for row in pq.read_table(path).to_pylist()]
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    with path.open(newline="") as file:
        return [{name: cell or None for name, cell in row.items()} for row in csv.DictReader(file)]


WHERE = "(caption_source = 'raw' AND key < '2') OR (caption_source = 'refined' AND key = '1') OR caption LIKE 'second%'"


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_cells_of_dropped_sources_are_empty(tmp_path: Path, random_model: str, form: str) -> None:
    audit = run(write_table(tmp_path, form), random_model, caption_column=SOURCES)
    assert len(list_rows(audit)) == (16 if form == "parquet" else 12)
    kept = audit.keep(where=WHERE)
    for target in ("csv", "jsonl", "parquet") if form != "parquet" else ("parquet",):
        out = tmp_path / f"kept.{target}"
        kept.write(out, input_columns=True)
        cells = {row["file_name"]: [row[name] for name in SOURCES] for row in read_cells(out)}
        second = {f"{n}.jpg": [[f"second {n}"], None, None] for n in range(4)} if form == "parquet" else {}
        alt = {n: [f"second {n}"] if form == "parquet" else None for n in range(2)}
        expected = {"0.jpg": [alt[0], "raw text 0", None], "1.jpg": [alt[1], "raw text 1", "refined text 1"]}
        assert cells == second | expected
        again = run(out, random_model, caption_column=SOURCES)
        assert list_rows(again) == list_rows(audit, WHERE)
    if form == "parquet":
        assert pq.read_schema(tmp_path / "kept.parquet").metadata[b"a"] == b"b"


def test_shards_of_a_table_name_the_sources(tmp_path: Path, random_model: str) -> None:
    audit = run(write_table(tmp_path, "csv"), random_model, caption_column=SOURCES)
    audit.keep(where=WHERE).write(tmp_path / "out")
    again = run(tmp_path / "out", random_model)
    assert list_rows(again) == list_rows(audit, WHERE)
    best = again.keep(best_caption=True)
    best.write(tmp_path / "best")
    assert run(tmp_path / "best", random_model).count() == best.count == 2


@pytest.fixture
def tars(tmp_path: Path) -> Path:
    """Tars with text files of two sources and two fields of the .json."""
    for shard in range(2):
        samples = [
            (
                str(n),
                {
                    "jpg": make_picture(n),
                    "txt": f"plain {n}".encode(),
                    "alt.txt": f"alt {n}\nalternative {n}".encode(),
                    "json": json.dumps({"raw": f"raw {n}", "refined": [f"refined {n}"], "width": n}).encode(),
                },
            )
            for n in range(10 * shard, 10 * shard + 3)
        ]
        write_tar(tmp_path / "tars" / f"{shard}.tar", samples)
    return tmp_path / "tars"


@pytest.mark.parametrize("fields", [(), ("txt", "refined", "raw")])
def test_tars_keep_captions_in_their_files(
    tars: Path, tmp_path: Path, random_model: str, fields: tuple[str, ...]
) -> None:
    audit = run(tars, random_model, caption_fields=fields)
    sources = ("txt", "refined", "raw") if fields else ("txt", "alt")
    assert {source for *_, source in list_rows(audit)} == set(sources)
    order = audit.sql("SELECT caption_source AS s FROM samples WHERE key = '1' ORDER BY caption_index")["s"].to_pylist()
    assert tuple(dict.fromkeys(order)) == sources
    for index, where in enumerate(("caption_source = 'txt'", f"caption_source = '{sources[1]}'", "caption_index <> 0")):
        audit.keep(where=where).write(tmp_path / f"out{index}")
        assert list_rows(run(tmp_path / f"out{index}", random_model, caption_fields=fields)) == list_rows(audit, where)
    with tarfile.open(next((tmp_path / "out1").glob("*.tar"))) as opened:
        text = opened.extractfile("0.txt")
        assert text is not None and text.read() == b""
    assert not [check for check in verify_audit(audit.path, 6, model=random_model) if check.differs]


def test_fields_of_a_video_with_subtitles(tmp_path: Path, random_model: str) -> None:
    """What an export keeps is what an audit of it reads, with the same options."""
    subtitles = b"WEBVTT\n\n00:00.000 --> 00:01.000\nspoken\n\n00:01.000 --> 00:02.000\nsaid later\n"
    record = {"raw": "a raw text", "refined": ["fine one", "fine two"], "url": "u"}
    clip = make_numbered_clip("h264", "mp4", 75)
    write_tar(tmp_path / "v" / "0.tar", [("a", {"mp4": clip, "json": json.dumps(record).encode(), "vtt": subtitles})])
    fields = {"caption_fields": ("raw", "refined")}
    audit = run(tmp_path / "v", random_model, **fields)
    assert len(list_rows(audit)) == 5 and ("a", "spoken", None) in list_rows(audit)
    where = "caption IN ('fine two', 'said later')"
    audit.keep(where=where).write(tmp_path / "out")
    assert list_rows(run(tmp_path / "out", random_model, **fields)) == list_rows(audit, where)


@pytest.mark.parametrize(
    ("cell", "places", "timed", "expected"),
    [
        ('["x", "y"]', [1], True, '["", "y"]'),
        (["x", "y"], [0], True, ["x", ""]),
        (["x", "y"], [0], False, ["x"]),
        ("one text", [0], False, "one text"),
        ("one text", [], True, None),
    ],
)
def test_spans_stay_beside_dropped_texts(cell: Any, places: list[int], timed: bool, expected: Any) -> None:
    assert select_cell(cell, dict.fromkeys(places), timed=timed) == expected


@pytest.mark.parametrize(
    ("cell", "captions", "timed", "expected"),
    [
        ('["x", "y"]', {1: "new"}, True, '["", "new"]'),
        (["x", "y"], {0: None, 1: "new"}, False, ["x", "new"]),
        ("one text", {0: "new"}, False, "new"),
    ],
)
def test_edited_texts_of_a_source_are_written(
    cell: Any, captions: dict[int, str | None], timed: bool, expected: Any
) -> None:
    assert select_cell(cell, captions, timed=timed) == expected


def test_resume_and_extend_read_the_same_sources(tars: Path, random_model: str) -> None:
    moved = tars / "1.tar"
    later = moved.rename(tars.with_name("later.tar"))
    config = make_config(tars, random_model, caption_fields=("raw", "refined"))
    run_audit(config)
    before = list_rows(Audit(config.out))
    run_audit(config)
    assert list_rows(Audit(config.out)) == before and len(before) == 6
    later.rename(moved)
    extend_audit(config)
    assert len(list_rows(Audit(config.out))) == 12
    other = replace(config, options=CorpusOptions(caption_fields=("refined", "raw")))
    with pytest.raises(AuditError, match="was made with corpus caption_fields"):
        run_audit(other)


def test_moved_captions_go_to_the_place_of_their_source() -> None:
    members = {"jpg": b"x", "txt": b"old", "json": json.dumps({"raw": "old raw", "width": 1}).encode()}
    row = {"uid": "0" * 32, "start": None, "end": None}
    arrived = [{**row, "caption": f"new {source}", "caption_source": source} for source in ("txt", "alt", "raw")]
    files = replace_captions(members, arrived[:2])
    assert (files["txt"], files["alt.txt"], files["json"]) == (b"new txt", b"new alt", members["json"])
    fields = replace_captions(members, arrived[::2], CorpusOptions(caption_fields=("txt", "raw")))
    assert fields["txt"] == b"new txt" and json.loads(fields["json"]) == {"raw": "new raw", "width": 1}


def test_a_data_frame_with_several_captions(tmp_path: Path, random_model: str) -> None:
    import pandas as pd

    write_table(tmp_path, "csv")
    frame = pd.DataFrame(ROWS).assign(file_name=lambda rows: str(tmp_path) + "/" + rows["file_name"])
    options: dict[str, Any] = {"allow_random_weights": True, "quiet": True, "model": random_model}
    audit = audit_frame(frame, tmp_path / "audit", caption=list(SOURCES), **options)
    assert {(caption, source) for _, caption, source in list_rows(audit)} == {
        (row[source], source) for row in ROWS for source in SOURCES
    }

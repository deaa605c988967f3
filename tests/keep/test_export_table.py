"""Exports of a table corpus in its own columns, and rules on columns of the input."""

import csv
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor.cli import run_command_line
from auditor.corpus.shard import CorpusOptions
from auditor.corpus.timed_captions import parse_list_cell
from auditor.errors import AuditError
from auditor.keep.export_target import ExportError
from auditor.python_api import Audit
from auditor.run.audit_config import AuditConfig
from auditor.run.run_audit import run_audit
from tests.support.clips import make_numbered_clip
from tests.support.synthetic import make_photo, write_corpus_audit

COLUMNS = ["file", "caption", "license", "width"]


def rows() -> list[dict[str, Any]]:
    """Six photos with two rows each and two licenses; `width` is also a column of the audit."""
    return [
        {"file": f"{n}.jpg", "caption": f'photo {n}, "no" {k}', "license": "by" if n % 2 else "cc0", "width": 100 + k}
        for n in range(6)
        for k in range(2)
    ]


def write_input(folder: Path, form: str, listed: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(6):
        (folder / f"{number}.jpg").write_bytes(make_photo(number))
    given = rows()
    if listed:
        given = [
            {**a, "caption": [a["caption"], "", b["caption"]]} for a, b in zip(given[::2], given[1::2], strict=True)
        ]
    path = folder / f"t.{form}"
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(given), path, row_group_size=3)
    elif form == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in given))
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, delimiter=";" if form == "csv" else "\t")
            writer.writeheader()
            writer.writerows(given)
    return path


def run_audit_of(table: Path, model: str, **options: Any) -> Audit:
    out = table.with_name("audit-" + table.name)
    config = AuditConfig(
        str(table), str(out), model, CorpusOptions(shard_size=2, **options), allow_random_weights=True, quiet=True
    )
    run_audit(config)
    return Audit(out)


def read_output(path: Path, delimiter: str = ",") -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        found: list[dict[str, Any]] = pq.read_table(path).to_pylist()
        return found
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    with path.open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else delimiter))


def to_texts(given: list[dict[str, Any]]) -> list[dict[str, str]]:
    return [{name: str(value) for name, value in row.items()} for row in given]


@pytest.fixture(scope="module")
def carry_audit(tmp_path_factory: pytest.TempPathFactory, random_model: str) -> Callable[[str], tuple[Path, Audit]]:
    """The table and the audit of a form of input, with two carried columns."""

    @cache
    def run(form: str) -> tuple[Path, Audit]:
        table = write_input(tmp_path_factory.mktemp(form), form)
        return table, run_audit_of(table, random_model, carry=("license", "width"))

    return run


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "parquet"])
def test_kept_rows_in_the_shape_of_the_input(
    tmp_path: Path, form: str, carry_audit: Callable[[str], tuple[Path, Audit]]
) -> None:
    table, audit = carry_audit(form)
    kept = audit.keep(where="license = 'by' AND input_width = '101'")
    expected = [row for row in rows() if row["license"] == "by" and row["width"] == 101]
    assert kept.count == len(expected) == 3
    for target in ("csv", "tsv", "jsonl", "parquet"):
        out = tmp_path / f"kept.{target}"
        assert kept.write(out, input_columns=True).rows == 3
        assert to_texts(read_output(out, ";" if form == "csv" else ",")) == to_texts(expected)
    if form == "parquet":
        assert pq.read_schema(tmp_path / "kept.parquet").equals(pq.read_schema(table))


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_lists_of_captions_lose_those_removed(tmp_path: Path, form: str, random_model: str) -> None:
    table = write_input(tmp_path / "in", form, listed=True)
    kept = run_audit_of(table, random_model).keep(where="caption_index = 1 OR key = '0'")
    kept.write(tmp_path / f"kept.{form}", input_columns=True)
    found = [row["caption"] for row in read_output(tmp_path / f"kept.{form}")]
    assert found == [['photo 0, "no" 0', 'photo 0, "no" 1'], *([f'photo {n}, "no" 1'] for n in range(1, 6))]


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_spans_go_with_their_captions(tmp_path: Path, form: str, random_model: str) -> None:
    """Rows as in Panda-70M: auditing the exported lists again gives the kept rows."""
    (tmp_path / "v1.mp4").write_bytes(make_numbered_clip("h264", "mp4", 75))
    spans, score = [["0:00:00.0", "0:00:01.0"], ["0:00:01.0", "0:00:02.0"], ["0:00:01.5", "0:00:03.0"]], [0.1, 0.2, 0.3]
    row = {"videoID": "v1", "timestamp": spans, "caption": ["it's one", "two", "three"], "matching_score": score}
    table = tmp_path / f"t.{form}"
    if form == "jsonl":
        table.write_text(json.dumps(row) + "\n")
    else:
        with table.open("w", newline="") as file:
            csv.writer(file).writerows([list(row), list(row.values())])  # lists as Python writes them
    audit = run_audit_of(table, random_model)
    audit.keep(where="caption_index <> 1").write(tmp_path / f"kept.{form}", input_columns=True)
    (found,) = read_output(tmp_path / f"kept.{form}")
    wanted = {"caption": ["it's one", "three"], "timestamp": [spans[0], spans[2]], "matching_score": [0.1, 0.3]}
    assert {name: parse_list_cell(found[name]) for name in wanted} == wanted and found["videoID"] == "v1"
    columns = 'SELECT caption, "start", "end", similarity FROM samples ORDER BY caption_index'
    again = run_audit_of(tmp_path / f"kept.{form}", random_model).sql(columns).to_pylist()
    assert again == [audit.sql(columns).to_pylist()[place] for place in (0, 2)]


def test_carried_columns_can_be_sliced_by(
    tmp_path: Path, random_model: str, carry_audit: Callable[[str], tuple[Path, Audit]]
) -> None:
    table, audit = carry_audit("csv")
    assert {"license", "input_width", "width"} <= set(audit.columns)
    found = audit.sql("SELECT license, count(*) AS n, max(input_width) AS w FROM samples GROUP BY license ORDER BY 1")
    assert found.to_pylist() == [{"license": "by", "n": 6, "w": "101"}, {"license": "cc0", "n": 6, "w": "101"}]
    assert audit.keep(where="license = 'cc0'").count == audit.load_into_memory().count("license = 'cc0'") == 6
    audit.keep().write(tmp_path / "kept.parquet")
    assert pq.read_table(tmp_path / "kept.parquet")["license"].to_pylist()[:2] == ["cc0", "cc0"]
    with pytest.raises(AuditError, match="corpus carry"):
        run_audit_of(table, random_model, carry=("license",))


def test_fields_of_json_files_are_carried(tmp_path: Path, random_model: str) -> None:
    (tmp_path / "photos").mkdir()
    for number in range(3):
        (tmp_path / "photos" / f"{number}.jpg").write_bytes(make_photo(number))
        record = {"caption": f"photo {number}", "url": f"http://x/{number}"} if number else {"caption": "none"}
        (tmp_path / "photos" / f"{number}.json").write_text(json.dumps(record))
    audit = run_audit_of(tmp_path / "photos", random_model, carry=("url",))
    assert audit.sql("SELECT url FROM samples ORDER BY key")["url"].to_pylist() == [None, "http://x/1", "http://x/2"]
    with pytest.raises(ExportError, match="is not a table"):
        audit.keep().write(tmp_path / "kept.csv")


def test_the_command(tmp_path: Path, random_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    table, out = write_input(tmp_path / "in", "csv"), str(tmp_path / "audit")
    given = ["audit", str(table), "--out", out, "--model", random_model, "--allow-random-weights", "--quiet"]
    assert run_command_line([*given, "--carry", "license, nothing"]) == 1
    assert "no column 'nothing'" in capsys.readouterr().err
    assert run_command_line([*given, "--carry", "license"]) == 0
    assert run_command_line(["filter", out, "--where", "license = 'by'", "--out", str(tmp_path / "kept.csv")]) == 0
    assert "6 rows kept" in capsys.readouterr().out and len(read_output(tmp_path / "kept.csv", ";")) == 6


def test_shards_have_no_rows(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="is not a table"):
        Audit(write_corpus_audit(tmp_path)[0]).keep().write(tmp_path / "kept.jsonl")


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "parquet"])
def test_edited_captions_replace_their_cells(
    tmp_path: Path, form: str, carry_audit: Callable[[str], tuple[Path, Audit]], capsys: pytest.CaptureFixture[str]
) -> None:
    table, audit = carry_audit(form)
    texts = {1: 'ein "Foto";, 甲', 4: "=photo"}  # by row of the table
    edits = [audit.edit(str(row // 2), text, caption_index=row % 2, reviewer="ann") for row, text in texts.items()]
    try:
        kept = audit.keep(where="true")
        expected = [row | ({"caption": texts[number]} if number in texts else {}) for number, row in enumerate(rows())]
        for target in ("csv", "tsv", "jsonl", "parquet"):
            result = kept.write(tmp_path / f"kept.{target}", input_columns=True)
            assert (result.rows, result.changes["edited"]) == (12, 2)
            written = read_output(tmp_path / f"kept.{target}", ";" if form == "csv" else ",")
            assert to_texts(written) == to_texts(expected)
        assert run_command_line(["verify", audit.path, "-n", "12"]) == 0  # the corpus is as it was audited
        capsys.readouterr()
    finally:
        for edit in edits:
            audit.edit(edit.uid, None, caption_index=edit.caption_index, reviewer="ann")
    assert to_texts(read_output(table, ";")) == to_texts(rows())


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_edited_captions_replace_items_of_lists(tmp_path: Path, form: str, random_model: str) -> None:
    audit = run_audit_of(write_input(tmp_path / "in", form, listed=True), random_model)
    audit.edit("0", "edited 0", caption_index=0)
    audit.edit("1", "edited 1", caption_index=1)
    audit.keep(where="key <> '1' OR caption_index = 1").write(tmp_path / f"kept.{form}", input_columns=True)
    listed = [row["caption"] for row in read_output(tmp_path / f"kept.{form}")]
    whole = [[f'photo {n}, "no" 0', f'photo {n}, "no" 1'] for n in range(2, 6)]
    assert listed == [["edited 0", 'photo 0, "no" 1'], ["edited 1"], *whole]


def test_edited_captions_keep_their_spans(tmp_path: Path, random_model: str) -> None:
    (tmp_path / "v1.mp4").write_bytes(make_numbered_clip("h264", "mp4", 75))
    row = {"videoID": "v1", "timestamp": [["0", "1"], ["1", "2"]], "caption": ["it's one", "two"], "score": [0.1, 0.2]}
    with (tmp_path / "t.csv").open("w", newline="") as file:
        csv.writer(file).writerows([list(row), list(row.values())])
    audit = run_audit_of(tmp_path / "t.csv", random_model)
    audit.edit("v1", "it's edited", caption_index=1)
    audit.keep(where="true").write(tmp_path / "kept.csv")
    (written,) = read_output(tmp_path / "kept.csv")
    assert {name: parse_list_cell(written[name]) for name in list(row)[1:]} == {
        "timestamp": row["timestamp"], "caption": ["it's one", "it's edited"], "score": [0.1, 0.2]
    }  # fmt: skip
    columns = 'SELECT caption, "start", "end" FROM samples ORDER BY caption_index'
    expected = [entry | {"caption": text} for entry, text in zip(
        audit.sql(columns).to_pylist(), ["it's one", "it's edited"], strict=True
    )]  # fmt: skip
    assert run_audit_of(tmp_path / "kept.csv", random_model).sql(columns).to_pylist() == expected
    audit.keep(where="true").write(tmp_path / "shards")
    again = run_audit_of(tmp_path / "shards", random_model)
    assert again.sql(columns).to_pylist() == expected
    assert again.sql("SELECT uid FROM samples ORDER BY 1") == audit.sql("SELECT uid FROM samples ORDER BY 1")


@pytest.mark.parametrize("target", ["kept.npy", "kept.txt", "shards", "kept.parquet --tiers 2"])
def test_targets_without_columns_refuse_those_of_the_input(
    tmp_path: Path, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    audit, _ = write_corpus_audit(tmp_path)
    name, *tiers = target.split()
    command = ["filter", str(audit), "--where", "true", "--out", str(tmp_path / name), "--input-columns", *tiers]
    assert run_command_line(command) in (1, 2)
    assert "cannot hold" in capsys.readouterr().err and not (tmp_path / name).exists()

"""Findings: planted defects are counted once each, worst first; a clean corpus has none."""

import json
import shlex
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from auditor.audit_folder.fault_records import Fault, write_faults
from auditor.audit_folder.folder import Folder
from auditor.audit_folder.manifest import Manifest
from auditor.cli import cli
from auditor.python_api import Audit
from auditor.query.sandbox import Sandbox
from auditor.report.findings import Findings
from auditor.run.outcome import report_outcome
from auditor.schema import COLUMNS, FLAGS
from tests.support.synthetic import write_audit

ROWS = 400
CLEAN: dict[str, Any] = {"status": "ok", "error_message": None, "duplicate_of": None, "language": "en", "contrast": 0.2}
CLEAN |= {flag.measure: 0.1 for flag in FLAGS.values()}
URL, BAD = "https://example.invalid/?a=1&b='2'\x1b[31m <b>", 0.9
VISUAL, TEXT = (FLAGS[name].measure for name in ("ambiguous_visual", "ambiguous_text"))
# rows -> what is wrong with them; a later plant adds to an earlier one
PLANTED: tuple[tuple[range, dict[str, Any]], ...] = (
    (range(10), {"status": "corrupt", "error_message": "broken"}),
    (range(10, 22), {"looks_like": "url", "caption": URL}),
    (range(30, 60), {"p_mismatch": BAD}),
    (range(60, 68), {"contrast": 0.001, VISUAL: BAD}),
    (range(70, 90), {TEXT: BAD}),
    (range(100, 104), {"duplicate_of": "0" * 32}),
    (range(110, 113), {"language": "de"}),
    (range(10, 16), {"p_mismatch": 0.99}),  # because the captions are URLs
    (range(85, 90), {"p_mismatch": 0.99}),  # because the captions are vague
    (range(112, 113), {"duplicate_of": "0" * 32}),
)
# name -> rows that count, rows that count elsewhere; the order is that of harm
EXPECTED = {
    "mismatch": (30, 11), "corrupt": (10, 0), "ambiguous_text": (20, 0), "looks_like": (12, 0), "blank": (8, 0),
    "duplicates": (5, 0), "language": (2, 1),
}  # fmt: skip


def write_planted_audit(folder: Path, *plants: tuple[range, Mapping[str, Any]]) -> Audit:
    """Write a clean audit with defects at some rows."""
    write_audit(folder, ROWS, ROWS)
    file = folder / "samples" / "00000.parquet"
    table = pq.read_table(file)
    values = {name: [value] * ROWS for name, value in CLEAN.items()}
    for rows, columns in plants:
        for name, value in columns.items():
            column = values.setdefault(name, table[name].to_pylist())
            for row in rows:
                column[row] = value
    for name, column in values.items():
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(name), pa.array(column, table.schema.field(name).type))
    pq.write_table(table, file)
    manifest = json.loads((folder / "manifest.json").read_text())
    status = table["status"].to_pylist()
    manifest["counts"]["status"] = {name: status.count(name) for name in set(status)}
    manifest["thresholds"] = dict.fromkeys(FLAGS, 0.5)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return Audit(folder)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    return write_planted_audit(tmp_path_factory.mktemp("planted") / "it's $HOME", *PLANTED)


@pytest.fixture(scope="module")
def findings(planted: Audit) -> Findings:
    return planted.findings()


def test_each_defect_is_a_finding_and_the_worst_is_first(findings: Findings) -> None:
    assert {finding.name: (finding.rows, finding.also) for finding in findings} == EXPECTED
    assert [finding.name for finding in findings] == list(EXPECTED)
    assert all(finding.share == finding.rows / ROWS for finding in findings)


def test_a_condition_selects_exactly_its_rows_and_no_row_counts_twice(planted: Audit, findings: Findings) -> None:
    for finding in findings:
        assert planted.count(finding.where) == finding.rows, finding.name
        assert all(planted.count(f"({finding.where}) AND uid = '{row['uid']}'") for row in finding.examples)
    together = " OR ".join(f"({finding.where})" for finding in findings)
    assert planted.count(together) == sum(finding.rows for finding in findings)


def test_the_clearest_example_is_first(planted: Audit, tmp_path: Path) -> None:
    audit = write_planted_audit(tmp_path / "audit", (range(9), {"contrast": 0.01}), (range(5, 6), {"contrast": 0.0}))
    [finding] = audit.findings()
    assert finding.examples[0]["key"] == f"{5:09d}" and len(finding.examples) == 5


def test_every_command_runs_as_it_is_pasted(
    planted: Audit, findings: Findings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for finding in findings:
        name, *arguments = shlex.split(finding.advice)
        assert name == "auditor" and planted.path in arguments
        done = CliRunner().invoke(cli, [*arguments, *(["--force"] if arguments[0] == "filter" else [])])
        assert done.exit_code == 0, (finding.name, done.output)
    left_out = next(shlex.split(finding.advice) for finding in findings if finding.name == "blank")
    assert planted.count(left_out[left_out.index("--where") + 1]) == ROWS - 8


def test_a_clean_corpus_has_none_and_names_its_weakest_spots(tmp_path: Path) -> None:
    audit = write_planted_audit(tmp_path / "audit", (range(7, 8), {"p_mismatch": 0.4}), (range(8, 9), {TEXT: 0.3}))
    findings = audit.findings()
    assert not findings.items and len(findings.weakest) == 3
    first, second = findings.weakest[:2]
    assert (first.column, first.example["key"]) == ("p_mismatch", f"{7:09d}") and first.value == pytest.approx(0.4)
    assert (second.column, second.limit) == (TEXT, 0.5)
    text = str(findings).splitlines()
    assert text[0].startswith("nothing found") and "0.4 (a finding from 0.5 up)" in text[1]
    assert "nothing found" in findings._repr_html_()


def test_the_commands_print_the_list(planted: Audit, capsys: pytest.CaptureFixture[str]) -> None:
    done = CliRunner().invoke(cli, ["summary", planted.path, "--json"], catch_exceptions=False)
    listed = json.loads(done.stdout)
    assert {item["name"]: item["rows"] for item in listed["findings"]} == {n: c for n, (c, _) in EXPECTED.items()}
    assert {"share", "meaning", "advice", "where", "examples"} <= set(listed["findings"][0]) and not listed["weakest"]
    report_outcome(planted.path, Manifest(corpus={"shards": 1}, model={}, settings={}), as_json=False)
    printed = capsys.readouterr().out
    for finding in planted.findings():
        assert f"{finding.rows:,} " in printed and finding.title in printed
    for text in (printed, CliRunner().invoke(cli, ["summary", planted.path]).stdout):
        assert "\x1b" not in text and "\\x1b[31m" in text


def test_the_number_of_queries_does_not_grow_with_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = []
    open_session = Sandbox._session

    def count_session(sandbox: Sandbox, patient: bool = False) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        sessions.append(sandbox)
        return open_session(sandbox, patient)

    counts = []
    for rows in (5_000, 50_000):
        audit = Audit(write_audit(tmp_path / str(rows), rows))
        with monkeypatch.context() as patch:
            patch.setattr(Sandbox, "_session", count_session)
            assert len(audit.findings()) > 3
        counts.append(len(sessions))
        sessions.clear()
    assert 0 < counts[1] <= counts[0]


def test_hostile_captions_are_escaped_in_a_notebook(findings: Findings) -> None:
    page = findings._repr_html_()
    assert "&lt;b&gt;" in page and "<b>'" not in page and "\x1b" not in page and page.count("<tr>") == len(EXPECTED) + 1


@pytest.mark.parametrize(
    "where", ["TRUE; SELECT 1", "no_such_column = 1", "TRUE -- ", "EXISTS (FROM duckdb_settings())"]
)
def test_a_condition_from_a_hostile_file_is_left_out(tmp_path: Path, where: str) -> None:
    audit = write_planted_audit(tmp_path / "audit")
    fault = Fault("shift", "shift", "00000", "a", "b", 1, 9, 0.0, "a sentence", where=where)
    write_faults(Folder(audit.path), [fault])
    assert not audit.findings().items


def test_rules_name_columns_that_exist() -> None:
    from auditor.report import finding_rules as rules

    every = (*rules.TEXT_RULES, *rules.MEDIA_RULES, *rules.FLAG_RULES, *rules.OTHER_RULES, *rules.STATUS_RULES)
    assert {rule.sort_column for rule in every} - {""} <= set(COLUMNS)
    assert all(COLUMNS[column].suspicious for rule in every for column in rule.limits)
    facts = {name for name, column in COLUMNS.items() if column.rule and column.group == "fact"}
    conditions = " ".join(rule.condition for rule in every)
    assert {name for name in facts if name not in conditions} == {"entropy"}  # low in good drawings

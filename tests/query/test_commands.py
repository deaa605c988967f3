"""The reading commands: what they print to which stream, and their exit codes."""

import csv
import io
import json
from pathlib import Path

import click
import numpy as np
import pyarrow.parquet as pq
import pytest

from auditor.audit_folder.manifest import FORMAT
from auditor.cli import cli, run_command_line
from auditor.python_api import Audit
from tests.support.synthetic import write_audit, write_corpus_audit

COMMANDS = ("query", "summary", "worst", "compare", "filter", "report")


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_audit(tmp_path_factory.mktemp("commands") / "audit", 600, 200))


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None and command.help
    assert f"auditor {name} " in command.help
    assert all(isinstance(p, click.Argument) or getattr(p, "help", None) for p in command.params)


def test_query_in_all_forms(audit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sql = "SELECT status, count(*) AS n FROM samples GROUP BY status ORDER BY n DESC, status"
    expected = Audit(audit).sql(sql).to_pylist()
    assert run_command_line(["query", audit, sql]) == 0
    assert "status" in capsys.readouterr().out
    assert run_command_line(["query", audit, sql, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == expected
    assert run_command_line(["query", audit, sql, "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["status"], int(row["n"])) for row in rows] == [(row["status"], row["n"]) for row in expected]
    assert run_command_line(["query", audit, sql, "--parquet", str(tmp_path / "out.parquet")]) == 0
    assert pq.read_table(tmp_path / "out.parquet").to_pylist() == expected


@pytest.mark.parametrize("command", [["query", "SELECT 1 AS one"], ["summary"], ["worst"], ["thresholds"], ["compare"]])
def test_parquet_is_not_overwritten(
    audit: str, tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.parquet"
    out.write_text("precious")
    name, *rest = command
    asked = [name, audit, *([audit] if name == "compare" else rest), "--parquet", str(out)]
    assert run_command_line(asked) == 1
    assert f"{out} exists; --force replaces it" in capsys.readouterr().err and out.read_text() == "precious"
    assert run_command_line([*asked, "--force"]) == 0
    assert pq.read_table(out).num_rows > 0 and [path.name for path in tmp_path.iterdir()] == ["out.parquet"]


def test_an_empty_csv_has_a_header(audit: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["query", audit, "SELECT key, kind FROM samples WHERE FALSE", "--csv"]) == 0
    assert capsys.readouterr().out == "key,kind\n"
    assert run_command_line(["worst", audit, "--where", "FALSE", "--csv"]) == 0
    assert capsys.readouterr().out.startswith("uid,") and run_command_line(["worst", audit, "--where", "FALSE"]) == 0


def test_long_results_are_cut_on_a_terminal_only(audit: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["query", audit, "SELECT key FROM samples"]) == 0
    shown = capsys.readouterr()
    assert "first 100 rows" in shown.err and shown.out.count("│ 0000") == 100
    assert run_command_line(["query", audit, "SELECT key FROM samples", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 600
    assert run_command_line(["query", audit, "SELECT key FROM samples", "--limit", "3", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["query", "{audit}", "selec 1"], 'syntax error at or near "selec"'),
        (["query", "{audit}", "SELECT simlarity FROM samples"], '"similarity"'),
        (["query", "{audit}", "SELECT * FROM read_csv('/etc/passwd')"], "the audit and nothing else"),
        (["worst", "{audit}", "--by", "simlarity"], "did you mean similarity?"),
        (["worst", "{audit}", "--where", "FALSE) OR (TRUE"], "single expression"),
        (["summary", "/nowhere"], "/nowhere is not an audit"),
        (["compare", "{audit}", "/nowhere"], "/nowhere is not an audit"),
        (["filter", "{audit}", "--keep-top", "30%", "--dry-run"], "must be used together"),
        (["filter", "{audit}", "--where", "true", "--out", "x.csv"], "the table cannot be read again"),
        (["filter", "{audit}", "--where", "true", "--out", "/proc/nowhere/kept.npy"], "cannot write"),
        (["report", "{audit}", "--out", "/proc/nowhere/report.html", "--no-media"], "cannot write"),
        (["query", "{audit}", "SELECT 1", "--parquet", "/proc/nowhere/x.parquet"], "cannot write"),
        (["query", "{audit}", "SELECT 1", "--memory", "lots"], "memory_limit cannot be 'lots'"),
        (["query", "{audit}", "SELECT 1", "--memory", "1KB"], "needs more than 1KB"),
        (["query", "{audit}", "SELECT 1", "--timeout", "-1"], "must be above 0, not -1 s"),
        (["query", "{audit}", "SELECT 1", "--timeout", "nan"], "must be above 0"),
        (["filter", "{audit}", "--lose-at-most", "1", "--dry-run"], "like 2% or 0.02"),
        (["filter", "{audit}", "--lose-at-most", "some", "--dry-run"], "--lose-at-most 'some' is not a share"),
        (
            ["filter", "{audit}", "--max-p-mismatch", "3", "--dry-run"],
            "between 0 and 1, not 3; 3% is written 3% or 0.03",
        ),
        (["filter", "{audit}", "--max-p-mismatch", "-0.1", "--dry-run"], "max_p_mismatch is between 0 and 1"),
        (["filter", "{audit}", "--max-p-mismatch", "much", "--dry-run"], "max_p_mismatch needs a number or a share"),
        (["filter", "{audit}", "--min-similarity", "30%", "--dry-run"], "min_similarity needs a number, not '30%'"),
        (["filter", "{audit}", "--max", "similarity=3", "--dry-run"], "max_similarity is between -1 and 1"),
        (["thresholds", "{audit}", "--at", "3"], "--at: max_p_mismatch is between 0 and 1, not 3"),
        (["thresholds", "{audit}", "--by", "uncertainty_text", "--at", "x"], "--at: max_uncertainty_text needs a num"),
        (["filter", "{audit}", "--lose-at-most", "5%", "--by", "similarity", "--dry-run"], "by: one of p_mismatch, "),
    ],
)
def test_mistakes_are_told_in_one_line(
    audit: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line([argument.replace("{audit}", audit) for argument in arguments]) == 1
    shown = capsys.readouterr().err.strip()
    assert shown.startswith("auditor: ") and message in shown and "\n" not in shown


def test_filter_asks_where_to_and_which_rows(audit: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["filter", audit, "--max-p-mismatch", "0.1"]) == 2
    assert "--out" in capsys.readouterr().err
    assert run_command_line(["filter", audit, "--out", "kept.npy", "--unscored", "drop"]) == 2
    assert "keep which rows? --recommended" in capsys.readouterr().err


def test_unfinished_audit_is_told(audit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "manifest.json").write_text(
        json.dumps({"format": FORMAT, "state": "sweeping", "corpus": {"shards": 9}})
    )
    assert run_command_line(["summary", str(tmp_path), "--json"]) == 0
    shown = capsys.readouterr()
    assert "not finished (state: sweeping): 0 of 9 shards" in shown.err
    assert json.loads(shown.out)["rows"] == 0


def test_summary_and_worst(audit: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["summary", audit]) == 0
    assert "about 7.0% (6.4 to 7.7)" in capsys.readouterr().out
    assert run_command_line(["worst", audit, "--by", "similarity", "-n", "4", "--json"]) == 0
    found = [row["similarity"] for row in json.loads(capsys.readouterr().out)]
    assert found == sorted(found) and len(found) == 4


def test_compare(audit: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["compare", audit, audit, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["matched"] == 600 and found["correlation"]["similarity"] == pytest.approx(1)
    assert run_command_line(["compare", audit, audit, "-n", "3"]) == 0
    assert "rank correlation" in capsys.readouterr().out


def test_dry_run_writes_nothing(audit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--max-p-mismatch", "0.1", "--no-duplicates", "--keep-top", "50%", "--by", "similarity"]
    assert run_command_line(["filter", audit, *options, "--dry-run", "--out", str(tmp_path / "kept.npy")]) == 0
    shown = capsys.readouterr().out
    for word in ("max_p_mismatch", "keep_top", "no_duplicates", "all together", "caption length", "topic"):
        assert word in shown
    assert list(tmp_path.iterdir()) == []
    assert run_command_line(["filter", audit, *options, "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    kept = Audit(audit).keep(max_p_mismatch=0.1, no_duplicates=True, keep_top="50%", by="similarity").count
    assert plan["kept"] == kept and len(plan["rules"]) == 3
    assert run_command_line(["filter", audit, "--where", "FALSE", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "0 of " in shown and "topics" not in shown and "caption length" not in shown


def test_filter_writes_and_refuses(audit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "kept.npy")
    command = ["filter", audit, "--max-p-mismatch", "0.1", "--where", "kind = 'image'", "--out", out]
    assert run_command_line(command) == 0
    kept = Audit(audit).keep(max_p_mismatch=0.1, where="kind = 'image'").count
    assert f"{kept:,} uids kept" in capsys.readouterr().out and len(np.load(out)) == kept
    assert run_command_line(command) == 1
    assert "--force" in capsys.readouterr().err
    assert run_command_line([*command, "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == kept


def test_filter_keeps_a_promise(audit: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["filter", audit, "--lose-at-most", "2%", "--dry-run", "--json"]) == 0
    shown = capsys.readouterr()
    assert "cut: p_mismatch <=" in shown.err
    assert json.loads(shown.out)["together"]["expected_loss"] <= 0.02
    assert run_command_line(["filter", audit, "--lose-at-most", "0.02", "--dry-run", "--json"]) == 0
    assert capsys.readouterr().err == shown.err
    assert run_command_line(["filter", audit, "--expect-precision", "0.9", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["together"]["expected_precision"] >= 0.9


def test_filter_to_shards_of_a_moved_corpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, corpus = write_corpus_audit(tmp_path)
    corpus.rename(tmp_path / "new")
    out = str(tmp_path / "clean")
    assert run_command_line(["filter", str(path), "--max-p-mismatch", "0.3", "--out", out]) == 1
    assert "--corpus NEW_ROOT" in capsys.readouterr().err
    moved = ["--corpus", str(tmp_path / "new"), "--shard-size", "10"]
    assert (
        run_command_line(["filter", str(path), "--max-p-mismatch", "0.3", "--out", out, *moved]) == 1
    )  # another shard size
    assert run_command_line(["filter", str(path), "--max-p-mismatch", "0.3", "--out", out, *moved, "--force"]) == 0
    assert "samples kept, in" in capsys.readouterr().out and (tmp_path / "clean" / "removed.parquet").exists()


def test_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, _ = write_corpus_audit(tmp_path, shards=1)
    out = tmp_path / "report.html"
    assert run_command_line(["report", str(path), "--out", str(out)]) == 0
    assert out.read_text().startswith("<!doctype html>")
    assert run_command_line(["report", str(path), "--out", str(out)]) == 1
    assert "--force" in capsys.readouterr().err

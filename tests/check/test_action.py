"""The GitHub Action and the pre-commit hook, run as GitHub and pre-commit run them."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from auditor.audit_folder.arrow_schema import STORAGE
from tests.support.synthetic import write_audit

ROOT = Path(__file__).resolve().parents[2]
ACTION = ROOT / ".github/actions/audit-check"
HOSTILE = "a | b <img src=x> [x](http://x)\n::error::no"


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An audit with a language that tries to be markup and a command."""
    audit = write_audit(tmp_path_factory.mktemp("action") / "audit", 300, 100)
    for file in (audit / "samples").glob("*.parquet"):
        table = pq.read_table(file)
        column = table.schema.get_field_index("language")
        values = pa.array([HOSTILE] * len(table), table.schema.field(column).type)
        pq.write_table(table.set_column(column, table.schema.field(column), values), file, **STORAGE)
    return audit


def run_action(folder: Path, audit: Path, limits: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run the script with the variables that action.yml and GitHub set."""
    (folder / "budget.toml").write_text(f"[limits]\n{limits}\n")
    action = yaml.safe_load((ACTION / "action.yml").read_text())
    step = action["runs"]["steps"][-1]
    inputs = {name: item.get("default", "") for name, item in action["inputs"].items()}
    inputs |= {"audit": str(audit), **settings}
    given = {variable: inputs[text.split(".")[1].removesuffix(" }}")] for variable, text in step["env"].items()}
    files = {name: str(folder / name) for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")}
    environment = {**os.environ, **given, **files, "PYTHONPATH": str(ROOT), "GITHUB_ACTION_PATH": str(ACTION)}
    assert step["shell"] == "bash"
    script = step["run"].replace("python -m", f"{shlex.quote(sys.executable)} -m")
    command = ["bash", "-eo", "pipefail", "-c", script]
    return subprocess.run(
        command, capture_output=True, text=True, encoding="utf-8", env=environment, cwd=folder, timeout=120
    )


def test_a_broken_limit_fails_the_job(audit: Path, tmp_path: Path) -> None:
    limits = 'unusable = 0\nx = { where = "TRUE", per = "language", at_most = 0 }\nduplicates = 1.0'
    done = run_action(tmp_path, audit, limits, junit="junit.xml")
    assert done.returncode == 1, done.stderr
    commands = [line for line in done.stdout.splitlines() if line.startswith("::")]
    assert len(commands) == 2 and all(line.startswith("::error title=auditor check::") for line in commands)
    assert "unusable is" in commands[0] and "%25" in commands[0]
    summary = (tmp_path / "GITHUB_STEP_SUMMARY").read_text(encoding="utf-8")
    assert "### Audit check: ❌ fail" in summary and summary.count("❌ fail |") == 2 and summary.count("✅ pass |") == 1
    assert "<img" not in summary and "[x](" not in summary and "a \\| b &lt;img" in summary
    assert "Findings, worst first" in summary and "mismatched pairs" in summary
    tables = [line for line in summary.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in tables} == {5, 6}  # no cell adds a column
    assert (tmp_path / "GITHUB_OUTPUT").read_text() == "verdict=fail\n"
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "2", "0")
    assert [len(case) for case in suite] == [1, 1, 0]


@pytest.mark.parametrize(("undecided", "code"), [("fail", 2), ("pass", 0)])
def test_an_undecided_limit_fails_or_passes_as_set(audit: Path, tmp_path: Path, undecided: str, code: int) -> None:
    done = run_action(tmp_path, audit, 'overlap = { other = "coco/", at_most = 0 }', undecided=undecided, junit="j.xml")
    assert done.returncode == code, done.stderr
    assert "::warning title=auditor check::overlap is unknown" in done.stdout
    assert (tmp_path / "GITHUB_OUTPUT").read_text() == "verdict=cannot tell\n"
    assert ElementTree.parse(tmp_path / "j.xml").getroot().get("errors") == "1"


def test_a_pass_has_no_annotation(audit: Path, tmp_path: Path) -> None:
    done = run_action(tmp_path, audit, "unusable = 1.0", strict="true", baseline=str(audit))
    assert done.returncode == 0, done.stderr
    assert "::" not in done.stdout and (tmp_path / "GITHUB_OUTPUT").read_text() == "verdict=pass\n"


def test_a_bad_budget_is_one_line(audit: Path, tmp_path: Path) -> None:
    done = run_action(tmp_path, audit, "duplicate = 0")
    assert done.returncode == 2
    assert done.stderr.startswith("auditor: limits.duplicate: there is no share")
    assert not (tmp_path / "GITHUB_OUTPUT").exists()


def test_the_pre_commit_hook_runs(audit: Path, tmp_path: Path) -> None:
    [hook] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert hook["language"] == "python" and not hook["pass_filenames"] and hook["always_run"]
    (tmp_path / "audit").symlink_to(audit)
    (tmp_path / "budget.toml").write_text("[limits]\nunusable = 0\n")
    assert hook["entry"] == "auditor check"
    command = [sys.executable, "-m", "auditor.cli", "check", *hook["args"]]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=120)
    assert done.returncode == 1 and "unusable" in done.stdout, done.stderr

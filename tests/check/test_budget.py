"""Budgets: what is read, and what is refused in one line."""

from pathlib import Path

import pytest

from auditor.cli import run_command_line
from tests.support.synthetic import write_audit


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_audit(tmp_path_factory.mktemp("budget") / "audit", 400, 200))


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ('x = { where = "widht < 3", at_most = 0 }', '"width"'),
        ('x = { where = "caption LIKE", at_most = 0 }', "limits.x: where: Parser Error"),
        ('x = { where = "1) OR (TRUE", at_most = 0 }', "a condition must be a single expression"),
        ('x = { where = "kind = 1", share = "url", at_most = 0 }', "it has both share and where"),
        ("duplicate = 0", "limits.duplicate: there is no share 'duplicate'; did you mean duplicates?"),
        ("url = { at_mots = 0 }", "limits.url: there is no key 'at_mots'; did you mean at_most?"),
        ("url = 3", "at_most is between 0 and 1, not 3; 3% is written 3% or 0.03"),
        ("url = true", "at_most needs a number or a share, not 'True'"),
        ('url = "many"', "at_most needs a number or a share, not 'many'"),
        ("url = {}", "it has no bound: at_most, at_least, worse_by_at_most"),
        (
            'url = { at_least = "5%", at_most = "3%" }',
            "contradict each other (url): at_least 0.05 is above at_most 0.03",
        ),
        (
            'url = { at_least = "5%" }\nb = { share = "url", per = "shard", at_most = "3%" }',
            "contradict each other (url and b)",
        ),
        ('url = { per = "langauge", at_most = 0 }', "there is no column 'langauge'; did you mean language?"),
        ("url = { worse_by_at_most = 0 }", "worse_by_at_most needs --baseline AUDIT"),
        ('url = { per = "shard", worse_by_at_most = 0 }', "per excludes worse_by_at_most"),
        ('mismatched = { per = "shard", among = "TRUE", at_most = 0 }', "per excludes worse_by_at_most"),
        ("overlap = 0", 'overlap needs other = "CORPUS"'),
        ('url = { other = "coco", at_most = 0 }', 'overlap needs other = "CORPUS"'),
        ("url = 0\nurl = 1", "Cannot overwrite a value"),
        ("url = ", "Invalid value"),
    ],
)
def test_a_bad_limit_is_one_line(
    audit: str, limits: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    budget = tmp_path / "budget.toml"
    budget.write_text(f"[limits]\n{limits}\n")
    assert run_command_line(["check", audit, "--budget", str(budget)]) == 2
    output = capsys.readouterr()
    lines = output.err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("auditor: ") and message in lines[0], lines
    assert not output.out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[limit]\nurl = 0\n", "there is no table 'limit'; did you mean limits?"),
        (b"limits = 3\n", "it has no table [limits]"),
        (b"", "it has no table [limits]"),
        (b"\xff\xfe", "can't decode byte"),
        (None, "there is no budget"),
    ],
)
def test_a_bad_file_is_one_line(
    audit: str, content: bytes | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    budget = tmp_path / "budget.toml"
    if content is not None:
        budget.write_bytes(content)
    assert run_command_line(["check", audit, "--budget", str(budget)]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and message in lines[0] and str(budget) in lines[0], lines


def test_a_folder_that_is_no_audit_cannot_be_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1 is a broken limit, so every error of this command is 2."""
    assert run_command_line(["check", str(tmp_path)]) == 2
    assert "is not an audit" in capsys.readouterr().err
    assert run_command_line(["check", str(tmp_path / "none")]) == 2


def test_an_existing_budget_is_not_replaced(audit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    budget = tmp_path / "budget.toml"
    budget.write_text("mine")
    assert run_command_line(["check", audit, "--init", str(budget)]) == 2
    assert "exists" in capsys.readouterr().err and budget.read_text() == "mine"

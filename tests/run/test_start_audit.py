"""`auditor.audit`: the command's audit from Python, of a folder or a DataFrame, with tqdm's bar."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner

import auditor
from auditor.cli import cli
from auditor.errors import AuditorError
from auditor.run.start_audit import build_audit_config
from tests.support.corpora import make_caption, make_picture

PAIRS = 24


@pytest.fixture
def frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    """Relative paths in the working directory, and one broken file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    for number in range(PAIRS):
        (tmp_path / "photos" / f"{number:02}.jpg").write_bytes(make_picture(number) if number else b"broken")
    paths = [Path("photos") / f"{number:02}.jpg" for number in range(PAIRS)]
    return pd.DataFrame({"file": paths, "words": [make_caption(number) for number in range(PAIRS)]})


def test_a_data_frame_and_the_command_give_the_same_audit(
    frame: pd.DataFrame, random_model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first = auditor.audit(frame, media="file", caption="words", model=random_model)
    assert (first.path, first.state, first.counts["status"]) == ("audit", "complete", {"ok": PAIRS - 1, "corrupt": 1})
    assert first.row(first.worst("similarity", 1)["uid"][0].as_py())["key"].startswith("photos/")  # type: ignore[index]
    assert "sweep: 100%" in capsys.readouterr().err
    frame.to_csv("pairs.csv", index=False)
    options = ["--out", "other", "--model", random_model, "--media-column", "file", "--caption-column", "words"]
    done = CliRunner().invoke(cli, ["audit", "pairs.csv", *options, "--json"], catch_exceptions=False)
    assert done.exit_code == 0 and json.loads(done.stdout)["rows"] == PAIRS
    columns = "key, caption, status, similarity"
    rows = [
        audit.sql(f"SELECT {columns} FROM samples ORDER BY key").to_pylist()
        for audit in (first, auditor.Audit("other"))
    ]
    assert rows[0] == rows[1]

    swept = {path: path.stat().st_mtime_ns for path in Path("audit/embeddings").iterdir()}
    again = auditor.audit(frame, media="file", caption="words", model=random_model, quiet=True)
    assert again.state == "complete" and capsys.readouterr().err == ""
    assert {path: path.stat().st_mtime_ns for path in Path("audit/embeddings").iterdir()} == swept


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"media": "fil"}, "no column 'fil': the DataFrame has the columns 'file', 'words'; did you mean 'file'?"),
        ({"frmes": 3}, "there is no option 'frmes'; see frames"),
        ({"nonsense_xyz": 3}, "auditor audit --help"),
        ({"out": "s3://bucket/audit"}, "a local folder"),
        ({"corpus": ["a.jpg"]}, "corpus is a path, a URL or a DataFrame, not list"),
        ({"corpus": "nowhere/"}, "nowhere/ does not exist"),
        ({"captions": "all"}, "captions must be 'lines' or 'whole'"),
    ],
)
def test_wrong_arguments_are_one_line(arguments: dict[str, Any], words: str, frame: pd.DataFrame) -> None:
    with pytest.raises(AuditorError) as error:
        auditor.audit(arguments.pop("corpus", frame), arguments.pop("out", "audit"), **arguments)
    assert words in str(error.value) and "\n" not in str(error.value)
    assert not Path("audit").exists()


def test_options_have_the_defaults_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    values: dict[str, Any] = {}
    monkeypatch.setattr("auditor.commands.everyday.audit.start_audit", lambda options, _: values.update(options))
    monkeypatch.setattr("auditor.run.outcome.report_outcome", lambda *_, **__: None)
    CliRunner().invoke(cli, ["audit", "photos", "--out", "audit"], catch_exceptions=False)
    assert build_audit_config(values) == build_audit_config({"corpus": "photos", "out": "audit"})

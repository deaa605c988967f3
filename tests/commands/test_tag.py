"""`auditor tag` and `auditor apply` on the command line."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from auditor.choose import tag_columns
from auditor.cli import cli
from tests.support.vector_audit import AxisEncoder, plant_media, write_vector_audit


@pytest.fixture
def audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tag_columns, "get_encoder_client", lambda *_: AxisEncoder())
    return write_vector_audit(tmp_path / "audit", [plant_media(800, 0.2)[0]])


def run(*arguments: object) -> str:
    done = CliRunner().invoke(cli, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_prompts_are_printed_with_their_shares(audit: Path) -> None:
    lines = run("tag", audit, "a watermark", "a drawing", "--against", "a photo").splitlines()
    assert re.fullmatch(r'watermark: [\d.]+% \([\d.]+ to [\d.]+\) \("a watermark" against "a photo"\)', lines[0])
    assert lines[1].startswith("drawing: no estimate: the margins form one group")
    kept = run("filter", audit, "--max", "watermark=0.5", "--dry-run")
    assert "pairs would be kept" in kept


def test_machines_get_json_and_shipped_files_work(audit: Path) -> None:
    tags = json.loads(run("tag", audit, "--prompts", "medium", "--prefix", "m_", "--json"))
    assert [tag["column"] for tag in tags] == ["m_drawing", "m_render", "m_chart", "m_photo"]
    assert tags[0]["shares"]["image"]["reason"]


def test_examples_print_the_auroc(audit: Path, tmp_path: Path) -> None:
    planted = plant_media(800, 0.2)[1]
    rows = [*np.flatnonzero(planted)[2:12], *np.flatnonzero(~planted)[5:15]]
    lines = ["key,label", *(f"s0-{row:05d},{int(planted[row])}" for row in rows)]
    (tmp_path / "marks.csv").write_text("\n".join(lines))
    out = run("tag", audit, "--by", tmp_path / "marks.csv", "--name", "mine")
    assert re.search(r"^mine: .* \(learned from 20 examples, AUROC [\d.]+, [\d.]+ to [\d.]+\)$", out, re.MULTILINE)


def test_a_head_is_applied(audit: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "score.npz", weight=np.ones((1, 16), np.float32))
    assert run("apply", audit, tmp_path / "score.npz", "--name", "aesthetic").startswith("aesthetic: 1,600 rows")
    assert "aesthetic" in run("query", audit, "SELECT aesthetic FROM samples LIMIT 1")


def test_prompts_and_a_file_exclude_each_other(audit: Path) -> None:
    done = CliRunner().invoke(cli, ["tag", str(audit), "a dog", "--prompts", "medium"])
    assert done.exit_code == 2 and "not both" in done.stderr

"""Corpora in which all pairs look alike: every row is accounted for, and nothing is claimed that cannot be known."""

import math
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from auditor.audit_folder.manifest import Manifest
from auditor.cli import run_command_line
from auditor.corpus.open_corpus import CorpusOptions
from auditor.errors import AuditorError
from auditor.python_api import Audit
from auditor.run.audit_config import AuditConfig
from auditor.run.run_audit import run_audit
from tests.support.corpora import make_caption, write_tar
from tests.support.dashboard_audit import make_smooth_photo
from tests.support.degenerate import SHAPES, make_degenerate_pairs
from tests.support.stored import make_vector_table

SHARES = ("uncertainty_visual", "uncertainty_text", "ambiguity_visual", "ambiguity_text", "better_captions")

NOTHING_TO_JUDGE = {
    "equal", "constant", "rounded", "all_opposite", "opposite", "orthogonal", "one_hot", "one_caption", "one_medium",
}  # fmt: skip


def audit_pairs(folder: Path, shape: str, count: int, *, equal_captions: bool = False) -> Manifest:
    """Write and audit pairs; audits of a finished folder resume."""
    visual, text = make_degenerate_pairs(shape, count)
    captions = ["a dog"] * count if equal_captions else [f"caption {row} of a dog" for row in range(count)]
    if not (folder / "v.parquet").exists():
        pq.write_table(make_vector_table(visual, text, list(captions)), folder / "v.parquet")
    options = CorpusOptions(visual_column="image_embedding", text_column="text_embedding")
    return run_audit(AuditConfig(str(folder / "v.parquet"), str(folder / "audit"), options=options, quiet=True))


def read_rows(folder: Path, count: int) -> list[dict[str, Any]]:
    """All rows; each has a status, and each usable one p_mismatch from 0 to 1 or a reason why not."""
    with Audit(folder / "audit") as audit:
        rows = audit.sql("SELECT * FROM samples ORDER BY key").to_pylist()
    assert len(rows) == count
    for row in rows:
        p = row["p_mismatch"]
        if row["status"] != "ok":
            assert p is None and row["error_message"]
            continue
        assert 0 <= p <= 1 if p is not None else row["no_estimate"], row
        assert all(0 <= row[name] <= 1 and math.isfinite(row["similarity"]) for name in SHARES), row
    return rows


@pytest.mark.parametrize(
    ("shape", "equal_captions"),
    [
        *((shape, False) for shape in SHAPES),
        *((shape, True) for shape in ("equal", "opposite", "orthogonal", "one_caption")),
    ],
)
def test_shapes(shape: str, equal_captions: bool, tmp_path: Path) -> None:
    manifest = audit_pairs(tmp_path, shape, 60, equal_captions=equal_captions)
    rows = read_rows(tmp_path, 60)
    share = manifest.statistics["image"]["pi0"]
    if shape in NOTHING_TO_JUDGE:
        assert share is None and all(row["no_estimate"] for row in rows)
    if shape == "identical":
        assert share < 0.05
    if equal_captions:
        before = read_times(tmp_path)
        assert audit_pairs(tmp_path, shape, 60).state == "complete"  # resumes
        assert before == read_times(tmp_path)


def read_times(folder: Path) -> list[tuple[str, int]]:
    return sorted((path.name, path.stat().st_mtime_ns) for path in (folder / "audit/samples").iterdir())


@pytest.mark.parametrize("count", [1, 2, 5, 19, 20, 30])
def test_few_pairs(count: int, tmp_path: Path) -> None:
    """The shapes take turns: each count has others."""
    for shape in list(SHAPES)[count % 5 :: 5]:
        (tmp_path / shape).mkdir()
        if count == 1 and shape in {"half_zero", "not_finite"}:
            with pytest.raises(AuditorError, match="nothing to score"):
                audit_pairs(tmp_path / shape, shape, count)
        else:
            audit_pairs(tmp_path / shape, shape, count)
            read_rows(tmp_path / shape, count)


@pytest.mark.parametrize("shape", ["equal", "one_hot", "one_caption"])
def test_commands_on_a_degenerate_audit(shape: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    audit_pairs(tmp_path, shape, 60, equal_captions=True)
    out = str(tmp_path / "audit")
    for command in (
        ["summary"],
        ["worst"],
        ["faults"],
        ["thresholds"],
        ["score", "--quiet"],
        ["fit", "--out", str(tmp_path / "head")],
        ["weigh", "--by", "p_mismatch", "--out", str(tmp_path / "w.parquet")],
        ["filter", "--recommended", "--out", str(tmp_path / "kept.parquet")],
        ["report", "--out", str(tmp_path / "report.html")],
        ["certify", "--labels", "10", "--sheet", str(tmp_path / "sheet.csv")],
        ["compare", out],
    ):
        code = run_command_line([command[0], out, *command[1:]])
        lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("note: ")]
        assert code == 0 or (code == 1 and len(lines) == 1 and lines[0].startswith("auditor: ")), (command, lines)


def test_sixty_copies_of_one_photo(tmp_path: Path, random_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    photo = {"jpg": make_smooth_photo(1), "txt": make_caption(1).encode()}
    write_tar(tmp_path / "corpus/0.tar", [(f"{row:04d}", photo) for row in range(60)])
    command = ["audit", str(tmp_path / "corpus"), "--out", str(tmp_path / "audit"), "--model", random_model]
    for _ in range(2):  # the second run resumes
        assert run_command_line([*command, "--quiet"]) == 0
    rows = read_rows(tmp_path, 60)
    assert {row["no_estimate"] for row in rows} == {"too_few_pairs"}
    assert sum(row["duplicate_of"] is None for row in rows) == 1

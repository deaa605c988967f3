"""FiftyOne: samples of the real package if it is installed, one clear line if not."""

import sys
from pathlib import Path
from typing import Any

import pytest

from auditor.cli import run_command_line
from auditor.keep.export_fiftyone import build_fields, build_samples, export_fiftyone
from auditor.keep.export_target import split_batches
from auditor.python_api import Audit
from auditor.run.audit_config import AuditConfig
from auditor.run.run_audit import run_audit
from tests.support.corpora import write_corpus
from tests.support.synthetic import write_corpus_audit


@pytest.fixture
def fiftyone() -> Any:
    """The package, which needs MongoDB only for datasets."""
    return pytest.importorskip("fiftyone", reason="FiftyOne is not installed")


def test_without_the_package_it_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "fiftyone", None)
    audit, _ = write_corpus_audit(tmp_path)
    assert run_command_line(["export", str(audit), "--fiftyone", "mine"]) == 1
    told = capsys.readouterr().err.strip().splitlines()
    assert told == ["auditor: FiftyOne is not installed here: pip install fiftyone, or export --csv"]


def test_samples_come_in_batches() -> None:
    assert list(split_batches(iter(range(5)), 2)) == [[0, 1], [2, 3], [4]]


def test_every_kept_row_is_a_sample_with_fields_tags_and_file(tmp_path: Path, fiftyone: Any) -> None:
    audit, _ = write_corpus_audit(tmp_path)
    with Audit(audit) as opened:
        kept = opened.keep()
        found = list(build_samples(kept, "image", tmp_path / "media", fiftyone))
        rows = {row["uid"]: row for row in opened.sql("SELECT * FROM samples WHERE status = 'ok'").to_pylist()}
        assert set(build_fields(kept, fiftyone)) >= {"caption", "p_mismatch", "frames_encoded", "embedding"}
        assert len(found) == len(rows)
        for sample in found:
            row = rows[sample["uid"]]
            assert (sample["caption"], sample["p_mismatch"]) == (row["caption"], row["p_mismatch"])
            assert ("mismatch" in sample.tags) == row["mismatch"]
            assert Path(sample.filepath).read_bytes() == opened.media(row)
    assert len(list((tmp_path / "media").rglob("*.jpg"))) == len({row["key"] for row in rows.values()})


def test_embeddings_are_those_of_the_audit(tmp_path: Path, fiftyone: Any, random_model: str) -> None:
    write_corpus(tmp_path / "corpus", shards=1, size=12, captions=2)
    run_audit(AuditConfig(str(tmp_path / "corpus"), str(tmp_path / "audit"), random_model, quiet=True))
    with Audit(tmp_path / "audit") as opened:
        found = list(build_samples(opened.keep(), "image", tmp_path / "media", fiftyone))
    assert len(found) == 24 and all(len(sample["embedding"]) == 16 for sample in found)


def test_a_dataset_is_made(tmp_path: Path, fiftyone: Any) -> None:
    try:
        fiftyone.list_datasets()
    except Exception as error:
        pytest.skip(f"FiftyOne has no database here: {error}")
    audit, _ = write_corpus_audit(tmp_path)
    with Audit(audit) as opened:
        made = export_fiftyone(opened.keep(), "auditor-test", str(tmp_path / "media"), force=True)
        assert made == {"auditor-test": opened.count("status = 'ok'")}
    fiftyone.delete_dataset("auditor-test")

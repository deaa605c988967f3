"""A correction of an audit: both columns, corrected shares and flags, undo, and invalidation by scoring."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from auditor.python_api import Audit
from auditor.review.correction_map import Correction
from auditor.review.label_sample import CertifyError
from auditor.review.recalibrate import recalibrate, remove_correction
from tests.support.marks import mark_rows
from tests.support.synthetic import write_audit


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An audit whose reviewer calls the least similar 40% of the pairs bad; p_mismatch estimates 1 in 14."""
    path = write_audit(tmp_path_factory.mktemp("recalibrate") / "audit", 3000, 1000)
    with Audit(path) as audit:
        cut = np.quantile(audit.page("status = 'ok'", limit=3000)["mismatch_score"].to_numpy(), 0.4)
        sample = audit.certification_sample(80)
        mark_rows(audit, sample.rows, lambda row: "bad" if row["mismatch_score"] < cut else "good")
    return path


@pytest.fixture
def audit(folder: Path, tmp_path: Path) -> Audit:
    return Audit(shutil.copytree(folder, tmp_path / "audit"))


def correct_audit(audit: Audit) -> tuple[Audit, Correction]:
    sample = audit.certification_sample(80)
    found = recalibrate(audit.database, sample, audit.marks_of(sample))
    assert found is not None
    return Audit(audit.path), found


def test_the_share_follows_the_labels_and_both_columns_are_kept(audit: Audit) -> None:
    before = audit.sql("SELECT uid, p_mismatch FROM samples WHERE status = 'ok' ORDER BY uid").to_pydict()
    again, _ = correct_audit(audit)
    sql = "SELECT uid, p_mismatch, p_mismatch_without_labels AS old FROM samples WHERE status = 'ok' ORDER BY uid"
    after = again.sql(sql).to_pydict()
    assert after["old"] == before["p_mismatch"]
    assert np.mean(before["p_mismatch"]) < 0.15
    assert np.mean(after["p_mismatch"]) == pytest.approx(0.4, abs=0.08)
    assert again.count("mismatch") == sum(p >= 0.5 for p in after["p_mismatch"])
    assert "not counting" in str(audit.summary()) and "not counting" not in str(again.summary())  # labels count all


def test_sql_computes_what_the_map_says(audit: Audit) -> None:
    again, found = correct_audit(audit)
    rows = again.sql(
        "SELECT kind, p_mismatch, p_mismatch_without_labels AS old, mismatch_score FROM samples WHERE status = 'ok'"
    ).to_pylist()
    for row in rows[:200]:
        expected = found.p(np.array([row["old"]]), found.z(row["kind"], [row["mismatch_score"]]))[0]
        assert row["p_mismatch"] == pytest.approx(expected, abs=1e-5)


def test_it_can_be_taken_back_and_is_not_done_twice(audit: Audit) -> None:
    again, _ = correct_audit(audit)
    sample = again.certification_sample(80)
    with pytest.raises(CertifyError, match="already corrected"):
        recalibrate(again.database, sample, again.marks_of(sample))
    remove_correction(again.path)
    assert Audit(audit.path).count("p_mismatch_without_labels IS NOT NULL") == 0


def test_scoring_again_makes_it_void(audit: Audit) -> None:
    correct_audit(audit)
    manifest = Path(audit.path) / "manifest.json"
    known = json.loads(manifest.read_text())
    known["statistics"]["image"]["pi0"] = 0.123
    manifest.write_text(json.dumps(known))
    assert Audit(audit.path).count("p_mismatch_without_labels IS NOT NULL") == 0

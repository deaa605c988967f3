"""A correction of an audit: both columns, corrected shares and flags, undo, and invalidation by scoring."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from auditor.audit_folder.correction import apply_correction
from auditor.python_api import Audit
from auditor.review.correction_map import Correction
from auditor.review.label_sample import CertifyError
from auditor.review.recalibrate import correct_statistics, recalibrate, remove_correction
from auditor.score.statistics.mismatch import MismatchModel, combine_models, fit_mismatch
from tests.support.marks import mark_rows
from tests.support.pairs import make_planted_pairs
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


def test_each_calibration_group_is_corrected_and_the_share_is_the_mean_of_theirs() -> None:
    first, second = (fit_mismatch(make_planted_pairs(300, rate, seed=3).reference, bootstraps=5) for rate in (0.1, 0.4))
    assert first is not None and second is not None
    model = combine_models({"": first, "de": second}, [300, 100], "language")
    mean, spread = {"image": 1.0}, {"image": 2.0}
    correction = Correction(0.5, 0.8, 0.3, mean, spread, 100, 9.0, (np.eye(3) * 1e-4).tolist())
    corrected = correct_statistics(model, "image", correction)
    for name, part in model.groups.items():
        curve = correction.p(part.curve, correction.z("image", part.score))
        assert corrected["groups"][name]["curve"]["p"] == pytest.approx(curve)
    shares = [corrected["groups"][name]["pi0"] for name in ("", "de")]
    assert corrected["pi0"] == pytest.approx(np.average(shares, weights=[3, 1]))
    stored = {"statistics": {"image": model.to_dict()}}
    [applied] = apply_correction(stored, {"statistics": {"image": corrected}})["statistics"].values()
    assert applied["groups"]["de"]["pi0"] == shares[1] and applied["groups"]["de"]["evidence"]
    assert applied["groups"]["de"]["pi0_without_labels"] == second.pi0
    assert MismatchModel.from_dict(applied).of_group("de").curve == pytest.approx(
        corrected["groups"]["de"]["curve"]["p"]
    )

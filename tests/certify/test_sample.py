"""Certification samples of an audit: the same one again, strata as the rules divide, marks counted."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from auditor.audit import Audit
from auditor.certify.sample import CertifyError, judged_strata, list_samples
from auditor.cli import cli
from tests.support.synthetic import write_audit


@pytest.fixture
def audit(tmp_path: Path) -> Audit:
    return Audit(write_audit(tmp_path / "audit", 3000, 1000))


def truth(audit: Audit, uid: str) -> str:
    """A reviewer who believes the similarity: below 0.2 nothing fits."""
    row = audit.row(uid)
    assert row is not None
    return "bad" if row["similarity"] < 0.2 else "good"


def test_the_same_rules_find_the_same_sample_and_others_another(audit: Audit) -> None:
    first = audit.certification_sample(50, max_p_mismatch=0.3)
    assert audit.certification_sample(50, max_p_mismatch=0.3) == first
    assert audit.certification_sample(50).name != first.name
    assert {sample.name for sample in list_samples(audit.database.files.folder)} >= {first.name}


def test_strata_hold_every_usable_row_once_and_follow_flag_and_rules(audit: Audit) -> None:
    sample = audit.certification_sample(60, max_p_mismatch=0.3)
    assert sum(stratum.rows for stratum in sample.strata) == audit.count("status = 'ok'")
    assert sum(s.rows for s in sample.strata if s.flagged) == audit.count("mismatch AND status = 'ok'")
    kept = len(audit.keep(max_p_mismatch=0.3))
    assert sum(s.rows for s in sample.strata if not s.removed) == kept
    for row in sample.rows:
        found = audit.row(row.uid, row.caption_index)
        assert found is not None and found["status"] == "ok"
        assert found["mismatch"] == sample.strata[row.stratum].flagged


def test_marks_become_intervals_that_hold_the_truth(audit: Audit) -> None:
    sample = audit.certification_sample(80, max_p_mismatch=0.3)
    for row in sample.rows:
        audit.mark(row.uid, truth(audit, row.uid), caption_index=row.caption_index)
    found = audit.certify(sample)
    assert found.labels == len(sample.rows) == 80
    assert (
        found.mismatched.low <= audit.count("similarity < 0.2") / audit.count("status = 'ok'") <= found.mismatched.high
    )
    assert found.left is not None and found.lost is not None
    assert found.lost.low <= audit.count("similarity >= 0.2 AND p_mismatch > 0.3") / 2800 <= found.lost.high


def test_rows_nobody_has_judged_do_not_count(audit: Audit) -> None:
    sample = audit.certification_sample(40)
    audit.mark(sample.rows[0].uid, "unsure", caption_index=sample.rows[0].caption_index)
    strata = judged_strata(sample, audit.marks_of(sample))
    assert sum(stratum.labels for stratum in strata) == sum(stratum.unsure for stratum in strata) == 1


def test_the_command_draws_reads_a_sheet_and_certifies(audit: Audit, tmp_path: Path) -> None:
    path, sheet = audit.path, tmp_path / "judge.csv"
    drawn = CliRunner().invoke(cli, ["certify", path, "--labels", "30", "--sheet", str(sheet)])
    assert drawn.exit_code == 0 and "0 of 30 rows judged" in drawn.output
    lines = sheet.read_text().splitlines()
    filled = [lines[0], *(line[:-2] + f",{truth(audit, line.split(',')[0])}," for line in lines[1:])]
    sheet.write_text("\n".join(filled))
    done = CliRunner().invoke(cli, ["certify", path, "--labels", "30", "--marks", str(sheet), "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["labels"] == 30 and found["mismatched"]["low"] <= 0.07 <= found["mismatched"]["high"]


def test_a_wrong_mark_is_told(audit: Audit, tmp_path: Path) -> None:
    sheet = tmp_path / "judge.csv"
    sheet.write_text("uid,caption_index,mark\nx,0,maybe\n")
    done = CliRunner().invoke(cli, ["certify", audit.path, "--marks", str(sheet)])
    assert isinstance(done.exception, CertifyError) and "maybe" in str(done.exception)

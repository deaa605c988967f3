"""Label samples: reproducible, stratified by the rules, and their marks counted."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from auditor.cli import cli
from auditor.python_api import Audit
from auditor.review.label_sample import CertifyError, count_labels, list_label_samples, select_fair_marks
from tests.support.marks import mark_rows
from tests.support.synthetic import write_audit


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_audit(tmp_path_factory.mktemp("labels") / "audit", 3000, 1000)


@pytest.fixture
def audit(folder: Path, tmp_path: Path) -> Audit:
    return Audit(shutil.copytree(folder, tmp_path / "audit"))


def judge_by_similarity(row: dict[str, Any]) -> str:
    """A reviewer who calls pairs with a similarity below 0.2 bad."""
    return "bad" if row["similarity"] < 0.2 else "good"


def test_the_same_rules_find_the_same_sample_and_others_another(audit: Audit) -> None:
    first = audit.certification_sample(50, max_p_mismatch=0.3)
    assert audit.certification_sample(50, max_p_mismatch=0.3) == first
    assert audit.certification_sample(50).name != first.name
    assert {sample.name for sample in list_label_samples(audit.database.files.folder)} >= {first.name}


def test_strata_hold_every_usable_row_once_and_follow_flag_and_rules(audit: Audit) -> None:
    sample = audit.certification_sample(60, max_p_mismatch=0.3)
    assert sum(stratum.rows for stratum in sample.strata) == audit.count("status = 'ok'")
    assert sum(s.rows for s in sample.strata if s.flagged) == audit.count("mismatch AND status = 'ok'")
    kept = len(audit.keep(max_p_mismatch=0.3))
    assert sum(s.rows for s in sample.strata if not s.removed) == kept
    stored = {(row["uid"], row["caption_index"]): row for row in audit.page(limit=3000).to_pylist()}
    for row in sample.rows:
        found = stored[row.uid, row.caption_index]
        assert found["status"] == "ok" and found["mismatch"] == sample.strata[row.stratum].flagged


def test_marks_become_intervals_that_hold_the_truth(audit: Audit) -> None:
    sample = audit.certification_sample(80, max_p_mismatch=0.3)
    mark_rows(audit, sample.rows, judge_by_similarity)
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
    strata = count_labels(sample, audit.marks_of(sample))
    assert sum(stratum.labels for stratum in strata) == sum(stratum.unsure for stratum in strata) == 1


def test_the_command_draws_reads_a_sheet_and_certifies(audit: Audit, tmp_path: Path) -> None:
    path, sheet = audit.path, tmp_path / "judge.csv"
    drawn = CliRunner().invoke(cli, ["certify", path, "--labels", "30", "--sheet", str(sheet)])
    assert drawn.exit_code == 0 and "0 of 30 rows judged" in drawn.output
    lines = sheet.read_text().splitlines()
    rows = {row["uid"]: row for row in audit.page(limit=3000).to_pylist()}
    filled = [lines[0], *(line[:-2] + f",{judge_by_similarity(rows[line.split(',')[0]])}," for line in lines[1:])]
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


def test_the_command_takes_every_rule_of_filter(audit: Audit) -> None:
    from auditor.commands.everyday.filter import command as filtering
    from auditor.commands.look_closer.certify import command as certify

    writing = {"out", "input_columns", "tiers", "dry_run", "shard_size", "force"}
    assert {option.name for option in certify.params} >= {option.name for option in filtering.params} - writing
    words = ["certify", audit.path, "--labels", "30", "--json", "--max", "similarity=0.9", "--lose-at-most", "2%"]
    done = CliRunner().invoke(cli, [*words, "--per-medium", "worst", "--unscored", "drop", "--no-duplicates"])
    assert done.exit_code == 0, done.output
    sample = next(
        one for one in list_label_samples(audit.database.files.folder) if one.name == json.loads(done.stdout)["sample"]
    )
    assert set(sample.rules) == {"max_p_mismatch", "max_similarity", "per_medium", "unscored", "no_duplicates"}
    kept = len(audit.keep(
        max_p_mismatch=sample.rules["max_p_mismatch"], max={"similarity": 0.9}, per_medium="worst", unscored="drop",
        no_duplicates=True,
    ))  # fmt: skip
    assert sum(stratum.rows for stratum in sample.strata if not stratum.removed) == kept > 0


def test_a_sheet_of_another_audit_is_refused_whole(audit: Audit, tmp_path: Path) -> None:
    sheet = tmp_path / "judge.csv"
    own = audit.certification_sample(5).rows[0]
    sheet.write_text(f"uid,caption_index,mark\n{own.uid},{own.caption_index},good\n{'0' * 32},0,bad\n")
    done = CliRunner().invoke(cli, ["certify", audit.path, "--marks", str(sheet)])
    assert isinstance(done.exception, CertifyError) and "1 rows that are not in" in str(done.exception)
    assert not Audit(audit.path).sql("SELECT * FROM reviews").num_rows


def test_two_sheets_are_two_reviewers(audit: Audit, tmp_path: Path) -> None:
    own = audit.certification_sample(5).rows[0]
    for name, mark in (("ann", "good"), ("bob", "bad")):
        (tmp_path / f"{name}.csv").write_text(f"uid,caption_index,mark\n{own.uid},{own.caption_index},{mark}\n")
        CliRunner().invoke(cli, ["certify", audit.path, "--labels", "5", "--marks", str(tmp_path / f"{name}.csv")])
    found = Audit(audit.path).sql("SELECT reviewer, mark FROM reviews ORDER BY reviewer").to_pylist()
    assert found == [{"reviewer": "ann", "mark": "good"}, {"reviewer": "bob", "mark": "bad"}]


def test_the_correction_is_told_in_json_too(audit: Audit) -> None:
    sample = audit.certification_sample(60)
    mark_rows(audit, sample.rows, lambda _: "bad")
    words = ["certify", audit.path, "--labels", "60", "--json"]
    found = json.loads(CliRunner().invoke(cli, [*words, "--recalibrate"]).stdout)
    assert found["labels"] == 60 and found["corrected"] is True
    assert json.loads(CliRunner().invoke(cli, ["certify", audit.path, "--undo", "--json"]).stdout) == {
        "corrected": False
    }


def test_marks_made_for_another_reason_prove_nothing(audit: Audit) -> None:
    """If only the most suspicious half was reviewed, the interval must still cover the truth."""
    sample = audit.certification_sample(60)
    p = {row["uid"]: row["p_mismatch"] for row in audit.page(limit=3000).to_pylist()}
    mark_rows(audit, sorted(sample.rows, key=lambda row: -p[row.uid])[:30], judge_by_similarity)
    share = audit.count("similarity < 0.2") / audit.count("status = 'ok'")
    found = audit.certify(sample)
    assert found.mismatched.low <= share <= found.mismatched.high
    assert found.labels < 30
    told = CliRunner().invoke(cli, ["certify", audit.path, "--labels", "60"])
    assert f"{30 - found.labels} more are judged out of order" in told.output


@pytest.mark.parametrize(
    ("marks", "fair"),
    [
        ([], []),
        ([None, "bad"], [None, None]),
        (["good", None, "bad"], ["good", None, None]),
        (["good"] * 9 + [None, "bad", None], ["good"] * 9 + ["unsure", "bad", None]),  # one row was skipped
    ],
)
def test_only_beginnings_count(marks: list[str | None], fair: list[str | None]) -> None:
    assert select_fair_marks(marks) == fair

"""Verdicts on synthetic audits: exact counts, estimates, groups, labels, a baseline, and the exit codes."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor.audit_folder.arrow_schema import STORAGE
from auditor.audit_folder.folder import Folder
from auditor.audit_folder.side_files import OVERLAP_SCHEMA, overlap_name
from auditor.check.check_audit import BudgetResult, decide_bound
from auditor.check.share_estimates import ShareEstimate, Z
from auditor.cli import run_command_line
from auditor.keep.uncertainty_cuts import wilson_interval
from auditor.python_api import Audit
from auditor.query.reviews import make_review
from tests.support.synthetic import write_audit

ROWS = 1200


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_audit(tmp_path_factory.mktemp("check") / "audit", ROWS, 300)


@pytest.fixture(scope="module")
def audit(path: Path) -> Audit:
    return Audit(path)


def check(audit: Audit, folder: Path, limits: str, **options: Any) -> BudgetResult:
    budget = folder / "budget.toml"
    budget.write_text(f"[limits]\n{limits}\n")
    return audit.check(budget, **options)


def count(audit: Audit, condition: str) -> int:
    return int(audit.sql(f"SELECT count(*) AS n FROM samples WHERE {condition}")["n"][0].as_py())


# -- counted shares ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "condition"),
    [
        ("unusable", "status <> 'ok'"),
        ("corrupt", "status = 'corrupt'"),
        ("duplicates", "status = 'ok' AND duplicate_of IS NOT NULL"),
        ("ambiguous", "ambiguous_visual OR ambiguous_text"),
        ("ambiguous_text", "status = 'ok' AND ambiguous_text"),
        ("mismatch", "status = 'ok' AND mismatch"),
        ("looks_like", "status = 'ok' AND looks_like <> 'stock title'"),
        ("file_name", "looks_like = 'file name'"),
        ("url", "looks_like = 'url'"),
    ],
)
def test_counts_are_those_of_sql_and_exact(audit: Audit, share: str, condition: str, tmp_path: Path) -> None:
    [result] = check(audit, tmp_path, f"{share} = 1.0").results
    expected = count(audit, condition) / ROWS
    assert result.estimate is not None and result.verdict == "pass"
    assert result.estimate.share == result.estimate.low == result.estimate.high == pytest.approx(expected)


def test_a_limit_at_the_share_is_met_and_just_below_it_is_broken(audit: Audit, tmp_path: Path) -> None:
    rows = count(audit, "status <> 'ok'")
    limits = f"unusable = {rows / ROWS}\nb = {{ share = 'unusable', at_most = {(rows - 1) / ROWS} }}"
    assert [result.verdict for result in check(audit, tmp_path, limits).results] == ["fail", "pass"]
    limits = f"unusable = {{ at_least = {rows / ROWS} }}\nb = {{ share = 'unusable', at_least = {(rows + 1) / ROWS} }}"
    assert [result.verdict for result in check(audit, tmp_path, limits).results] == ["fail", "pass"]


def test_sql_among_rows(audit: Audit, tmp_path: Path) -> None:
    [result] = check(
        audit, tmp_path, "x = { where = 'width < 300', among = \"kind = 'video'\", at_most = 1.0 }"
    ).results
    videos = count(audit, "kind = 'video'")
    assert result.estimate is not None and result.estimate.rows == videos
    assert result.estimate.share == pytest.approx(count(audit, "kind = 'video' AND width < 300") / videos)
    [result] = check(audit, tmp_path, "x = { where = 'TRUE', among = 'FALSE', at_most = 0 }").results
    assert result.verdict == "cannot tell" and result.estimate is None and "no row counts" in result.note


def test_groups_name_the_worst_one(audit: Audit, tmp_path: Path) -> None:
    shares = {
        shard: count(audit, f"shard = '{shard}' AND status <> 'ok'") / 300
        for shard in ("00000", "00001", "00002", "00003")
    }
    worst = max(shares, key=lambda shard: shares[shard])
    limit = sorted(shares.values())[-2]
    [result] = check(audit, tmp_path, f"x = {{ share = 'unusable', per = 'shard', at_most = {limit} }}").results
    assert result.estimate is not None and result.estimate.group == worst
    assert result.verdict == "fail" and result.note == "1 of 4 groups by shard"


def test_an_unfinished_audit_has_wilsons_interval(path: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(path, tmp_path / "part")
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "failed_shards": [{"shard": "00009"}]}))
    audit = Audit(folder)
    rows = count(audit, "status <> 'ok'")
    [result] = check(audit, tmp_path, f"unusable = {rows / ROWS + 0.001}").results
    assert result.estimate is not None and result.verdict == "cannot tell"
    assert (result.estimate.low, result.estimate.high) == pytest.approx(wilson_interval(rows, ROWS, Z))
    assert "rows would settle it" in result.note
    [result] = check(audit, tmp_path, f"unusable = {rows / ROWS + 0.001}", strict=True).results
    assert result.verdict == "pass"


def test_what_is_not_measured_yet_cannot_be_told(path: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(path, tmp_path / "audit")
    limits = 'overlap = { other = "coco/", at_most = 0 }\nboilerplate = 0'
    results = check(Audit(folder), tmp_path, limits).results
    assert [result.verdict for result in results] == ["cannot tell"] * 2
    assert "auditor overlap" in results[0].note and "auditor faults" in results[1].note
    [digest] = (
        Audit(folder).sql("SELECT media_digest FROM samples WHERE status = 'ok' LIMIT 1")["media_digest"].to_pylist()
    )
    row = dict.fromkeys(OVERLAP_SCHEMA.names, "") | {"media_digest": digest, "what": "media", "cosine": 1.0}
    Folder(folder).write_table(overlap_name("coco/"), pa.Table.from_pylist([row], schema=OVERLAP_SCHEMA))
    results = check(Audit(folder), tmp_path, limits).results
    assert results[0].verdict == "fail" and results[0].estimate is not None
    assert results[0].estimate.share == pytest.approx(1 / ROWS)


# -- the share of mismatched pairs ---------------------------------------------------------------------------------


def test_mismatched_is_what_the_thresholds_say(
    audit: Audit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = check(audit, tmp_path, "mismatched = 0.5\na = { share = 'mismatched', at_least = 0.5 }").results
    assert [result.verdict for result in results] == ["fail", "pass"]
    estimate = results[1].estimate
    assert estimate is not None and estimate.low < estimate.share < estimate.high
    assert run_command_line(["thresholds", audit.path]) == 0
    assert f"{100 * estimate.low:.1f} to {100 * estimate.high:.1f}" in capsys.readouterr().out


def test_labels_settle_what_cannot_be_told(path: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(path, tmp_path / "audit")
    audit = Audit(folder)
    [result] = check(audit, tmp_path, "mismatched = 1.0").results
    assert result.estimate is not None
    limit = f"mismatched = {result.estimate.share + 0.8 * (result.estimate.high - result.estimate.share)}"
    [result] = check(audit, tmp_path, limit).results
    assert result.verdict == "cannot tell" and "labels would settle it: auditor certify" in result.note
    labels = int(result.note.rsplit(" ", 1)[1])
    sample = audit.certification_sample(labels)
    truth = {
        (row["uid"], row["caption_index"]): row["mismatch"] for row in audit.sql("SELECT * FROM samples").to_pylist()
    }
    marks = {True: "bad", False: "good"}
    audit.database.keep_reviews(
        [
            make_review(row.uid, row.caption_index, marks[bool(truth[row.uid, row.caption_index])], "me", "")
            for row in sample.rows
        ]
    )
    [result] = check(audit, tmp_path, limit).results
    assert result.verdict != "cannot tell" and result.note == f"by {labels:,} labels"


def test_mismatched_in_groups_has_the_intervals_of_the_groups(audit: Audit, tmp_path: Path) -> None:
    [result] = check(audit, tmp_path, "x = { share = 'mismatched', per = 'shard', at_most = 0.001 }").results
    assert result.verdict == "fail" and result.note == "4 of 4 groups by shard"
    assert result.estimate is not None and result.estimate.low < result.estimate.share < result.estimate.high


def test_many_groups_need_more_evidence() -> None:
    estimate = ShareEstimate(0.10, 0.06, 0.14, 500)
    assert decide_bound(estimate, 1, 0.05, False, 1) == "fail"
    assert decide_bound(estimate, 1, 0.05, False, 100) == "cannot tell"
    assert decide_bound(estimate, 1, 0.05, True, 100) == "fail"
    assert decide_bound(estimate, 1, 0.14, False, 100) == "pass"  # every group within its limit needs no correction
    assert decide_bound(estimate, -1, 0.15, False, 1) == "fail"
    assert decide_bound(estimate, -1, 0.12, False, 1) == "cannot tell"
    assert decide_bound(estimate, -1, 0.06, False, 1) == "pass"


# -- the baseline --------------------------------------------------------------------------------------------------


def change_rows(folder: Path, rows: int) -> None:
    """Break the first usable rows of the first shard."""
    file = folder / "samples/00000.parquet"
    table = pq.read_table(file)
    status = table["status"].to_pylist()
    places = [place for place, value in enumerate(status) if value == "ok"][:rows]
    for place in places:
        status[place] = "corrupt"
    column = table.schema.get_field_index("status")
    pq.write_table(table.set_column(column, table.schema.field(column), pa.array(status, pa.string())), file, **STORAGE)


def test_an_audit_is_not_worse_than_itself(path: Path, audit: Audit, tmp_path: Path) -> None:
    limits = "\n".join(f"{share} = {{ worse_by_at_most = 0 }}" for share in ("corrupt", "mismatched", "url"))
    results = check(audit, tmp_path, limits, baseline=str(path)).results
    assert [result.verdict for result in results] == ["pass"] * 3
    assert all(result.estimate and result.estimate.low == result.estimate.high == 0 for result in results)


@pytest.mark.parametrize(("rows", "verdict"), [(1, "cannot tell"), (12, "fail")])
def test_few_changes_are_noise_and_many_are_not(path: Path, tmp_path: Path, rows: int, verdict: str) -> None:
    folder = shutil.copytree(path, tmp_path / "audit")
    change_rows(folder, rows)
    [result] = check(Audit(folder), tmp_path, "corrupt = { worse_by_at_most = 0 }", baseline=str(path)).results
    assert result.estimate is not None and result.verdict == verdict
    assert result.estimate.share == pytest.approx(rows / ROWS)
    # McNemar's standard error of a change in one direction
    assert result.estimate.high - result.estimate.share == pytest.approx(Z * rows**0.5 / ROWS, rel=0.25)
    [result] = check(Audit(folder), tmp_path, "corrupt = { worse_by_at_most = '5%' }", baseline=str(path)).results
    assert result.verdict == "pass"


def test_chance_rarely_looks_worse(path: Path, audit: Audit, tmp_path: Path) -> None:
    """Marks by a hash of the uid are independent in two audits with other uids: 5% false alarms are expected."""
    other = write_audit(tmp_path / "other", ROWS, 300, seed=1)
    limits = "\n".join(f"x{i} = {{ where = \"hash(uid || '{i}') % 20 = 0\", worse_by_at_most = 0 }}" for i in range(30))
    verdicts = [result.verdict for result in check(audit, tmp_path, limits, baseline=str(other)).results]
    assert verdicts.count("fail") <= 6  # 1.5 expected; more than 6 of 30 have a probability below 0.1%
    assert verdicts.count("cannot tell") >= 20


def test_a_baseline_with_nothing_in_common_is_one_line(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_audit(tmp_path / "other", 200, 100, seed=1)
    for file in sorted((other / "samples").glob("*.parquet")):
        table = pq.read_table(file)
        column = table.schema.get_field_index("key")
        keys = pa.array([f"other-{key}" for key in table["key"].to_pylist()])
        pq.write_table(table.set_column(column, table.schema.field(column), keys), file, **STORAGE)
    (tmp_path / "b.toml").write_text("[limits]\ncorrupt = { worse_by_at_most = 0 }\n")
    assert run_command_line(["check", str(path), "--budget", str(tmp_path / "b.toml"), "--baseline", str(other)]) == 2
    [line] = capsys.readouterr().err.strip().splitlines()
    assert f"the baseline {other} has no row in common with {path}" in line


# -- the command ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "verdict", "code"),
    [
        ("unusable = 1.0", "pass", 0),
        ("unusable = 0\nmismatched = 1.0", "fail", 1),
        ('overlap = { other = "coco/", at_most = 0 }', "cannot tell", 2),
        ('unusable = 0\noverlap = { other = "coco/", at_most = 0 }', "fail", 1),
    ],
)
def test_exit_codes(
    path: Path, tmp_path: Path, limits: str, verdict: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    budget = tmp_path / "b.toml"
    budget.write_text(f"[limits]\n{limits}\n")
    assert run_command_line(["check", str(path), "--budget", str(budget)]) == code
    assert verdict in capsys.readouterr().out
    assert run_command_line(["check", str(path), "--budget", str(budget), "--json"]) == code
    assert json.loads(capsys.readouterr().out)["verdict"] == verdict


def test_the_first_budget_is_met_by_its_audit(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    budget = tmp_path / "budget.toml"
    assert run_command_line(["check", str(path), "--init", str(budget)]) == 0
    text = budget.read_text()
    assert (
        text.startswith("# Limits of `auditor check`") and 'mismatched = "' in text and "# copies of other rows" in text
    )
    assert run_command_line(["check", str(path), "--budget", str(budget)]) == 0
    assert "fail" not in capsys.readouterr().out

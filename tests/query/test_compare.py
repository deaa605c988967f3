"""Comparisons of equal audits, of an audit with planted changes, and of two versions with other uids."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from scipy.stats import spearmanr

from auditor.cli import run_command_line
from auditor.python_api import Audit
from auditor.query.compare import compare_audits, compute_spearman
from auditor.query.database import AuditDatabase
from tests.support.synthetic import write_audit


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_audit(tmp_path_factory.mktemp("compare") / "audit", 1500, 500)


def changed(folder: Path, to: Path, **columns: pa.Array) -> Path:
    """A copy whose first shard has other columns."""
    shutil.copytree(folder, to)
    shard = to / "samples" / "00000.parquet"
    table = pq.read_table(shard)
    for name, values in columns.items():
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(name), values.cast(table.schema.field(name).type))
    pq.write_table(table, shard)
    return to


def test_spearman_is_scipys() -> None:
    random = np.random.default_rng(0)
    x = random.integers(0, 20, 300).astype(np.float32)
    y = x + random.normal(size=300).round(1)
    assert compute_spearman(x, y) == pytest.approx(spearmanr(x, y).statistic)
    assert compute_spearman(x, np.ones(300)) is None and compute_spearman(x[:1], y[:1]) is None


def test_an_audit_and_itself(folder: Path) -> None:
    found = compare_audits(AuditDatabase(folder), AuditDatabase(folder))
    assert (found.matched, found.only_first, found.only_second) == (1500, 0, 0)
    assert all(value == pytest.approx(1) for value in found.correlation.values())
    assert all(change.newly == change.gone == 0 for change in found.flags)
    assert found.status_changes == []


def test_planted_changes_are_found(folder: Path, tmp_path: Path) -> None:
    table = pq.read_table(folder / "samples" / "00000.parquet")
    ok = pc.equal(table["status"], "ok").to_numpy()
    p = table["p_mismatch"].to_numpy(zero_copy_only=False).copy()
    good = np.flatnonzero(ok & (p < 0.01))[:7]
    bad = np.flatnonzero(ok & (p > 0.99))[:3]
    p[good], p[bad] = 0.999, 0.0
    status = table["status"].to_pylist()
    status[int(good[-1]) + 1] = "timeout"
    other = changed(folder, tmp_path / "b", p_mismatch=pa.array(p, mask=np.isnan(p)), status=pa.array(status))
    found = compare_audits(AuditDatabase(folder), AuditDatabase(other), n=10)
    mismatch = next(change for change in found.flags if change.flag == "mismatch")
    assert (mismatch.newly, mismatch.gone) == (7, 3)
    uids = table["uid"].to_pylist()
    assert {row["uid"] for row in found.moved} == {uids[i] for i in (*good, *bad)}
    assert all(row["caption"] for row in found.moved)
    assert found.status_changes[0]["second"] == "timeout"
    assert found.correlation["p_mismatch"] is not None and found.correlation["p_mismatch"] < 1
    assert found.correlation["similarity"] == pytest.approx(1)


def test_versions_with_other_uids_match_by_place(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "b")
    for path in (tmp_path / "b" / "samples").glob("*.parquet"):
        table = pq.read_table(path)
        uids = pa.array([uid[::-1] for uid in table["uid"].to_pylist()])
        pq.write_table(table.set_column(0, "uid", uids), path)
    (tmp_path / "b" / "samples" / "00002.parquet").unlink()
    found = compare_audits(AuditDatabase(folder), AuditDatabase(tmp_path / "b"))
    assert found.matched_by == "shard, key and caption"
    assert (found.matched, found.only_first, found.only_second) == (1000, 500, 0)
    assert found.correlation["similarity"] == pytest.approx(1)


def test_nothing_in_common(folder: Path, tmp_path: Path) -> None:
    other = write_audit(tmp_path / "other", 50, 50, seed=9)
    for path in (other / "samples").glob("*.parquet"):
        table = pq.read_table(path)
        pq.write_table(table.set_column(1, "key", pa.array([f"x{i}" for i in range(50)])), path)
    found = Audit(folder).compare(Audit(other))
    assert (found.matched, found.only_first, found.only_second) == (0, 1500, 50)
    assert found.moved == [] and found.correlation["similarity"] is None


def test_audits_with_nothing_in_common_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (str(write_audit(tmp_path / name, 50, seed=seed)) for seed, name in enumerate("ab"))
    for shard in Path(second, "samples").glob("*.parquet"):
        shard.rename(shard.with_stem("other"))
        table = pq.read_table(shard.with_stem("other"))
        shard_names = pa.array(["other"] * len(table), table.schema.field("shard").type)
        pq.write_table(
            table.set_column(table.schema.get_field_index("shard"), "shard", shard_names), shard.with_stem("other")
        )
    assert run_command_line(["compare", first, second]) == 1
    assert "have no row in common" in capsys.readouterr().err
    assert run_command_line(["compare", first, second, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["matched"] == 0

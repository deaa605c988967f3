"""What rules keep, remove and cost, compared with NumPy row by row."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor.audit_folder.arrow_schema import SAMPLES
from auditor.keep.subset_drift import measure_subset_drift
from auditor.python_api import Audit
from auditor.query.rules import RuleError, Rules
from auditor.query.sandbox import QueryError
from tests.support.synthetic import write_audit

ROWS = 4000
Mask = npt.NDArray[np.bool_]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_audit(tmp_path_factory.mktemp("filter") / "audit", ROWS, 1000)


@pytest.fixture(scope="module")
def audit(folder: Path) -> Audit:
    return Audit(folder)


@pytest.fixture(scope="module")
def table(folder: Path) -> pa.Table:
    return pq.read_table(folder / "samples", schema=SAMPLES)


def values(table: pa.Table, column: str) -> npt.NDArray[Any]:
    return np.asarray(table[column].to_pylist())


def usable(table: pa.Table) -> Mask:
    found: Mask = values(table, "status") == "ok"
    return found


def test_rules_are_joined_by_and(audit: Audit, table: pa.Table) -> None:
    kept = audit.keep(
        max_p_mismatch=0.2, min_similarity=0.25, max_uncertainty_text=0.7, where="kind = 'image'", no_duplicates=True
    )
    p, similarity, u = (table[c].to_numpy() for c in ("p_mismatch", "similarity", "uncertainty_text"))
    expected = (
        usable(table)
        & (p <= np.float32(0.2))
        & (similarity >= np.float32(0.25))
        & (u <= np.float32(0.7))
        & (values(table, "kind") == "image")
        & np.array([one is None for one in table["duplicate_of"].to_pylist()])
    )
    assert 0 < expected.sum() < ROWS
    assert kept.uids.to_pylist() == table.filter(pa.array(expected))["uid"].to_pylist()
    assert kept.count == len(kept) == expected.sum()


def test_no_rule_keeps_all_that_is_usable(audit: Audit, table: pa.Table) -> None:
    assert audit.keep().count == usable(table).sum()
    assert audit.keep(where="TRUE").count == usable(table).sum()


@pytest.mark.parametrize(("by", "low_is_good"), [("similarity", False), ("uncertainty_visual", True), ("width", False)])
@pytest.mark.parametrize("share", ["30%", "0.1%", "100%", "777"])
def test_keep_top_is_exact(audit: Audit, table: pa.Table, by: str, low_is_good: bool, share: str) -> None:
    """Exact to the row, even if a column has only five different values."""
    kept = audit.keep(keep_top=share, by=by)
    column = table.filter(pa.array(usable(table)))[by].to_numpy().astype(np.float64)
    wanted = round(float(share[:-1]) / 100 * len(column)) if share.endswith("%") else int(share)
    best = np.sort(column) if low_is_good else np.sort(column)[::-1]
    assert kept.count == wanted
    np.testing.assert_array_equal(np.sort(kept.column(by).to_numpy()), np.sort(best[:wanted]))


def test_keep_top_of_nothing_and_of_text(audit: Audit) -> None:
    assert audit.keep(keep_top="0.001%", by="similarity").count == 0
    assert audit.keep(keep_top=777, by="mismatch").count == 777  # FALSE comes before TRUE
    with pytest.raises(QueryError, match="numbers"):
        audit.keep(keep_top="10%", by="caption")
    with pytest.raises(QueryError, match="did you mean similarity"):
        audit.keep(keep_top="10%", by="similarty")


def test_bad_conditions_are_told_at_once(audit: Audit) -> None:
    with pytest.raises(QueryError, match="similarity"):
        audit.keep(where="simlarity > 3")
    with pytest.raises(QueryError):
        audit.keep(where="TRUE) OR (TRUE")
    with pytest.raises(RuleError, match="needs a number"):
        audit.keep(max_p_mismatch=float("nan"))


def test_effects(audit: Audit, table: pa.Table) -> None:
    rules = Rules.of(max_p_mismatch=0.3, min_similarity=0.2, no_duplicates=True)
    found = audit.rule_effects(rules)
    ok = usable(table)
    p = table["p_mismatch"].to_numpy().astype(np.float64)
    passes = {
        "max_p_mismatch": p <= np.float32(0.3),
        "min_similarity": table["similarity"].to_numpy() >= np.float32(0.2),
        "no_duplicates": np.array([one is None for one in table["duplicate_of"].to_pylist()]),
    }
    everything = np.logical_and.reduce(list(passes.values()))
    assert (found.rows, found.usable, found.kept) == (ROWS, ok.sum(), (ok & everything).sum())
    for effect in found.rules:
        removed = ok & ~passes[effect.rule]
        others = np.logical_and.reduce([mask for rule, mask in passes.items() if rule != effect.rule])
        assert effect.removed == removed.sum() and effect.kept == (ok & passes[effect.rule]).sum()
        assert effect.removed_only_by_it == (removed & others).sum()
        assert effect.expected_precision == pytest.approx(p[removed].mean())
        assert effect.expected_loss == pytest.approx((1 - p[removed]).sum() / (1 - p[ok]).sum())
    assert found.together.removed == (ok & ~everything).sum()
    assert found.together.expected_precision == pytest.approx(p[ok & ~everything].mean())


def test_unscored_decides_on_rows_without_an_estimate(tmp_path: Path) -> None:
    """No limit removes rows without p_mismatch unless `unscored` says so."""
    path = write_audit(tmp_path / "audit", 50, 50)
    shard = path / "samples" / "00000.parquet"
    table = pq.read_table(shard)
    place = table.schema.get_field_index("p_mismatch")
    pq.write_table(table.set_column(place, table.schema.field(place), pa.nulls(50, pa.float32())), shard)
    audit = Audit(path)
    usable = audit.counts["status"]["ok"]
    for rules in ({"max_p_mismatch": 0.0}, {"max_p_mismatch": 1.0}, {"keep_top": "10%", "by": "p_mismatch"}):
        for per_medium in (None, "any", "all", "mean", "worst"):
            kept, dropped = (audit.keep(**rules, per_medium=per_medium, unscored=how) for how in ("keep", "drop"))
            assert (kept.count, kept.unscored, dropped.count) == (usable, usable, 0)
            effects = audit.rule_effects(dropped.rules)
            assert (effects.unscored, effects.unscored_kept, effects.kept) == (usable, 0, 0)
            assert audit.rule_effects(kept.rules).unscored_kept == usable
    with pytest.raises(RuleError, match="unscored is one of keep, drop, not 'maybe'"):
        audit.keep(unscored="maybe")
    assert Audit(path).keep().count > 0


def test_shift(audit: Audit, table: pa.Table) -> None:
    found = measure_subset_drift(audit.database, Rules.of(where="length(caption) > 40 AND kind = 'video'"))
    ok = table.filter(pa.array(usable(table)))
    lengths = np.array([len(caption) for caption in ok["caption"].to_pylist()])
    kept = (lengths > 40) & (values(ok, "kind") == "video")
    by_name = {shift.measure: shift for shift in found.measures}
    assert by_name["caption length"].whole == pytest.approx(lengths.mean())
    assert by_name["caption length"].kept == pytest.approx(lengths[kept].mean())
    assert by_name["share of videos"].kept == 1.0
    area = ok["width"].to_numpy().astype(float) * ok["height"].to_numpy() / 1e6
    assert by_name["resolution (megapixels)"].kept == pytest.approx(area[kept].mean())
    topic = ok["topic"].to_numpy()
    one = found.topics[0]
    assert one.whole == pytest.approx((topic == one.topic).mean())
    assert one.kept == pytest.approx((topic[kept] == one.topic).mean())
    assert measure_subset_drift(audit.database, Rules()).topic_distance == 0
    assert 0 < found.topic_distance < 1


def test_nearest_the_cut(audit: Audit, table: pa.Table) -> None:
    kept, removed = audit.nearest_cut({"max_p_mismatch": 0.4}, "max_p_mismatch", 5)
    p = np.sort(table["p_mismatch"].drop_null().to_numpy())
    np.testing.assert_array_equal(kept["p_mismatch"].to_numpy(), p[p <= np.float32(0.4)][::-1][:5])
    np.testing.assert_array_equal(removed["p_mismatch"].to_numpy(), p[p > np.float32(0.4)][:5])
    low, high = audit.nearest_cut({"min_similarity": 0.3}, "min_similarity", 5)
    assert low["similarity"].to_numpy().min() >= np.float32(0.3) > high["similarity"].to_numpy().max()
    with pytest.raises(RuleError, match="not a bound that is set"):
        audit.nearest_cut({"min_similarity": 0.3}, "max_p_mismatch")


def test_marks_can_be_a_rule(folder: Path, tmp_path: Path) -> None:
    path = write_audit(tmp_path / "audit", 100, 50)
    audit = Audit(path)
    uid = audit.page("status = 'ok'", limit=1)["uid"][0].as_py()
    before = audit.keep().count
    audit.mark(uid, "bad", reviewer="a")
    assert audit.keep(where="review IS DISTINCT FROM 'bad'").count == before - 1
    assert uid not in audit.keep(where="review IS DISTINCT FROM 'bad'").uids.to_pylist()

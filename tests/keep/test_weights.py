"""Weights: formulas, repetitions of uids by weight, and no output for invalid weights."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from auditor.cli import run_command_line
from auditor.errors import AuditorError
from auditor.keep.weights import Weighing, apply_soft_cap, find_scale, repeat_uids, round_to_copies
from auditor.python_api import Audit
from tests.support.synthetic import write_audit


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_audit(tmp_path_factory.mktemp("weights") / "audit", 3000, 1000)


def p_by_uid(audit: Path, column: str = "p_mismatch") -> dict[str, float]:
    with Audit(audit) as opened:
        rows = opened.sql(f"SELECT uid, {column} AS x FROM samples WHERE status = 'ok'").to_pylist()
    return {row["uid"]: row["x"] for row in rows}


def write_weights(audit: Path, target: Path, how: Weighing | None = None, **options: Any) -> Any:
    rules = options.pop("rules", {})
    with Audit(audit) as opened:
        return opened.keep(**rules).weigh(target, how, **options)


def read_uids(path: Path) -> list[str]:
    return [f"{a:016x}{b:016x}" for a, b in np.load(path).tolist()]


def test_each_row_weighs_what_the_formula_says(audit: Path, tmp_path: Path) -> None:
    done = write_weights(audit, tmp_path / "w.parquet", Weighing(temperature=0.5, cap=2.0))
    found = pq.read_table(tmp_path / "w.parquet").to_pylist()
    expected = {uid: 2 * (1 - np.exp(-((1 - p) ** 2) / 2)) for uid, p in p_by_uid(audit).items()}
    assert {row["uid"] for row in found} == set(expected) and done.rows == len(expected)
    for row in found:
        assert row["weight"] == pytest.approx(expected[row["uid"]], abs=1e-6)
    values = np.array(list(expected.values()))
    assert done.total == pytest.approx(values.sum())
    assert done.effective == pytest.approx(values.sum() ** 2 / (values**2).sum())


def test_several_columns_multiply_and_rules_leave_rows_out(audit: Path, tmp_path: Path) -> None:
    how = Weighing(("p_mismatch", "similarity"))
    write_weights(audit, tmp_path / "w.parquet", how, rules={"min_similarity": 0.1})
    p, similarity = p_by_uid(audit), p_by_uid(audit, "similarity")
    rows = pq.read_table(tmp_path / "w.parquet").to_pylist()
    assert len(rows) == len(p)
    assert sum(row["weight"] == 0 for row in rows) == sum(value < np.float32(0.1) for value in similarity.values()) > 0
    for row in rows:
        x = similarity[row["uid"]]
        assert row["weight"] == pytest.approx((1 - p[row["uid"]]) * x if x >= 0.1 else 0.0, abs=1e-6)


def test_a_uid_stands_in_the_list_as_often_as_it_weighs(audit: Path, tmp_path: Path) -> None:
    done = write_weights(audit, tmp_path / "w.npy", Weighing(size=9000))
    listed = read_uids(tmp_path / "w.npy")
    assert listed == sorted(listed)  # DataComp's resharder bisects it
    assert len(listed) == done.rows and abs(done.rows - 9000) <= 1
    p = p_by_uid(audit)
    scale = 9000 / sum(1 - x for x in p.values())
    counts = {uid: listed.count(uid) for uid in p}
    assert all(abs(counts[uid] - scale * (1 - x)) < 1 for uid, x in p.items())
    assert np.load(tmp_path / "w.npy").dtype == np.dtype("u8,u8")


def test_the_resharders_search_counts_the_copies(audit: Path, tmp_path: Path) -> None:
    write_weights(audit, tmp_path / "w.npy", Weighing(size=6000))
    listed, names = np.load(tmp_path / "w.npy"), read_uids(tmp_path / "w.npy")
    for uid in dict.fromkeys(names[::500]):
        one = np.array([divmod(int(uid, 16), 2**64)], listed.dtype)[0]
        assert np.searchsorted(listed, one, "right") - np.searchsorted(listed, one, "left") == names.count(uid)


def test_spread_copies_never_follow_each_other(audit: Path, tmp_path: Path) -> None:
    write_weights(audit, tmp_path / "sorted.npy", Weighing(size=9000))
    write_weights(audit, tmp_path / "spread.npy", Weighing(size=9000), spread=True)
    spread = read_uids(tmp_path / "spread.npy")
    assert sorted(spread) == read_uids(tmp_path / "sorted.npy")
    last: dict[str, int] = {}
    for place, uid in enumerate(spread):
        assert place - last.get(uid, -9000) > 500  # about a third of the list
        last[uid] = place


def test_copies_are_right_on_average_and_exact_in_sum() -> None:
    weights = np.random.default_rng(0).gamma(1.0, 1.0, 500)
    drawn = np.stack([round_to_copies(weights, seed) for seed in range(400)])
    assert np.abs(drawn.sum(1) - weights.sum()).max() <= 1
    assert np.abs(drawn.mean(0) - weights).max() < 0.12  # deviation of a mean of 400 is at most 0.025
    assert ((drawn - weights) < 1).all() and ((weights - drawn) < 1).all()


def test_repeats_of_the_most_frequent_are_told_apart_by_the_others() -> None:
    uids = np.arange(6, dtype=np.uint64).repeat(2).reshape(-1, 2)
    for seed in range(20):
        found = repeat_uids(uids, np.array([5, 5, 2, 1, 0, 3]), seed)[:, 0].tolist()
        assert sorted(found) == [0] * 5 + [1] * 5 + [2] * 2 + [3] + [5] * 3
        assert all(a != b for a, b in pairwise(found))


def test_a_size_is_reached_under_a_cap_or_refused() -> None:
    weights = np.random.default_rng(1).random(1000)
    scale = find_scale(weights, 2500, 3.0)
    assert apply_soft_cap(scale * weights, 3.0).sum() == pytest.approx(2500)
    assert apply_soft_cap(scale * weights, 3.0).max() < 3.0
    with pytest.raises(AuditorError, match=r"more than a cap of 3 allows \(3,000\)"):
        find_scale(weights, 3000, 3.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--by", "similarity_normalised"], "weights must be finite and not negative"),
        (["--by", "matches_text"], "1 - x of matches_text violates this in"),
        (["--by", "caption"], "weigh by a column of numbers"),
        (["--by", "no_such"], "there is no column 'no_such'"),
        (["--temperature", "0"], "temperature must be above 0"),
        (["--cap", "-1"], "cap must be above 0"),
        (["--size", "0"], "size must be above 0"),
        (["--where", "similarity > 9"], "nothing to weigh"),
    ],
)
def test_what_cannot_be_weighed_is_one_line_and_nothing_is_written(
    tmp_path: Path, audit: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for form in ("npy", "parquet") if message == "nothing to weigh" else ("npy",):  # others do not depend on the form
        assert run_command_line(["weigh", str(audit), "--out", str(tmp_path / f"w.{form}"), *arguments]) == 1
        told = capsys.readouterr().err.strip().splitlines()
        assert len(told) == 1 and message in told[0]
        assert not list(tmp_path.iterdir())


def test_what_exists_is_replaced_only_by_force(audit: Path, tmp_path: Path) -> None:
    target = tmp_path / "w.npy"
    assert run_command_line(["weigh", str(audit), "--out", str(target)]) == 0
    assert run_command_line(["weigh", str(audit), "--out", str(target)]) == 1
    assert run_command_line(["weigh", str(audit), "--out", str(target), "--force", "--json"]) == 0
    assert run_command_line(["weigh", str(audit), "--out", str(tmp_path / "w.csv")]) == 1

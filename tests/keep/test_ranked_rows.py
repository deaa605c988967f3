"""Rows chosen after all other rules, globally and per cell, compared with naive implementations."""

import math
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.keep.ranked_rows import CANDIDATES, TARGET_WEIGHT, divide_in_proportion, find_cap
from auditor.python_api import Audit
from auditor.query.rules import RuleError, Rules
from auditor.query.sandbox import QueryError
from tests.support.synthetic import write_audit, write_corpus_audit

ROWS = 4000
Row = dict[str, Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_audit(tmp_path_factory.mktemp("ranked") / "audit", ROWS, 1000)


@pytest.fixture(scope="module")
def audit(folder: Path) -> Audit:
    return Audit(folder)


def read_rows(audit: Audit, where: str = "TRUE") -> list[Row]:
    return audit.sql(f"SELECT * FROM samples WHERE status = 'ok' AND {where}").to_pylist()


def count_cells(rows: list[Row], column: str) -> Counter[Any]:
    return Counter(row[column] for row in rows)


def find_cap_naively(sizes: list[int], count: int) -> int:
    cap = 0
    while cap < max(sizes) and sum(min(size, cap + 1) for size in sizes) <= count:
        cap += 1
    return cap


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.data())
def test_the_cap_is_that_of_a_naive_search(sizes: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, sum(sizes)))
    cap, extra = find_cap(np.array(sizes), count)
    assert cap == find_cap_naively(sizes, count)
    assert sum(min(size, cap) for size in sizes) + extra == count
    assert 0 <= extra <= sum(size > cap for size in sizes)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.data())
def test_proportional_numbers_add_up(sizes: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, sum(sizes)))
    quotas = divide_in_proportion(np.array(sizes), count)
    assert quotas.sum() == count and (quotas <= sizes).all()
    assert (abs(quotas - np.array(sizes) * count / sum(sizes)) < 1).all()


@pytest.mark.parametrize("by", ["similarity", "uncertainty_text"])
def test_the_best_of_those_that_meet_the_other_rules_are_kept(audit: Audit, by: str) -> None:
    kept = audit.keep(min_similarity=0.2, where="kind = 'image'", count=500, by=by)
    rows = read_rows(audit, "similarity >= 0.2::FLOAT AND kind = 'image'")
    rows.sort(key=lambda row: row[by], reverse=by == "similarity")
    assert kept.count == 500
    assert np.sort(kept.column(by).to_numpy()).tolist() == sorted(row[by] for row in rows[:500])
    assert audit.keep(where="kind = 'image'", share="10%").count == round(0.1 * len(read_rows(audit, "kind = 'image'")))


@pytest.mark.parametrize("column", ["topic", "language", "words"])
def test_no_cell_gives_more_than_the_cap(audit: Audit, column: str) -> None:
    rows = read_rows(audit, "p_mismatch <= 0.5")
    count = len(rows) // 3
    if column == "topic":
        rows = sorted(rows, key=lambda row: -row["similarity"])[: math.ceil(CANDIDATES * count)]
    sizes = count_cells(rows, column)
    kept = audit.keep(max_p_mismatch=0.5, balance=column, count=count, by="similarity")
    cap, extra = find_cap(np.array([*sizes.values()]), count)
    chosen = kept.to_arrow().to_pylist()
    kept_sizes = count_cells(chosen, column)
    assert len(chosen) == kept.count == count
    assert all(min(size, cap) <= kept_sizes[cell] <= min(size, cap + 1) for cell, size in sizes.items())
    assert sum(kept_sizes[cell] == cap + 1 for cell in sizes) == extra
    by_cell = defaultdict(list)
    for row in rows:
        by_cell[row[column]].append(row["similarity"])
    best = {cell: sorted(values, reverse=True)[: kept_sizes[cell]] for cell, values in by_cell.items()}
    for cell in sizes:
        assert sorted((row["similarity"] for row in chosen if row[column] == cell), reverse=True) == best[cell]


@pytest.mark.parametrize("by", [None, "similarity", "uncertainty_text"])
def test_a_tenth_of_the_rank_by_the_target_is_added(audit: Audit, by: str | None) -> None:
    rows = read_rows(audit, "p_mismatch <= 0.5 AND duration IS NOT NULL")
    score, target = (np.array([row[name] for row in rows]) for name in (by or "similarity_normalised", "duration"))
    score = -score if by == "uncertainty_text" else score
    ranks = [np.searchsorted(np.sort(values), values) / (len(rows) - 1) for values in (score, target)]
    value = ranks[0] + TARGET_WEIGHT * ranks[1]
    kept = audit.keep(max_p_mismatch=0.5, where="duration IS NOT NULL", count=100, by=by, towards="duration")
    best = {(rows[row]["key"], rows[row]["caption_index"]) for row in np.argsort(-value)[:100]}
    chosen = kept.to_arrow(["key", "caption_index"]).to_pylist()
    assert len(best ^ {(row["key"], row["caption_index"]) for row in chosen}) <= 2  # ties at the last place
    balanced = audit.keep(towards="duration", balance="topic", count=50, per_medium="mean", by=by)
    assert len(balanced.keys.unique()) == 50


def test_the_choice_is_the_same_every_time(folder: Path, audit: Audit) -> None:
    rules: dict[str, Any] = {"balance": "topic", "share": 0.25, "by": "similarity"}
    with Audit(folder) as other:
        assert sorted(other.keep(**rules).uids.to_pylist()) == sorted(audit.keep(**rules).uids.to_pylist())


def test_effects_and_reasons_count_only_what_the_choice_removes(audit: Audit) -> None:
    kept = audit.keep(max_p_mismatch=0.5, balance="topic", count=1000)
    [limit, balance] = kept.effects().rules
    assert (limit.rule, balance.rule) == ("max_p_mismatch", "balance")
    assert balance.removed == balance.removed_only_by_it == limit.kept - 1000
    reasons = audit.database.rows(
        f"SELECT {kept.reasons} AS reason, count(*) AS n FROM {kept.database.stored_table(kept.condition)} "
        "WHERE status = 'ok' GROUP BY reason"
    )
    assert {row["reason"]: row["n"] for row in reasons} == {
        "": 1000, "max_p_mismatch": limit.removed, "balance": balance.removed,
    }  # fmt: skip


def test_rows_without_a_value_come_last(audit: Audit) -> None:
    rows = read_rows(audit)
    videos = sum(row["duration"] is not None for row in rows)
    assert 0 < videos < len(rows)
    kept = audit.keep(count=videos + 10, by="duration").to_arrow(["duration"])["duration"].to_pylist()
    assert sum(value is None for value in kept) == 10
    with pytest.raises(RuleError, match=f"only {videos:,} pairs"):
        audit.keep(count=videos + 10, by="duration", unscored="drop").count  # noqa: B018


@pytest.mark.parametrize("rule", ["any", "all", "mean", "worst"])
def test_media_are_chosen_whole(tmp_path: Path, rule: str) -> None:
    with Audit(write_corpus_audit(tmp_path, captions=5)[0]) as audit:
        rows = read_rows(audit)
        values = defaultdict(list)
        for row in rows:
            values[row["key"]].append(row["similarity"])
        choose: Any = {"any": max, "all": min, "mean": np.mean, "worst": min}[rule]
        best = sorted(values, key=lambda key: -choose(values[key]))[:7]
        kept = audit.keep(count=7, by="similarity", per_medium=rule)
        assert set(kept.keys.to_pylist()) == set(best)
        assert kept.count == sum(len(values[key]) for key in best)
        assert len(audit.keep(count=7, balance="kind", per_medium=rule).keys.unique()) == 7


def test_the_kept_samples_can_be_read_while_training(tmp_path: Path) -> None:
    with Audit(write_corpus_audit(tmp_path)[0]) as audit:
        kept = audit.keep(balance="kind", count=20, by="similarity", where="length(caption || key) > 0")
        assert sorted(sample["__key__"] for sample in kept.webdataset()) == sorted(kept.keys.to_pylist())


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"count": 5000}, r"only \d,\d+ pairs meet the other rules, and 5,000 are to be kept"),
        ({"count": 10, "share": 0.1}, "give one of them"),
        ({"balance": "topic"}, "needs the number or share to keep"),
        ({"diverse": True}, "needs the number or share to keep"),
        ({"towards": "similarity"}, "towards needs the number or share to keep"),
        ({"towards": "similarity", "diverse": True, "count": 9}, "leave out towards"),
        ({"count": 0}, "whole number"),
        ({"share": "0%"}, "keeps nothing"),
        ({"by": "similarity"}, "must be used together"),
        ({"balance": "topic:1", "count": 10}, "from 2 to 10,000 topics"),
    ],
)
def test_wrong_choices_are_one_line(audit: Audit, rules: dict[str, Any], message: str) -> None:
    with pytest.raises(RuleError, match=message) as error:
        audit.keep(**rules).count  # noqa: B018
    assert "\n" not in str(error.value)


def test_unknown_cells_and_too_many_cells_are_refused(audit: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(QueryError, match=r"balance: .*topics.*topic"):
        audit.keep(balance="topics", count=10)
    monkeypatch.setattr("auditor.keep.ranked_rows.MOST_CELLS", 100)
    with pytest.raises(RuleError, match="key has more than 100 values"):
        audit.keep(balance="key", count=10)


def test_the_command_line_says_the_same() -> None:
    rules = Rules.of(balance="topic:50", count=100, by="similarity", diverse=True)
    assert rules.command_line() == [
        *("--by", "similarity", "--keep-count", "100", "--balance", "topic:50", "--diverse")
    ]  # fmt: skip
    assert Rules.of(share="30%").command_line() == ["--keep-share", "30%"]

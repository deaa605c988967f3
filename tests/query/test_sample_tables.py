"""Queries on columns in memory return the same results as queries on the files."""

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor.keep.subset_drift import measure_subset_drift
from auditor.python_api import Audit, Limits, QueryError
from auditor.query.database import AuditDatabase
from auditor.query.row_queries import count_matching_rows
from auditor.query.rules import Rules
from auditor.query.sample_tables import LAST_READ, NUMBERS, REMEMBERED, MemoryColumns
from auditor.query.summary import summarize_audit
from auditor.report.findings import find_findings
from auditor.schema import RULES as LIMITED
from tests.support.synthetic import write_audit

RULES = Rules.of(max_p_mismatch=0.3, min_similarity=0.2, keep_top="40%", by="similarity")
CONDITIONS = [
    "similarity < 0.2",
    "kind = 'video' AND status = 'ok'",
    "kind = 'no such kind'",
    "status <> 'ok'",
    "mismatch",
    "topic = 3 AND width > 300",
    "contains(lower(caption), 'dog')",
    "key LIKE '%7' AND p_mismatch > 0.1",
    "length(caption) > 60",
    "review IS NULL",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_audit(tmp_path_factory.mktemp("in_memory") / "audit", 5000, 500)


@pytest.fixture(scope="module")
def stored(folder: Path) -> Audit:
    return Audit(folder)


@pytest.fixture(scope="module")
def held(folder: Path) -> Audit:
    return Audit(folder).load_into_memory()


@pytest.mark.parametrize("where", CONDITIONS)
def test_counts_and_pages_are_those_of_the_files(stored: Audit, held: Audit, where: str) -> None:
    assert held.count(where) == stored.count(where)
    for order, descending, offset in ((None, False, 0), ("p_mismatch", True, 3), ("key", False, 40)):
        asked = (where, order, descending, 10, offset)
        assert held.page(*asked).equals(stored.page(*asked))


def test_distributions_and_effects_are_those_of_the_files(stored: Audit, held: Audit) -> None:
    for where in CONDITIONS:
        assert (
            held.histogram("uncertainty_text", where).counts == stored.histogram("uncertainty_text", where).counts
        ).all()
    drawn = [audit.density("similarity", "matches_text").counts for audit in (held, stored)]
    assert (drawn[0] == drawn[1]).all()
    for found, expected in zip(held.rule_effects(RULES).rules, stored.rule_effects(RULES).rules, strict=True):
        assert astuple(found) == pytest.approx(astuple(expected))
    assert held.nearest_cut(RULES, "min_similarity")[0].equals(stored.nearest_cut(RULES, "min_similarity")[0])
    changed = [measure_subset_drift(audit.database, RULES) for audit in (held, stored)]
    assert changed[0].measures[0].kept == pytest.approx(changed[1].measures[0].kept)
    assert {t.topic: t.kept for t in changed[0].topics} == {t.topic: t.kept for t in changed[1].topics}


def test_only_what_needs_them_asks_the_files(held: Audit) -> None:
    assert held.database.table("similarity < 0.2", '"p_mismatch"') == "in_memory AS samples"
    assert held.database.table("mismatch AND kind = 'image'") == "in_memory AS samples"
    assert held.database.table("contains(lower(caption), 'dog')") == "in_memory AS samples"
    assert held.database.table("CASE WHEN mismatch THEN 1 END") == "in_memory AS samples"
    for wide in ('samples."end" > 3', "media_path = 'x'", "UID = 'x'", "COLUMNS(*) IS NULL", "upper(\"key\") = 'A'"):
        assert held.database.table(wide) == "measured AS samples"
    assert held.database.table("review = 'bad'") == "reviewed AS samples"


@pytest.mark.parametrize("inside", ["file = 0", "file_row_number = 1", "uid_order > 0"])
def test_its_own_columns_are_nobodys(held: Audit, inside: str) -> None:
    with pytest.raises(QueryError, match=inside.split()[0]):
        held.count(inside)


def test_columns_of_others_are_asked_of_the_files(tmp_path: Path) -> None:
    folder = write_audit(tmp_path / "audit", 100)
    file = folder / "samples" / "00000.parquet"
    table = pq.read_table(file)
    for column in ("CLIP_score", "odd name"):
        table = table.append_column(column, pa.array(range(100)))
    pq.write_table(table, file)
    held = Audit(folder).load_into_memory()
    assert held.database.memory
    assert held.count("CLIP_score < 10") == held.count("clip_SCORE < 10") == 10
    assert held.count('"odd name" < 20 AND samples.width > 0') == 20


def test_columns_are_read_later_once_nothing_is_asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("auditor.query.database.QUIET_SECONDS", 0.3)
    database = AuditDatabase(folder).load_into_memory(in_background=True)
    assert database.memory is None and count_matching_rows(database, "width > 300") == Audit(folder).count(
        "width > 300"
    )
    deadline = time.monotonic() + 60
    while database.memory is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert database.memory is not None and count_matching_rows(database, "width > 300") == Audit(folder).count(
        "width > 300"
    )


def test_an_audit_that_is_closed_is_not_read_later(folder: Path) -> None:
    database = AuditDatabase(folder).load_into_memory(in_background=True)
    database.close()
    assert not database.sandbox.wait_until_quiet(0.0)
    (thread,) = (one for one in threading.enumerate() if one.name == "load" and one.is_alive())
    thread.join(10)
    assert not thread.is_alive() and database.memory is None


def test_ten_threads_search_at_once(folder: Path) -> None:
    held, stored = Audit(folder).load_into_memory(), Audit(folder)
    asked = [f"key LIKE '%{number % 30}'" for number in range(90)]
    with ThreadPoolExecutor(10) as pool:
        found = list(pool.map(held.count, asked))
    expected = {condition: stored.count(condition) for condition in set(asked)}
    assert found == [expected[condition] for condition in asked]


def test_a_table_is_dropped_only_once_no_thread_can_still_read_it(folder: Path) -> None:
    database = Audit(folder).load_into_memory().database
    memory = database.memory
    assert memory is not None

    def count_tables() -> int:
        return int(database.sandbox.value("SELECT count(*) FROM duckdb_tables() WHERE table_name LIKE 'places%'"))

    with ThreadPoolExecutor(1) as pool:
        table = pool.submit(memory.places, "width > 300").result(60)
        for width in range(30):
            memory.places(f"width > {width}")
        assert database.sandbox.value(f"SELECT count(*) FROM {table}") == Audit(folder).count("width > 300")
    memory.places("width > 30")
    assert count_tables() <= 2 * REMEMBERED + LAST_READ


def test_captions_that_do_not_fit_stay_in_the_files(folder: Path, stored: Audit) -> None:
    audit = Audit(folder)
    inside = audit.database
    given = inside.view(with_places=True), inside.thresholds, inside.columns
    inside.memory = MemoryColumns(inside.sandbox, *given, texts=False)
    for where in CONDITIONS:
        assert audit.count(where) == stored.count(where)
    assert inside.table("caption = 'x'") == "measured AS samples"
    lengths = [measure_subset_drift(each.database, RULES).measures[0].kept for each in (audit, stored)]
    assert lengths[0] == pytest.approx(lengths[1])


def test_what_does_not_fit_is_asked_of_the_files(folder: Path) -> None:
    small = Audit(folder, limits=Limits(memory="2MB")).load_into_memory()
    assert small.database.memory is None and small.count() == 5000


@pytest.mark.parametrize("hold", [False, True])
@pytest.mark.parametrize("target", ["kept.npy", "kept.parquet", "kept.txt"])
def test_the_best_share_can_be_written(folder: Path, tmp_path: Path, target: str, hold: bool) -> None:
    audit = Audit(folder).load_into_memory() if hold else Audit(folder)
    kept = audit.keep(keep_top="30%", by="similarity", where="review IS NULL")
    assert kept.write(tmp_path / target).rows == kept.count == round(0.3 * audit.count("status = 'ok'"))


def test_rows_can_be_sorted_by_their_marks(stored: Audit, held: Audit) -> None:
    assert held.page(order_by="review", limit=5).equals(stored.page(order_by="review", limit=5))


def test_marks_of_another_process_are_seen(tmp_path: Path) -> None:
    folder = write_audit(tmp_path / "audit", 100)
    here, elsewhere = Audit(folder).load_into_memory(), Audit(folder)
    elsewhere.mark(here.worst(n=1)["uid"][0].as_py(), "bad")
    assert here.count("review = 'bad'") == 0
    here.database.reload_changed_reviews()
    assert here.count("review = 'bad'") == 1


def test_two_reviewers_mark_at_once(tmp_path: Path) -> None:
    audit = Audit(write_audit(tmp_path / "audit", 100))
    uids = audit.page(limit=40)["uid"].to_pylist()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda uid: audit.mark(uid, "good"), uids))
    assert audit.count("review = 'good'") == 40


def test_the_rows_of_a_search_are_remembered_and_forgotten(folder: Path) -> None:
    held = Audit(folder).load_into_memory()
    assert held.database.memory
    first = held.database.memory.places("key LIKE '%x'")
    assert held.database.memory.places("key LIKE '%x'") == first
    for number in range(20):
        held.count(f"key LIKE '%{number}'")
    tables = held.database.rows("SELECT table_name FROM duckdb_tables() WHERE table_name LIKE 'places_%'")
    assert len(tables) == 12 and first not in {row["table_name"] for row in tables}
    assert held.database.memory.places("key LIKE '%x'") != first


def test_marks_count_at_once(tmp_path: Path) -> None:
    held = Audit(write_audit(tmp_path / "audit", 500)).load_into_memory()
    row = held.worst(n=1).to_pylist()[0]
    assert held.precision().judged == 0 and held.count("review = 'bad'") == 0
    held.mark(row["uid"], "bad", caption_index=row["caption_index"])
    assert held.precision().judged == 1 and held.count("review = 'bad'") == 1


def test_an_audit_that_is_not_finished_is_not_held(tmp_path: Path) -> None:
    folder = write_audit(tmp_path / "audit", 200)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "state": "scoring"}))
    held = Audit(folder).load_into_memory()
    assert held.database.memory is None and held.count("similarity < 9") > 0


def test_a_row_is_found_by_its_uid(stored: Audit, held: Audit) -> None:
    for row in held.page(order_by="similarity", limit=5).to_pylist():
        assert held.row(row["uid"]) == stored.row(row["uid"]) == row
        assert held.row(row["uid"], 0) == row and held.row(row["uid"], 7) is None
    assert held.row("f" * 32) is None and held.row("it's no uid") is None


def test_every_column_that_a_slider_limits_is_in_memory() -> None:
    """A move of one asks several questions, each of which would read all files."""
    assert {column.name for column in LIMITED.values()} <= {*NUMBERS}


def change_first_file(folder: Path) -> None:
    file = folder / "samples" / "00000.parquet"
    table = pq.read_table(file)
    pq.write_table(
        table.set_column(table.column_names.index("similarity"), "similarity", pa.nulls(len(table), pa.float32())), file
    )


def test_rows_of_costly_queries_are_stored_until_a_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read from the state folder is what the files say, for the same thresholds and files alone."""
    monkeypatch.setattr("auditor.query.sample_tables.LEAST_SECONDS", 0.0)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = write_audit(tmp_path / "audit", 600, 200)
    sql = "SELECT mismatch, count(*) AS n, avg(similarity) AS mean FROM measured GROUP BY mismatch ORDER BY mismatch"

    def fetch_rows(**options: Any) -> tuple[list[dict[str, Any]], int]:
        """The rows, as computed without a store, and the number of queries of a second database."""
        with AuditDatabase(folder, **options) as naive, AuditDatabase(folder, **options) as database:
            count_queries = Mock(side_effect=naive.rows)
            monkeypatch.setattr(database, "rows", count_queries)
            rows = database.stored_rows("test", sql)
            assert rows == naive.rows(sql)
            return rows, count_queries.call_count

    first, count = fetch_rows()
    assert (count, fetch_rows()) == (1, (first, 0))
    assert fetch_rows(thresholds={"mismatch": 0.9})[1] == 1
    assert fetch_rows() == (first, 1)
    change_first_file(folder)
    changed, count = fetch_rows()
    assert changed != first and (count, fetch_rows()) == (1, (changed, 0))
    for damaged in ("[]", "{", '{"version": 1, "rows": []}'):
        for file in (tmp_path / "state").rglob("*.test.json"):
            file.write_text(damaged)
        assert fetch_rows() == (changed, 1)
    with AuditDatabase(folder) as database:
        answers = [summarize_audit(database).to_dict(), find_findings(database).to_dict()]
    with AuditDatabase(folder) as database:
        monkeypatch.setattr(database.sandbox, "rows", refuse_costly_queries(database.sandbox.rows))
        assert [summarize_audit(database).to_dict(), find_findings(database).to_dict()] == answers


def refuse_costly_queries(rows: Callable[[str], Any]) -> Callable[[str], Any]:
    def answer(sql: str) -> Any:
        assert "rule_mask" not in sql and "GROUP BY status, kind" not in sql
        return rows(sql)

    return answer

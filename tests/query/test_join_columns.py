"""Joined columns hold the values of the file at the rows of the audit and behave like other columns."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from auditor.cli import run_command_line
from auditor.errors import AuditorError
from auditor.python_api import Audit
from auditor.query.database import AuditDatabase
from auditor.query.join_columns import JoinResult, join_columns
from tests.support.synthetic import write_audit


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    write_audit(tmp_path / "audit", 900, 250)
    return tmp_path / "audit"


def uids(audit: Path) -> list[str]:
    return [str(uid) for uid in pq.read_table(audit / "samples", columns=["uid"])["uid"].to_pylist()]


def joined(audit: Path, table: pa.Table | Path, on: str = "uid", **options: Any) -> JoinResult:
    path = audit.parent / "scores.parquet"
    if isinstance(table, Path):
        path = table
    else:
        pq.write_table(table, path)
    with AuditDatabase(audit) as database:
        return join_columns(database, str(path), on, **options)


def scores(found: list[str], seed: int = 0) -> pa.Table:
    random = np.random.default_rng(seed)
    order = random.permutation(len(found))
    return pa.table(
        {
            "uid": [found[i].upper() for i in order],
            "score": random.random(len(found)),
            "tongue": [("en", "de")[int(i) % 2] for i in order],
            "boxes": [[1.0]] * len(found),
        }
    )


def test_every_row_has_the_value_of_its_uid(audit: Path) -> None:
    table = scores(uids(audit)[:800])
    done = joined(audit, table, prefix="a_")
    assert (done.columns, done.rows, done.matched, done.missing) == (("a_score", "a_tongue"), 900, 800, 100)
    assert done.left_out == ("boxes",)
    expected = {row["uid"].lower(): row for row in table.to_pylist()}
    with Audit(audit) as opened:
        for row in opened.sql("SELECT uid, a_score, a_tongue FROM samples").to_pylist():
            known = expected.get(row["uid"], {"score": None, "tongue": None})
            assert (row["a_score"], row["a_tongue"]) == (known["score"], known["tongue"])


def test_joined_columns_are_columns_like_any_other(audit: Path, tmp_path: Path) -> None:
    table = scores(uids(audit))
    joined(audit, table)
    values = {row["uid"].lower(): row["score"] for row in table.to_pylist()}
    with Audit(audit) as opened:
        usable = set(opened.sql("SELECT uid FROM samples WHERE status = 'ok'")["uid"].to_pylist())
        ok = [uid for uid in uids(audit) if uid in usable]
        assert opened.worst("score", 5)["score"].to_pylist() == sorted(values.values())[:5]
        assert opened.count("score > 0.5 AND tongue = 'en'") > 100
        assert len(opened.keep(min={"score": 0.25})) == sum(values[uid] >= 0.25 for uid in ok)
        assert len(opened.keep(max={"score": 0.25}, where="tongue = 'de'")) < len(opened.keep(max={"score": 0.25}))
        assert opened.compare(opened).correlation["score"] == pytest.approx(1.0)
        assert len(opened.keep(keep_top="10%", by="score")) == round(len(ok) / 10)
        assert sum(opened.histogram("score").counts) > 0
        page = opened.page("score > 0.9", "score", limit=3).to_pylist()
        assert [row["score"] for row in page] == sorted(value for value in values.values() if value > 0.9)[:3]
        assert opened.row(page[0]["uid"])["score"] == page[0]["score"]  # type: ignore[index]
        opened.load_into_memory()
        assert opened.database.in_memory("score > 0.5") and not opened.database.in_memory("tongue = 'en'")
        assert [row["score"] for row in opened.page("score > 0.9", "score", limit=3).to_pylist()] == [
            row["score"] for row in page
        ]
    assert run_command_line(["filter", str(audit), "--min", "score=0.5", "--max", "score=0.9", "--dry-run"]) == 0
    assert run_command_line(["filter", str(audit), "--min", "score=0.5", "--out", str(tmp_path / "kept.parquet")]) == 0
    assert min(pq.read_table(tmp_path / "kept.parquet")["score"].to_pylist()) >= 0.5


def test_a_csv_on_keys(audit: Path, tmp_path: Path) -> None:
    keys = pq.read_table(audit / "samples", columns=["key"])["key"].to_pylist()
    table = pa.table({"key": keys[:10], "mark": list(range(10))})
    pyarrow.csv.write_csv(table, tmp_path / "marks.csv")
    assert joined(audit, tmp_path / "marks.csv", "key").matched == 10


@pytest.mark.parametrize(
    ("table", "on", "options", "message"),
    [
        (pa.table({"id": ["a"], "score": [1.0]}), "uid", {}, "has no column 'uid'; it has id, score"),
        (pa.table({"uid": ["a"]}), "uid", {}, "no plain column beside 'uid'"),
        (pa.table({"uid": ["a", "a"], "score": [1.0, 2.0]}), "uid", {}, "1 rows of .* repeat a uid"),
        (pa.table({"uid": ["a"], "similarity": [1.0]}), "uid", {}, "already has a column 'similarity'.*--prefix"),
        (pa.table({"uid": ["a"], "score": [1.0]}), "caption", {}, "join on uid or key"),
    ],
)
def test_what_cannot_be_joined_is_one_line_and_leaves_nothing(
    audit: Path, table: pa.Table, on: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(AuditorError, match=message):
        joined(audit, table, on, **options)
    assert not (audit / "columns").exists()


def test_which_of_several_rows_counts(audit: Path) -> None:
    uid = uids(audit)[0]
    table = pa.table({"uid": [uid, uid], "score": [1.0, 2.0]})
    joined(audit, table, which="last")
    with Audit(audit) as opened:
        assert opened.sql(f"SELECT score FROM samples WHERE uid = '{uid}'")["score"].to_pylist() == [2.0]
    with pytest.raises(AuditorError, match="--force replaces"):
        joined(audit, table, which="first")
    joined(audit, table, which="first", force=True)
    with Audit(audit) as opened:
        assert opened.sql(f"SELECT score FROM samples WHERE uid = '{uid}'")["score"].to_pylist() == [1.0]


def test_a_join_that_fails_half_way_is_not_seen(audit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from auditor.query import join_columns as module

    written = []

    def failing(folder: Any, name: str, shard: str, table: pa.Table) -> None:
        written.append(shard)
        if len(written) == 2:
            raise OSError("the disk is full")

    monkeypatch.setattr(module, "write_columns", failing)
    with pytest.raises(OSError, match="disk"):
        joined(audit, scores(uids(audit)))
    with Audit(audit) as opened:
        assert "score" not in opened.columns


@pytest.mark.parametrize(
    "name", ["", "  ", "a\0b", "line\nbreak", "n" * 300, "file", "FILE_ROW_NUMBER", "rowid", "position"]
)
def test_names_that_no_query_could_use_are_refused(audit: Path, name: str) -> None:
    table = pa.table([pa.array(uids(audit)[:5]), pa.array([1.0] * 5)], names=["uid", name])
    with pytest.raises(AuditorError, match="--prefix"):
        joined(audit, table)
    assert not (audit / "columns").exists()
    if name in ("file", "rowid"):
        assert joined(audit, table, prefix="my_").columns == (f"my_{name}",)


def test_two_columns_of_one_name_in_other_case_are_refused(audit: Path) -> None:
    table = pa.table({"uid": uids(audit)[:2], "score": [1, 2], "Score": [3, 4]})
    with pytest.raises(AuditorError, match="already has a column 'Score'"):
        joined(audit, table)


def test_odd_names_are_names(audit: Path) -> None:
    names = ['a"b', "x; DROP TABLE samples", "select", "\u202eback", "=1+1"]
    known = uids(audit)  # in no particular order
    table = pa.table([pa.array(known), *(pa.array(range(900)) for _ in names)], names=["uid", *names])
    joined(audit, table)
    with Audit(audit) as opened:
        found = opened.sql("SELECT * FROM samples").to_pydict()
    place = {uid: number for number, uid in enumerate(known)}
    assert all(found[name] == [place[uid] for uid in found["uid"]] for name in names)

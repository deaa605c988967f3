"""Marks of reviewers are stored, counted once per person, and never lost to another writer."""

import json
import multiprocessing
import os
from dataclasses import asdict
from pathlib import Path

import pytest

from auditor.audit_folder.folder import Folder
from auditor.keep.uncertainty_cuts import wilson_interval
from auditor.python_api import Audit
from auditor.query.reviews import (
    VERDICTS_SQL,
    Review,
    ReviewError,
    append_reviews,
    build_reviews_sql,
    read_reviews,
    select_latest_reviews,
)
from auditor.query.sandbox import Sandbox
from tests.support.synthetic import write_audit


@pytest.fixture
def audit(tmp_path: Path) -> Audit:
    return Audit(write_audit(tmp_path / "audit", 400, 200))


def flagged(audit: Audit, n: int) -> list[str]:
    uids: list[str] = audit.page("mismatch", limit=n)["uid"].to_pylist()
    assert len(uids) == n
    return uids


def test_marks_are_seen_in_sql(audit: Audit) -> None:
    uid = flagged(audit, 1)[0]
    assert audit.count("review IS NOT NULL") == 0
    audit.mark(uid, "bad", reviewer="ann", note='she said "no"')
    audit.mark(uid, "good", reviewer="ann")
    assert audit.sql("SELECT uid, mark, reviewer FROM reviews").to_pylist() == [
        {"uid": uid, "mark": "good", "reviewer": "ann"}
    ]
    row = audit.row(uid)
    assert row is not None and row["review"] == "good"
    assert audit.page("review = 'good'")["uid"].to_pylist() == [uid]
    assert audit.worst("p_mismatch", 1, "review = 'good'")["review"].to_pylist() == ["good"]
    assert Audit(audit.path).summary().marks == {"good": 1}


def find_verdicts(marks: list[Review]) -> list[tuple[object, ...]]:
    sandbox = Sandbox([])
    sandbox.define(f"CREATE TABLE reviews AS {build_reviews_sql(marks)}")
    return [tuple(row.values()) for row in sandbox.rows(f"{VERDICTS_SQL} ORDER BY uid")]


def test_the_latest_mark_of_each_reviewer_counts() -> None:
    def mark(reviewer: str, mark_: str, time: int, uid: str = "a") -> Review:
        return Review(uid, 0, reviewer, mark_, "", f"2026-01-01T00:00:{time:02d}")  # type: ignore[arg-type]

    marks = [mark("ann", "bad", 1), mark("bob", "good", 2), mark("ann", "good", 3)]
    assert len(select_latest_reviews(marks)) == 2
    assert find_verdicts(marks) == [("a", 0, "good")]
    assert find_verdicts([mark("ann", "bad", 1), mark("bob", "good", 2)]) == [("a", 0, "unsure")]
    more = [mark("eve", "bad", 4), mark("dan", "bad", 5), mark("joe", "bad", 6)]
    assert find_verdicts([*marks, *more]) == [("a", 0, "bad")]
    assert find_verdicts([]) == [] and find_verdicts([mark("ann", "withdrawn", 1)]) == []
    assert find_verdicts([mark("ann", "good", 1), mark("ann", "bad", 1, "b")]) == [("a", 0, "good"), ("b", 0, "bad")]


def test_captions_of_one_medium_are_marked_apart(audit: Audit) -> None:
    uid = flagged(audit, 1)[0]
    audit.mark(uid, "bad", caption_index=3, reviewer="ann")
    assert audit.count("review IS NOT NULL") == 0  # the row has caption 0


def test_hostile_text_is_only_text(audit: Audit) -> None:
    uid = flagged(audit, 1)[0]
    audit.mark(uid, "unsure", reviewer="'); DROP TABLE reviews; --", note="line\nbreak \N{SNOWMAN} '\"")
    assert audit.sql("SELECT reviewer, note FROM reviews").to_pylist() == [
        {"reviewer": "'); DROP TABLE reviews; --", "note": "line\nbreak \N{SNOWMAN} '\""}
    ]


def test_only_three_marks(audit: Audit) -> None:
    with pytest.raises(ReviewError, match="good, bad, unsure"):
        audit.mark("0" * 32, "terrible")


def test_damaged_lines_are_passed_over(audit: Audit) -> None:
    uid = flagged(audit, 1)[0]
    audit.mark(uid, "bad", reviewer="ann")
    with (Path(audit.path) / "reviews.jsonl").open("ab") as file:
        file.write(b'{"uid": "torn\n[]\n\xff\xfe\n' + json.dumps({"uid": uid, "mark": "x"}).encode() + b"\n")
    audit.mark(uid, "good", reviewer="bob")
    assert len(read_reviews(Folder(audit.path))) == 2
    assert Audit(audit.path).count("review = 'unsure'") == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"time": 17},
        {"uid": ["a"]},
        {"reviewer": None},
        {"note": {}},
        {"mark": ["good"]},
        {"caption_index": True},
        {"caption_index": 2**40},
        {"note": "\ud800"},
    ],
)
def test_lines_with_values_of_other_types_are_passed_over(audit: Audit, wrong: dict[str, object]) -> None:
    review = audit.mark(flagged(audit, 1)[0], "bad", reviewer="ann")
    with (Path(audit.path) / "reviews.jsonl").open("a") as file:
        file.write(json.dumps({**asdict(review), **wrong}) + "\n" + "[" * 100_000 + "\n")
    assert read_reviews(Folder(audit.path)) == [review]
    assert Audit(audit.path).count("review = 'bad'") == 1


def test_a_mark_after_a_torn_line_is_kept(audit: Audit) -> None:
    uid = flagged(audit, 1)[0]
    audit.mark(uid, "bad", reviewer="ann")
    with (Path(audit.path) / "reviews.jsonl").open("ab") as file:
        file.write(b'{"uid": "torn')
    audit.mark(uid, "good", reviewer="bob")
    assert [review.reviewer for review in read_reviews(Folder(audit.path))] == ["ann", "bob"]


def test_a_mark_that_is_written_in_part_is_told(audit: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    uid, write = flagged(audit, 1)[0], os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda descriptor, line: write(descriptor, line[:9]))
        with pytest.raises(ReviewError, match="only 9 of"):
            audit.mark(uid, "bad", reviewer="ann")
    audit.mark(uid, "good", reviewer="ann")
    assert [review.mark for review in read_reviews(Folder(audit.path))] == ["good"]


def write_many(path: str, reviewer: str, count: int) -> None:
    for number in range(count):
        time = f"2026-01-01T00:00:00.{number:06d}"
        append_reviews(Folder(path), [Review(f"{number:032x}", 0, reviewer, "good", "n" * 500, time)])


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=write_many, args=(str(tmp_path), name, 300)) for name in ("ann", "bob")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert all(writer.exitcode == 0 for writer in writers)
    lines = [line for line in (tmp_path / "reviews.jsonl").read_bytes().splitlines() if line]
    assert len(lines) == 600 == len(read_reviews(Folder(tmp_path)))


@pytest.mark.parametrize(("successes", "trials"), [(0, 1), (0, 20), (7, 9), (20, 20), (450, 1000)])
def test_wilson_is_scipys(successes: int, trials: int) -> None:
    from scipy.stats import binomtest  # not imported by the processes that write

    expected = binomtest(successes, trials).proportion_ci(method="wilson")
    assert wilson_interval(successes, trials) == pytest.approx((expected.low, expected.high), abs=1e-6)


def test_measured_precision_beside_the_promise(audit: Audit) -> None:
    assert audit.precision().measured is None
    uids = flagged(audit, 10)
    for number, uid in enumerate(uids):
        audit.mark(uid, "good" if number < 2 else "unsure" if number == 9 else "bad", reviewer="ann")
    other = audit.page("NOT mismatch AND status = 'ok'", limit=1)["uid"][0].as_py()
    audit.mark(other, "bad", reviewer="ann")
    found = audit.precision()
    assert (found.judged, found.bad) == (9, 7)
    assert found.measured == pytest.approx(7 / 9) and (found.low, found.high) == pytest.approx(wilson_interval(7, 9))
    expected = audit.sql("SELECT avg(p_mismatch) AS p FROM samples WHERE mismatch")["p"][0].as_py()
    assert found.expected == pytest.approx(expected)

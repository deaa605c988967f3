"""The narrow columns in memory answer as the files do."""

from dataclasses import astuple
from pathlib import Path

import pytest

from auditor.query import Audit
from auditor.rules import Rules
from auditor.shift import shifts
from tests.synthetic import write_audit

RULES = Rules(max_p_mismatch=0.3, min_similarity=0.2, keep_top="40%", by="similarity")
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
    return write_audit(tmp_path_factory.mktemp("resident") / "audit", 5000, 500)


@pytest.fixture(scope="module")
def stored(folder: Path) -> Audit:
    return Audit(folder)


@pytest.fixture(scope="module")
def held(folder: Path) -> Audit:
    return Audit(folder).hold()


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
    changed = [shifts(audit, RULES) for audit in (held, stored)]
    assert changed[0].measures[0].kept == pytest.approx(changed[1].measures[0].kept)
    assert {t.topic: t.kept for t in changed[0].topics} == {t.topic: t.kept for t in changed[1].topics}


def test_only_what_needs_them_asks_the_files(held: Audit) -> None:
    assert held.table("similarity < 0.2", '"p_mismatch"') == "narrow"
    assert held.table("mismatch AND kind = 'image'") == "narrow"
    for wide in ("caption = 'x'", "UID = 'x'", "COLUMNS(*) IS NULL", "upper(\"key\") = 'A'"):
        assert held.table(wide) == "measured"
    assert held.table("review = 'bad'") == "samples"


def test_the_rows_of_a_search_are_remembered_and_forgotten(folder: Path) -> None:
    held = Audit(folder).hold()
    assert held.resident
    first = held.resident.matching("caption LIKE 'A man%'")
    assert held.resident.matching("caption LIKE 'A man%'") == first
    for number in range(20):
        held.count(f"key LIKE '%{number}'")
    tables = held.database.rows("SELECT table_name FROM duckdb_tables() WHERE table_name LIKE 'places_%'")
    assert len(tables) == 8 and first not in {row["table_name"] for row in tables}
    assert held.resident.matching("caption LIKE 'A man%'") != first


def test_marks_count_at_once(tmp_path: Path) -> None:
    held = Audit(write_audit(tmp_path / "audit", 500)).hold()
    row = held.worst(n=1).to_pylist()[0]
    assert held.precision().judged == 0 and held.count("review = 'bad'") == 0
    held.mark(row["uid"], "bad", caption_index=row["caption_index"])
    assert held.precision().judged == 1 and held.count("review = 'bad'") == 1


def test_an_audit_that_is_not_scored_can_be_held(tmp_path: Path) -> None:
    folder = write_audit(tmp_path / "audit", 200)
    for file in (folder / "samples").iterdir():
        file.unlink()
    held = Audit(folder).hold()
    assert held.resident and held.count("similarity < 0.2") == 0 and len(held.page(order_by="similarity")) == 0

"""Selections of rows and the bounds of sliders, against plain computations over all rows."""

from typing import Any

import pytest

from auditor.python_api import Audit, QueryError
from auditor.schema import HEADLINES
from dashboard.row_selection import RowSelection, find_slider_bounds, list_round_steps
from tests.support.synthetic import write_audit


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    return Audit(write_audit(tmp_path_factory.mktemp("audit"), 3000, 1000))


@pytest.fixture(scope="module")
def rows(audit: Audit) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = audit.sql("SELECT * FROM samples").to_pylist()
    return found


def test_a_selection_is_what_it_says(audit: Audit, rows: list[dict[str, Any]]) -> None:
    chosen = RowSelection(
        facets={"kind": ("video",), "status": ("ok",), "flag": ("ambiguous_text",)},
        text="DOG",
        where="width > 300 OR height > 300",
        ranges={"similarity": (0.2, 0.35)},
    )
    wanted = [
        row
        for row in rows
        if row["kind"] == "video"
        and row["status"] == "ok"
        and row["ambiguous_text"]
        and "dog" in row["caption"].lower()
        and (row["width"] > 300 or row["height"] > 300)
        and 0.2 <= row["similarity"] <= 0.35
    ]
    assert wanted and audit.count(chosen.condition(audit.database)) == len(wanted)
    broken = RowSelection({"status": ("not ok",)}).condition(audit.database)
    assert audit.count(broken) == sum(row["status"] != "ok" for row in rows)
    assert RowSelection().condition(audit.database) is None


def test_text_of_a_selection_is_text(audit: Audit) -> None:
    assert audit.count(RowSelection(text="' OR TRUE --").condition(audit.database)) == 0
    assert audit.count(RowSelection(text="%").condition(audit.database)) == 0
    with pytest.raises(QueryError):
        RowSelection(where="TRUE) OR (TRUE").condition(audit.database)
    with pytest.raises(QueryError):
        RowSelection(where="uid IN (SELECT content FROM read_text('/etc/passwd'))").condition(audit.database)
    for facet in ("flag", "kind", "topic", "status"):
        assert audit.count(RowSelection({facet: ("' OR TRUE --", "²")}).condition(audit.database)) == 0
    assert RowSelection({"col-no such column": ("1",)}).condition(audit.database) is None


@pytest.mark.parametrize("column", HEADLINES)
def test_bounds_enclose_every_value(audit: Audit, rows: list[dict[str, Any]], column: str) -> None:
    values = [row[column] for row in rows if row[column] is not None]
    found = find_slider_bounds(audit.database, column)
    assert found.low <= min(values) and max(values) <= found.high
    assert found.step > 0 and (found.high - found.low) / found.step < 5000


def test_steps_reach_above_every_value(audit: Audit, rows: list[dict[str, Any]]) -> None:
    steps = list_round_steps(audit.database, "matches_text")
    assert steps[:5] == [1, 2, 3, 5, 7] and steps == sorted(set(steps))
    assert steps[-2] <= max(row["matches_text"] for row in rows if row["matches_text"] is not None) < steps[-1]

"""Histograms on a common range and typical values against NumPy; combined passes against single ones."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from auditor.python_api import Audit
from auditor.query import distributions
from auditor.query.database import AuditDatabase
from auditor.query.distributions import (
    cache_ranges,
    compute_density,
    compute_histogram,
    compute_histograms_and_densities,
    find_common_range,
    find_value_range,
)
from auditor.query.summary import summarize_audit
from auditor.schema import HEADLINES, RULES
from tests.support.synthetic import write_audit


@pytest.mark.parametrize("column", ["similarity", "p_mismatch", "matches_text"])
def test_both_are_counted_on_the_same_edges(tmp_path: Path, column: str) -> None:
    audits = [Audit(write_audit(tmp_path / str(rows), rows, 200, seed=rows)) for rows in (300, 700)]
    low, high = find_common_range([audit.database for audit in audits], column)
    values = [audit.sql(f"SELECT {column}::DOUBLE AS v FROM samples")["v"].to_numpy() for audit in audits]
    assert (low, high) == (min(map(np.nanmin, values)), max(map(np.nanmax, values)))
    for audit, known in zip(audits, values, strict=True):
        found = compute_histogram(audit.database, column, bins=20, bounds=(low, high))
        counts, edges = np.histogram(known[~np.isnan(known)], 20, (low, high))
        np.testing.assert_allclose(found.edges, edges)
        np.testing.assert_array_equal(found.counts, counts)
        assert found.missing == np.isnan(known).sum() > 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_audit(tmp_path_factory.mktemp("distributions") / "audit", 900, 200)


@pytest.fixture(params=[False, True], ids=["files", "memory"])
def database(folder: Path, request: pytest.FixtureRequest) -> Iterator[AuditDatabase]:
    with AuditDatabase(folder) as opened:
        yield opened.load_into_memory() if request.param else opened


def test_one_pass_counts_what_each_question_counts(database: AuditDatabase) -> None:
    columns = ("uncertainty_text", "matches_visual", "frame_spread")
    bars, cells = compute_histograms_and_densities(database, "similarity", columns, 30, 12)
    for column, counted, drawn in zip(columns, bars, cells, strict=True):
        alone, cell = (
            compute_histogram(database, column, bins=30),
            compute_density(database, "similarity", column, bins=12),
        )
        assert (counted.column, counted.missing) == (column, alone.missing) and alone.missing > 0
        np.testing.assert_array_equal(counted.counts, alone.counts)
        np.testing.assert_array_equal(counted.edges, alone.edges)
        assert (drawn.x, drawn.y) == ("similarity", column) and drawn.counts.sum() > 0
        for name in ("counts", "x_edges", "y_edges"):
            np.testing.assert_array_equal(getattr(drawn, name), getattr(cell, name))


def test_ranges_are_found_together_and_asked_once(
    database: AuditDatabase, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = [column.name for column in RULES.values()]
    with AuditDatabase(folder) as other:
        alone = {column: find_value_range(other, column) for column in columns}
    cache_ranges(database, columns)
    summarize_audit(database)  # finds those of the headlines on its way
    monkeypatch.setattr(distributions, "find_column_ranges", lambda *_: pytest.fail("asked once more"))
    assert {column: find_value_range(database, column) for column in columns} == alone
    assert alone["similarity"] != (0.0, 1.0) and set(HEADLINES) <= set(columns)


def test_typical_values_are_numpys(database: AuditDatabase) -> None:
    typical = summarize_audit(database).typical
    assert set(typical) == set(HEADLINES)
    for column, found in typical.items():
        rows = database.rows(f"SELECT {column} AS v FROM measured WHERE status = 'ok' AND {column} IS NOT NULL")
        expected = np.quantile(np.array([row["v"] for row in rows], np.float32), (0.05, 0.5, 0.95))
        np.testing.assert_allclose([found["p5"], found["median"], found["p95"]], expected, rtol=1e-6)

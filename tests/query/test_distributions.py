"""Histograms to be drawn over each other, against NumPy's."""

from pathlib import Path

import numpy as np
import pytest

from auditor.audit import Audit
from auditor.query.distributions import common_range, histogram
from tests.support.synthetic import write_audit


@pytest.mark.parametrize("column", ["similarity", "p_mismatch", "matches_text"])
def test_both_are_counted_on_the_same_edges(tmp_path: Path, column: str) -> None:
    audits = [Audit(write_audit(tmp_path / str(rows), rows, 200, seed=rows)) for rows in (300, 700)]
    low, high = common_range([audit.database for audit in audits], column)
    values = [audit.sql(f"SELECT {column}::DOUBLE AS v FROM samples")["v"].to_numpy() for audit in audits]
    assert (low, high) == (min(map(np.nanmin, values)), max(map(np.nanmax, values)))
    for audit, known in zip(audits, values, strict=True):
        found = histogram(audit.database, column, bins=20, between=(low, high))
        counts, edges = np.histogram(known[~np.isnan(known)], 20, (low, high))
        np.testing.assert_allclose(found.edges, edges)
        np.testing.assert_array_equal(found.counts, counts)
        assert found.missing == np.isnan(known).sum() > 0

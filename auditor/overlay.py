"""Histograms of several audits on the same edges, to be drawn over each other.

low, high = common_range([first, second], "similarity")
drawn = [histogram_between(audit, "similarity", low, high) for audit in (first, second)]
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from auditor.distributions import Histogram, bin_sql, numeric, value_range

if TYPE_CHECKING:
    from auditor.query import Audit


def common_range(audits: Sequence["Audit"], column: str) -> tuple[float, float]:
    """Smallest and largest value in any of them."""
    ranges = [value_range(audit, column) for audit in audits]
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def histogram_between(audit: "Audit", column: str, low: float, high: float, bins: int = 50) -> Histogram:
    """As Audit.histogram, over a range that is given; what lies beyond it is counted in the outermost bins."""
    number = bin_sql(numeric(audit, column), low, high, bins)
    found = audit.database.rows(f"SELECT {number} AS bin, count(*) AS n FROM {audit.table(number)} GROUP BY bin")
    counts = np.zeros(bins, np.int64)
    for row in found:
        if row["bin"] is not None:
            counts[row["bin"]] = row["n"]
    missing = sum(row["n"] for row in found if row["bin"] is None)
    return Histogram(column, np.linspace(low, high, bins + 1), counts, missing)

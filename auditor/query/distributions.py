"""Histograms, densities and percentiles of an audit's columns, counted by DuckDB in one pass each.

Ranges are found once per column and kept; percentiles come from all rows, or from a million where there are more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from auditor.query.sandbox import QueryError, literal
from auditor.schema import COLUMNS, MEASUREMENTS, STORED

if TYPE_CHECKING:
    from auditor.query.audit import Audit

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
REFERENCE_ROWS = 1_000_000


@dataclass(frozen=True)
class Histogram:
    column: str
    edges: Floats  # (bins + 1,)
    counts: Counts  # (bins,)
    missing: int  # rows without a value

    @property
    def total(self) -> int:
        return int(self.counts.sum())


@dataclass(frozen=True)
class Density:
    x: str
    y: str
    x_edges: Floats
    y_edges: Floats
    counts: Counts  # (bins of y, bins of x)

    def cell(self, column: int, row: int) -> str:
        """The condition that selects the rows of one cell, for a click into the picture."""
        x, y = self.x_edges[column : column + 2], self.y_edges[row : row + 2]
        return " AND ".join(
            f"{name} >= {low:.9g} AND {name} {'<=' if last else '<'} {high:.9g}"
            for name, (low, high), last in (
                (self.x, x, column == self.counts.shape[1] - 1),
                (self.y, y, row == self.counts.shape[0] - 1),
            )
        )


def numeric(audit: "Audit", column: str) -> str:
    quoted = audit.column(column)
    if column in COLUMNS and COLUMNS[column].type == "string":
        raise QueryError(f"{column} is text; a distribution needs a number")
    return quoted if column in STORED else f"CAST({quoted} AS DOUBLE)"


def value_range(audit: "Audit", column: str) -> tuple[float, float]:
    """Smallest and largest value in the whole audit."""
    value = numeric(audit, column)

    def compute() -> tuple[float, float]:
        found = audit.database.rows(f"SELECT min({value}) AS low, max({value}) AS high FROM {audit.table(value)}")[0]
        if found["low"] is None:
            return 0.0, 1.0
        low, high = float(found["low"]), float(found["high"])
        return (low, high) if high > low else (low - 0.5, high + 0.5)

    result: tuple[float, float] = audit.cached(f"range {column}", compute)
    return result


def bin_sql(value: str, low: float, high: float, bins: int) -> str:
    """The number of the bin a value falls into; the largest value belongs to the last."""
    scaled = f"({value} - {literal(low)}) * {literal(bins / (high - low))}"
    # greatest() passes over NULL, so a missing value needs saying
    return f"CASE WHEN {value} IS NOT NULL THEN CAST(least(greatest(floor({scaled}), 0), {bins - 1}) AS SMALLINT) END"


def common_range(audits: Sequence["Audit"], column: str) -> tuple[float, float]:
    """Smallest and largest value in any of several audits, for histograms to be drawn over each other."""
    ranges = [value_range(audit, column) for audit in audits]
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def axis(
    audit: "Audit", column: str, bins: int, log: bool, between: tuple[float, float] | None = None
) -> tuple[str, Floats]:
    """SQL of the bin number of a column, and the edges of the bins in the column's own units."""
    value = numeric(audit, column)
    low, high = between or value_range(audit, column)
    if not log:
        return bin_sql(value, low, high, bins), np.linspace(low, high, bins + 1)
    low, high = np.log10(max(low, 1e-9)), np.log10(max(high, 1e-8))
    return bin_sql(
        f"log10(CASE WHEN {value} > 1e-9 THEN {value} WHEN {value} <= 1e-9 THEN 1e-9 END)", low, high, bins
    ), np.logspace(low, high, bins + 1)


def histogram(
    audit: "Audit",
    column: str,
    where: str | None = None,
    bins: int = 50,
    log: bool = False,
    between: tuple[float, float] | None = None,
) -> Histogram:
    """Over the column's own range, or one that is given; what lies beyond that is counted in the outermost bins."""
    number, edges = axis(audit, column, bins, log, between)
    condition = audit.where(where)
    found = audit.database.run(
        f"SELECT {number} AS bin, count(*) AS n FROM {audit.table(condition, number)} WHERE {condition} GROUP BY bin"
    )
    counts = np.zeros(bins, np.int64)
    missing = 0
    for number_, count in zip(found["bin"].to_pylist(), found["n"].to_pylist(), strict=True):
        if number_ is None:
            missing = count
        else:
            counts[number_] = count
    return Histogram(column, edges, counts, missing)


def density(audit: "Audit", x: str, y: str, where: str | None = None, bins: int = 60) -> Density:
    x_bin, x_edges = axis(audit, x, bins, log=False)
    y_bin, y_edges = axis(audit, y, bins, log=False)
    condition = audit.where(where)
    found = audit.database.run(
        f"SELECT {x_bin} AS x, {y_bin} AS y, count(*) AS n FROM {audit.table(condition, x_bin, y_bin)} "
        f"WHERE {condition} AND {audit.column(x)} IS NOT NULL AND {audit.column(y)} IS NOT NULL GROUP BY ALL"
    )
    counts = np.zeros((bins, bins), np.int64)
    counts[found["y"].to_numpy(), found["x"].to_numpy()] = found["n"].to_numpy()
    return Density(x, y, x_edges, y_edges, counts)


Reference = dict[str, dict[str, Floats]]


def reference_step(audit: "Audit") -> int:
    """Every which shard the reference sample is taken from."""
    return max(1, round(int(audit.counts["rows"]) / REFERENCE_ROWS))


def reference_sample(audit: "Audit") -> Reference:
    """Sorted values of each measurement by kind: of all usable rows, or of evenly spaced shards of a large audit."""

    def compute() -> Reference:
        from auditor.store.audit_files import view_sql

        files = audit.files.only(range(0, len(audit.files.all), reference_step(audit)))
        columns = ", ".join(MEASUREMENTS)
        table = audit.database.run(
            f"SELECT kind, {columns} FROM ({view_sql(files, audit.thresholds)}) WHERE status = 'ok'"
        )
        kinds = np.array(table["kind"].to_pylist(), dtype=object)
        found: Reference = {}
        for kind in sorted(set(kinds.tolist()) - {None}):
            chosen = kinds == kind
            found[kind] = {}
            for column in MEASUREMENTS:
                values = table[column].to_numpy()[chosen]
                found[kind][column] = np.sort(values[~np.isnan(values)])
        return found

    result: Reference = audit.cached("reference", compute)
    return result


def share_below(reference: Reference, row: Mapping[str, Any], columns: Sequence[str]) -> dict[str, float]:
    values = reference.get(row.get("kind") or "", {})
    return {
        column: float(np.searchsorted(values[column], row[column], side="left") / len(values[column]))
        for column in columns
        if row.get(column) is not None and len(values.get(column, ()))
    }


def quantiles(reference: Reference, column: str, shares: Sequence[float]) -> list[float] | None:
    """Quantiles over all kinds together."""
    parts = [values[column] for values in reference.values() if len(values[column])]
    if not parts:
        return None
    found: list[float] = np.quantile(np.concatenate(parts), shares).tolist()
    return found

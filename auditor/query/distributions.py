"""Histograms, densities and percentiles of an audit's columns, counted by DuckDB in one pass each.

Ranges are found once per column and kept; percentiles come from all rows, or from a million where there are more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from auditor.measure.timing import REACH, SURE
from auditor.query.database import AuditDatabase
from auditor.query.rows import whole
from auditor.query.sandbox import QueryError, literal
from auditor.schema import COLUMNS, HEADLINES, MEASUREMENTS, STORED

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


def numeric(database: AuditDatabase, column: str) -> str:
    quoted = database.column(column, "column")
    if column in COLUMNS and COLUMNS[column].type == "string":
        raise QueryError(f"column: {column} is text; a distribution needs a number")
    return quoted if column in STORED else f"CAST({quoted} AS DOUBLE)"


def value_range(database: AuditDatabase, column: str) -> tuple[float, float]:
    """Smallest and largest value in the whole audit."""
    if column in HEADLINES:  # whoever asks for one asks for others next, and reading many files costs most
        return database.cached("ranges", lambda: find_ranges(database, HEADLINES))[column]
    return database.cached(f"range {column}", lambda: find_ranges(database, [column]))[column]


def find_ranges(database: AuditDatabase, columns: Sequence[str]) -> dict[str, tuple[float, float]]:
    """The smallest and largest values of some columns, in one pass."""
    values = [numeric(database, column) for column in columns]
    asked = ", ".join(f"min({value}) AS low_{i}, max({value}) AS high_{i}" for i, value in enumerate(values))
    found = database.rows(f"SELECT {asked} FROM {database.table(*values)}")[0]
    return {column: apart(found[f"low_{i}"], found[f"high_{i}"]) for i, column in enumerate(columns)}


def apart(low: float | None, high: float | None) -> tuple[float, float]:
    """A range that has a width, whatever was found."""
    if low is None or high is None:
        return 0.0, 1.0
    return (float(low), float(high)) if high > low else (float(low) - 0.5, float(high) + 0.5)


def bin_sql(value: str, low: float, high: float, bins: int) -> str:
    """The number of the bin a value falls into; the largest value belongs to the last."""
    scaled = f"({value} - {literal(low)}) * {literal(bins / (high - low))}"
    # greatest() passes over NULL, so a missing value needs saying
    return f"CASE WHEN {value} IS NOT NULL THEN CAST(least(greatest(floor({scaled}), 0), {bins - 1}) AS SMALLINT) END"


def common_range(databases: Sequence[AuditDatabase], column: str) -> tuple[float, float]:
    """Smallest and largest value in any of several audits, for histograms to be drawn over each other."""
    ranges = [value_range(database, column) for database in databases]
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def axis(
    database: AuditDatabase, column: str, bins: int, log: bool, between: tuple[float, float] | None = None
) -> tuple[str, Floats]:
    """SQL of the bin number of a column, and the edges of the bins in the column's own units."""
    value, bins = numeric(database, column), whole("bins", bins, least=1)
    low, high = between or value_range(database, column)
    if not log:
        return bin_sql(value, low, high, bins), np.linspace(low, high, bins + 1)
    low, high = np.log10(max(low, 1e-9)), np.log10(max(high, 1e-8))
    return bin_sql(
        f"log10(CASE WHEN {value} > 1e-9 THEN {value} WHEN {value} <= 1e-9 THEN 1e-9 END)", low, high, bins
    ), np.logspace(low, high, bins + 1)


def histogram(
    database: AuditDatabase,
    column: str,
    where: str | None = None,
    bins: int = 50,
    log: bool = False,
    between: tuple[float, float] | None = None,
) -> Histogram:
    """Over the column's own range, or one that is given; what lies beyond that is counted in the outermost bins."""
    number, edges = axis(database, column, bins, log, between)
    condition = database.where(where)
    found = database.run(
        f"SELECT {number} AS bin, count(*) AS n FROM {database.table(condition, number)} WHERE {condition} GROUP BY bin"
    )
    counts = np.zeros(bins, np.int64)
    missing = 0
    for number_, count in zip(found["bin"].to_pylist(), found["n"].to_pylist(), strict=True):
        if number_ is None:
            missing = count
        else:
            counts[number_] = count
    return Histogram(column, edges, counts, missing)


def density(database: AuditDatabase, x: str, y: str, where: str | None = None, bins: int = 60) -> Density:
    x_bin, x_edges = axis(database, x, bins, log=False)
    y_bin, y_edges = axis(database, y, bins, log=False)
    condition = database.where(where)
    found = database.run(
        f"SELECT {x_bin} AS x, {y_bin} AS y, count(*) AS n FROM {database.table(condition, x_bin, y_bin)} "
        f"WHERE {condition} AND {database.column(x)} IS NOT NULL AND {database.column(y)} IS NOT NULL GROUP BY ALL"
    )
    counts = np.zeros((bins, bins), np.int64)
    counts[found["y"].to_numpy(), found["x"].to_numpy()] = found["n"].to_numpy()
    return Density(x, y, x_edges, y_edges, counts)


@dataclass(frozen=True)
class TimeShifts:
    """How far timed captions are out of step with the pictures: of the videos that have enough of them."""

    videos: int
    shifted: int  # whose shift is not chance
    median: float  # seconds to add to the spans, of those that are shifted
    p5: float
    p95: float
    edges: list[float]
    counts: list[int]  # shifted videos between two edges

    def words(self) -> str:
        """In words; a positive shift says that captions come too early."""
        if not self.shifted:
            return f"none of {self.videos:,} videos"
        spread = f"{self.median:+.1f} s (median; {self.p5:+.1f} to {self.p95:+.1f})"
        return f"{self.shifted:,} of {self.videos:,} videos; their spans fit when shifted by {spread}"

    def histogram(self) -> Histogram:
        return Histogram("time_shift", np.array(self.edges), np.array(self.counts), self.videos - self.shifted)


def time_shifts(database: AuditDatabase, bins: int = 30) -> TimeShifts | None:
    """Over the videos, not their captions; None where no video has timed captions enough."""
    found = database.run(
        "SELECT any_value(time_shift) AS shift, any_value(p_time_shift) AS p FROM measured "
        "WHERE time_shift IS NOT NULL GROUP BY shard, media_digest"
    )
    if not found.num_rows:
        return None
    shift = found["shift"].to_numpy()[found["p"].to_numpy() <= SURE].astype(np.float64)
    p5, median, p95 = np.quantile(shift, (0.05, 0.5, 0.95)).tolist() if len(shift) else (0.0, 0.0, 0.0)
    counts, edges = np.histogram(shift, bins, (-REACH, REACH))
    return TimeShifts(found.num_rows, len(shift), median, p5, p95, edges.tolist(), counts.tolist())


Reference = dict[str, dict[str, Floats]]


def reference_step(database: AuditDatabase) -> int:
    """Every which shard the reference sample is taken from."""
    return max(1, round(int(database.counts["rows"]) / REFERENCE_ROWS))


def reference_sample(database: AuditDatabase) -> Reference:
    """Sorted values of each measurement by kind: of all usable rows, or of evenly spaced shards of a large audit."""

    def compute() -> Reference:
        files = database.files.only(range(0, len(database.files.all), reference_step(database)))
        columns = ", ".join(MEASUREMENTS)
        table = database.run(f"SELECT kind, {columns} FROM ({database.view(files)}) WHERE status = 'ok'")
        kinds = np.array(table["kind"].to_pylist(), dtype=object)
        found: Reference = {}
        for kind in sorted(set(kinds.tolist()) - {None}):
            chosen = kinds == kind
            found[kind] = {}
            for column in MEASUREMENTS:
                values = table[column].to_numpy()[chosen]
                found[kind][column] = np.sort(values[~np.isnan(values)])
        return found

    return database.cached("reference", compute)


def percentiles(database: AuditDatabase, row: Mapping[str, Any]) -> dict[str, float]:
    """For each measurement of a row the share of the corpus, of its kind, with a smaller value."""
    values = reference_sample(database).get(row.get("kind") or "", {})
    return {
        column: float(np.searchsorted(values[column], row[column], side="left") / len(values[column]))
        for column in MEASUREMENTS
        if row.get(column) is not None and len(values.get(column, ()))
    }


def quantiles(reference: Reference, column: str, shares: Sequence[float]) -> list[float] | None:
    """Quantiles over all kinds together."""
    parts = [values[column] for values in reference.values() if len(values[column])]
    if not parts:
        return None
    found: list[float] = np.quantile(np.concatenate(parts), shares).tolist()
    return found

"""Histograms, densities and percentiles of an audit's columns, counted by DuckDB in one pass each.

Ranges are found once per column and kept; percentiles come from all rows, or from a million where there are more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from auditor.query.database import AuditDatabase
from auditor.query.row_queries import whole
from auditor.query.sandbox import QueryError, literal
from auditor.schema import COLUMNS, HEADLINES, MEASUREMENTS, STORED
from auditor.score.statistics.caption_timing import REACH, SIGNIFICANT_P

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
    return database.cached(f"range {column}", lambda: find_ranges(database, [column])[column])


def find_ranges_together(database: AuditDatabase, columns: Sequence[str]) -> None:
    """For whoever asks for many next: columns in memory in one pass, the others in another, and both are kept."""
    for in_memory in (True, False):
        there = [c for c in columns if c not in HEADLINES and database.in_memory(numeric(database, c)) == in_memory]
        found = find_ranges(database, there) if there else {}
        for column in found:
            database.cached(f"range {column}", partial(found.__getitem__, column))


def find_ranges(database: AuditDatabase, columns: Sequence[str]) -> dict[str, tuple[float, float]]:
    """The smallest and largest values of some columns, in one pass."""
    values = [numeric(database, column) for column in columns]
    return joined_ranges(database.rows(f"SELECT {ranges_sql(values)} FROM {database.table(*values)}"), columns)


def ranges_sql(values: Sequence[str]) -> str:
    return ", ".join(f"min({value}) AS low_{i}, max({value}) AS high_{i}" for i, value in enumerate(values))


def joined_ranges(groups: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> dict[str, tuple[float, float]]:
    """The ranges of columns over all groups of rows whose `ranges_sql` was found."""
    found = {}
    for i, column in enumerate(columns):
        known = [(group[f"low_{i}"], group[f"high_{i}"]) for group in groups if group[f"low_{i}"] is not None]
        low, high = ([ends[side] for ends in known] for side in (0, 1))
        found[column] = apart(np.fmin.reduce(low), np.maximum.reduce(high)) if known else apart(None, None)
    return found


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
    return filled_histogram(column, edges, found)


def filled_histogram(column: str, edges: Floats, found: pa.Table) -> Histogram:
    """From rows counted (`n`) by the number of their `bin`."""
    counts = np.zeros(len(edges) - 1, np.int64)
    missing = 0
    for number, count in zip(found["bin"].to_pylist(), found["n"].to_pylist(), strict=True):
        if number is None:
            missing = count
        else:
            counts[number] = count
    return Histogram(column, edges, counts, missing)


def density(database: AuditDatabase, x: str, y: str, where: str | None = None, bins: int = 60) -> Density:
    x_bin, x_edges = axis(database, x, bins, log=False)
    y_bin, y_edges = axis(database, y, bins, log=False)
    condition = database.where(where)
    found = database.run(
        f"SELECT {x_bin} AS x, {y_bin} AS bin, count(*) AS n FROM {database.table(condition, x_bin, y_bin)} "
        f"WHERE {condition} AND {database.column(x)} IS NOT NULL AND {database.column(y)} IS NOT NULL GROUP BY ALL"
    )
    return filled_density((x, y), x_edges, y_edges, found)


def filled_density(of: tuple[str, str], x_edges: Floats, y_edges: Floats, found: pa.Table) -> Density:
    """From rows counted (`n`) by the numbers of their cell, `x` and `bin`; rows without a value are in no cell."""
    counts = np.zeros((len(y_edges) - 1, len(x_edges) - 1), np.int64)
    there = found.drop_null()
    counts[there["bin"].to_numpy(), there["x"].to_numpy()] = there["n"].to_numpy()
    return Density(*of, x_edges, y_edges, counts)


def histograms_and_densities(
    database: AuditDatabase, x: str, columns: Sequence[str], bins: int = 50, cells: int = 60
) -> tuple[list[Histogram], list[Density]]:
    """Of each column its `histogram` in `bins`, and its `density` over x in `cells`: all in one pass."""
    x_bin, x_edges = axis(database, x, cells, log=False)
    axes = [axis(database, column, number, log=False) for column in columns for number in (bins, cells)]
    parts = [f"part_{i}" for i in range(len(axes))]  # bars of a column, then its rows of cells
    sets = ", ".join(f"(x, {part})" if i % 2 else f"({part})" for i, part in enumerate(parts))
    asked = ", ".join([f"{x_bin} AS x", *(f"{sql} AS {part}" for part, (sql, _) in zip(parts, axes, strict=True))])
    names = ", ".join(parts)  # of which a set has one
    found = database.run(
        f"SELECT x, coalesce({names}) AS bin, grouping({names}) AS others, count(*) AS n "
        f"FROM (SELECT {asked} FROM {database.table(asked)}) GROUP BY GROUPING SETS ({sets})"
    )
    others = found["others"].to_numpy()  # a bit for each part that a set has not, the first highest
    every = 2 ** len(parts) - 1
    of = [found.filter(others == every - (1 << (len(parts) - 1 - i))).drop("others") for i in range(len(parts))]
    histograms = [filled_histogram(c, axes[2 * i][1], of[2 * i]) for i, c in enumerate(columns)]
    densities = [filled_density((x, c), x_edges, axes[2 * i + 1][1], of[2 * i + 1]) for i, c in enumerate(columns)]
    return histograms, densities


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
    shift = found["shift"].to_numpy()[found["p"].to_numpy() <= SIGNIFICANT_P].astype(np.float64)
    p5, median, p95 = np.quantile(shift, (0.05, 0.5, 0.95)).tolist() if len(shift) else (0.0, 0.0, 0.0)
    counts, edges = np.histogram(shift, bins, (-REACH, REACH))
    return TimeShifts(found.num_rows, len(shift), median, p5, p95, edges.tolist(), counts.tolist())


def reference_step(database: AuditDatabase) -> int:
    """Every which shard the reference sample is taken from."""
    return max(1, round(int(database.counts["rows"]) / REFERENCE_ROWS))


def reference_sample(database: AuditDatabase, columns: Sequence[str], kind: str | None = None) -> dict[str, Floats]:
    """The values of columns in all usable rows (of a kind), or in evenly spaced shards of a large audit."""
    files = database.files.only(range(0, len(database.files.all), reference_step(database)))
    of_kind = f"kind = {literal(kind)}" if kind else "kind IS NOT NULL"
    table = database.run(f"SELECT {', '.join(columns)} FROM ({database.view(files)}) WHERE status = 'ok' AND {of_kind}")
    known = {column: table[column].drop_null().to_numpy() for column in columns}
    return {column: values[~np.isnan(values)] for column, values in known.items()}


def percentiles(database: AuditDatabase, row: Mapping[str, Any]) -> dict[str, float]:
    """For each measurement of a row the share of the corpus, of its kind, with a smaller value."""
    kind = row.get("kind")
    if not kind:
        return {}
    values = database.cached(f"reference {kind}", lambda: reference_sample(database, MEASUREMENTS, kind))
    return {
        column: float(np.count_nonzero(values[column] < row[column]) / len(values[column]))
        for column in MEASUREMENTS
        if row.get(column) is not None and len(values[column])
    }


def typical_values(database: AuditDatabase, columns: Sequence[str]) -> dict[str, dict[str, float]]:
    """The median of each column and what nine in ten lie between, over all kinds together."""
    found = {}
    for column, values in reference_sample(database, columns).items():
        if len(values):
            p5, median, p95 = np.quantile(values, (0.05, 0.5, 0.95)).tolist()
            found[column] = {"p5": p5, "median": median, "p95": p95}
    return found

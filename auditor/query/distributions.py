"""Histograms, densities and percentiles of an audit's columns, each counted by DuckDB in one pass.

The range of a column is computed once; percentiles use all rows, or about a million of a larger audit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from auditor.audit_folder.column_numbers import read_numbers
from auditor.query.database import AuditDatabase
from auditor.query.row_queries import check_whole_number, read_row
from auditor.query.sandbox import QueryError, quote_literal
from auditor.schema import COLUMNS, HEADLINES, MEASUREMENTS, STORED
from auditor.score.statistics.caption_timing import REACH, SIGNIFICANT_P

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
REFERENCE_ROWS = 1_000_000
SHIFT_BINS = 30


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


def build_numeric_sql(database: AuditDatabase, column: str) -> str:
    quoted = database.column(column, "column")
    if column in COLUMNS and COLUMNS[column].type == "string":
        raise QueryError(f"column: {column} is text; a distribution needs a number")
    return quoted if column in STORED else f"CAST({quoted} AS DOUBLE)"


def find_value_range(database: AuditDatabase, column: str) -> tuple[float, float]:
    """Return the smallest and largest value of a column in the whole audit, computed once."""
    if column in HEADLINES:  # a caller needs the others next, and reading many files costs most
        return database.cached("ranges", lambda: find_column_ranges(database, HEADLINES))[column]
    return database.cached(f"range {column}", lambda: find_column_ranges(database, [column])[column])


def cache_ranges(database: AuditDatabase, columns: Sequence[str]) -> None:
    """Compute and cache the ranges of many columns: one pass for those in memory, one for the others."""
    others = [column for column in columns if column not in HEADLINES]
    for in_memory in (True, False):
        group = [c for c in others if database.in_memory(build_numeric_sql(database, c)) == in_memory]
        ranges = find_column_ranges(database, group) if group else {}
        for column in ranges:
            database.cached(f"range {column}", partial(ranges.__getitem__, column))


def find_column_ranges(database: AuditDatabase, columns: Sequence[str]) -> dict[str, tuple[float, float]]:
    values = [build_numeric_sql(database, column) for column in columns]
    return merge_ranges(database.rows(f"SELECT {build_ranges_sql(values)} FROM {database.table(*values)}"), columns)


def build_ranges_sql(values: Sequence[str]) -> str:
    return ", ".join(f"min({value}) AS low_{i}, max({value}) AS high_{i}" for i, value in enumerate(values))


def merge_ranges(groups: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Merge the ranges that `build_ranges_sql` selected for groups of rows; no range is empty, whatever the values."""
    ranges = {}
    for i, column in enumerate(columns):
        bounds = [(group[f"low_{i}"], group[f"high_{i}"]) for group in groups if group[f"low_{i}"] is not None]
        low = float(np.fmin.reduce([low for low, _ in bounds])) if bounds else 0.0
        high = float(np.maximum.reduce([high for _, high in bounds])) if bounds else 1.0
        ranges[column] = (low, high) if high > low else (low - 0.5, high + 0.5)
    return ranges


def build_bin_sql(value: str, low: float, high: float, bins: int) -> str:
    """Build the SQL of the bin number of a value; the largest value belongs to the last bin."""
    scaled = f"({value} - {quote_literal(low)}) * {quote_literal(bins / (high - low))}"
    # greatest() ignores NULL, so a missing value needs its own case
    return f"CASE WHEN {value} IS NOT NULL THEN CAST(least(greatest(floor({scaled}), 0), {bins - 1}) AS SMALLINT) END"


def find_common_range(databases: Sequence[AuditDatabase], column: str) -> tuple[float, float]:
    """Return the smallest and largest value in several audits, to draw their histograms over each other."""
    ranges = [find_value_range(database, column) for database in databases]
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def build_axis(
    database: AuditDatabase, column: str, bins: int, log: bool, bounds: tuple[float, float] | None = None
) -> tuple[str, Floats]:
    """Return the SQL of a column's bin number, and the edges of the bins in the column's own units."""
    value, bins = build_numeric_sql(database, column), check_whole_number("bins", bins, minimum=1)
    low, high = bounds or find_value_range(database, column)
    if not log:
        return build_bin_sql(value, low, high, bins), np.linspace(low, high, bins + 1)
    low, high = np.log10(max(low, 1e-9)), np.log10(max(high, 1e-8))
    return build_bin_sql(
        f"log10(CASE WHEN {value} > 1e-9 THEN {value} WHEN {value} <= 1e-9 THEN 1e-9 END)", low, high, bins
    ), np.logspace(low, high, bins + 1)


def compute_histogram(
    database: AuditDatabase,
    column: str,
    where: str | None = None,
    bins: int = 50,
    log: bool = False,
    bounds: tuple[float, float] | None = None,
) -> Histogram:
    """Count a histogram over the column's range or over `bounds`; values outside count in the outermost bins."""
    number, edges = build_axis(database, column, bins, log, bounds)
    condition = database.where(where)
    bin_counts = database.run(
        f"SELECT {number} AS bin, count(*) AS n FROM {database.table(condition, number)} WHERE {condition} GROUP BY bin"
    )
    return fill_histogram(column, edges, bin_counts)


def fill_histogram(column: str, edges: Floats, bin_counts: pa.Table) -> Histogram:
    """Make a histogram from counts (`n`) by `bin`, which is null for rows without a value."""
    counts = dict(zip(bin_counts["bin"].to_pylist(), bin_counts["n"].to_pylist(), strict=True))
    bins = np.array([counts.get(number, 0) for number in range(len(edges) - 1)], np.int64)
    return Histogram(column, edges, bins, missing=counts.get(None, 0))


def compute_density(
    database: AuditDatabase, x: str, y: str, where: str | None = None, bins: int = 60, *, drawn: str = "TRUE"
) -> Density:
    """Count the rows in cells of x and y; `drawn` is the auditor's own condition of the rows to count."""
    x_bin, x_edges = build_axis(database, x, bins, log=False)
    y_bin, y_edges = build_axis(database, y, bins, log=False)
    condition = f"{drawn} AND ({database.where(where)})"
    cell_counts = database.run(
        f"SELECT {x_bin} AS x, {y_bin} AS bin, count(*) AS n FROM {database.table(condition, x_bin, y_bin)} "
        f"WHERE {condition} AND {database.column(x)} IS NOT NULL AND {database.column(y)} IS NOT NULL GROUP BY ALL"
    )
    return fill_density((x, y), x_edges, y_edges, cell_counts)


def fill_density(columns: tuple[str, str], x_edges: Floats, y_edges: Floats, cell_counts: pa.Table) -> Density:
    """Make a density from counts (`n`) by the cell numbers `x` and `bin`; rows without a value have no cell."""
    counts = np.zeros((len(y_edges) - 1, len(x_edges) - 1), np.int64)
    cells = cell_counts.drop_null()
    counts[read_numbers(cells["bin"]), read_numbers(cells["x"])] = read_numbers(cells["n"])
    return Density(*columns, x_edges, y_edges, counts)


def compute_histograms_and_densities(
    database: AuditDatabase, x: str, columns: Sequence[str], bins: int = 50, cells: int = 60
) -> tuple[list[Histogram], list[Density]]:
    """Compute each column's histogram (`bins`) and its density over x (`cells` by `cells`), all in one pass."""
    x_bin, x_edges = build_axis(database, x, cells, log=False)
    axes = [build_axis(database, column, number, log=False) for column in columns for number in (bins, cells)]
    parts = [f"part_{i}" for i in range(len(axes))]  # for each column: its histogram, then its density
    sets = ", ".join(f"(x, {part})" if i % 2 else f"({part})" for i, part in enumerate(parts))
    bins_sql = ", ".join([f"{x_bin} AS x", *(f"{sql} AS {part}" for part, (sql, _) in zip(parts, axes, strict=True))])
    names = ", ".join(parts)  # each grouping set has one of them
    rows = database.stored_rows(
        "densities",
        f"SELECT x, coalesce({names}) AS bin, grouping({names}) AS others, count(*) AS n "
        f"FROM (SELECT {bins_sql} FROM {database.table(bins_sql)}) GROUP BY GROUPING SETS ({sets}) ORDER BY others",
    )
    counts = pa.Table.from_pylist(rows, pa.schema([(name, pa.int64()) for name in ("x", "bin", "others", "n")]))
    absent_parts = read_numbers(counts["others"])  # one bit for each part that the set lacks, the first part highest
    sets_of_parts = 2 ** len(parts) - 1 - 2 ** np.arange(len(parts))[::-1]
    starts, ends = (np.searchsorted(absent_parts, sets_of_parts, side).tolist() for side in ("left", "right"))
    part_counts = [counts.slice(start, end - start) for start, end in zip(starts, ends, strict=True)]
    histograms = [fill_histogram(c, axes[2 * i][1], part_counts[2 * i]) for i, c in enumerate(columns)]
    densities = zip(columns, axes[1::2], part_counts[1::2], strict=True)
    return histograms, [fill_density((x, c), x_edges, edges, part) for c, (_, edges), part in densities]


@dataclass(frozen=True)
class TimeShifts:
    """How far timed captions are shifted against the frames, over the videos that have enough captions."""

    videos: int
    shifted: int  # videos with a significant shift
    median: float  # seconds to add to the spans of shifted videos
    p5: float
    p95: float
    edges: list[float]
    counts: list[int]  # shifted videos in each bin

    def words(self) -> str:
        """Describe the shifts; a positive shift means that captions come too early."""
        if not self.shifted:
            return f"none of {self.videos:,} videos"
        spread = f"{self.median:+.1f} s (median; {self.p5:+.1f} to {self.p95:+.1f})"
        return f"{self.shifted:,} of {self.videos:,} videos; their spans fit when shifted by {spread}"

    def histogram(self) -> Histogram:
        return Histogram("time_shift", np.array(self.edges), np.array(self.counts), self.videos - self.shifted)


def summarize_time_shifts(database: AuditDatabase) -> TimeShifts | None:
    """Summarize the shifts of videos; None if no video has enough timed captions."""
    videos = database.run(
        "SELECT any_value(time_shift) AS shift, any_value(p_time_shift) AS p FROM measured "
        "WHERE time_shift IS NOT NULL GROUP BY shard, media_digest"
    )
    if not videos.num_rows:
        return None
    shift = read_numbers(videos["shift"])[read_numbers(videos["p"]) <= SIGNIFICANT_P].astype(np.float64)
    p5, median, p95 = np.quantile(shift, (0.05, 0.5, 0.95)).tolist() if len(shift) else (0.0, 0.0, 0.0)
    counts, edges = np.histogram(shift, SHIFT_BINS, (-REACH, REACH))
    return TimeShifts(videos.num_rows, len(shift), median, p5, p95, edges.tolist(), counts.tolist())


def choose_reference_step(database: AuditDatabase) -> int:
    """Return n, so that every nth shard belongs to the reference sample."""
    return max(1, round(int(database.counts["rows"]) / REFERENCE_ROWS))


def read_reference_sample(database: AuditDatabase, columns: Sequence[str], kind: str = "") -> dict[str, Floats]:
    """Read columns of all usable rows (of a kind), or of evenly spaced shards of a large audit."""
    files = database.files.only(range(0, len(database.files.all), choose_reference_step(database)))
    of_kind = f"kind = {quote_literal(kind)}" if kind else "kind IS NOT NULL"
    table = database.run(f"SELECT {', '.join(columns)} FROM ({database.view(files)}) WHERE status = 'ok' AND {of_kind}")
    values = {column: read_numbers(table[column]) for column in columns}
    return {column: numbers[~np.isnan(numbers)] for column, numbers in values.items()}


def compute_percentiles(database: AuditDatabase, row: Mapping[str, Any] | str) -> dict[str, float]:
    """Return, for each measurement of a row (or uid), the share of rows of its kind that have a smaller value."""
    row = (read_row(database, row) or {}) if isinstance(row, str) else row
    kind = row.get("kind")
    if not kind:
        return {}
    values = database.cached(f"reference {kind}", lambda: read_reference_sample(database, MEASUREMENTS, kind))
    return {
        column: float(np.count_nonzero(values[column] < row[column]) / len(values[column]))
        for column in MEASUREMENTS
        if row.get(column) is not None and len(values[column])
    }


def compute_typical_values(database: AuditDatabase) -> dict[str, dict[str, float]]:
    return {
        column: dict(zip(("p5", "median", "p95"), np.quantile(values, (0.05, 0.5, 0.95)).tolist(), strict=True))
        for column, values in read_reference_sample(database, HEADLINES).items()
        if len(values)
    }

"""Groups of a corpus by shard, topic or the value of any column, with the share of defects in each, and facets.

    group_rows(database, "shard").groups[0].mismatched.high
    count_facets(database, {"kind": "language = 'de'"})["kind"][0].rows

Shares of small groups are shrunk toward the share of the whole corpus, so that three bad rows do not make a shard the
worst one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from auditor.audit_folder.audit_files import get_shard_name
from auditor.audit_folder.fault_records import Fault, read_faults
from auditor.audit_folder.side_files import read_topics
from auditor.query.database import AuditDatabase
from auditor.query.distributions import build_bin_sql, find_value_range
from auditor.query.row_queries import build_from_clause
from auditor.query.sample_tables import IN_MEMORY
from auditor.query.sandbox import quote_literal, quote_name
from auditor.query.summary import Noise, read_noise_estimates
from auditor.schema import COLUMNS, FLAGS, STATUSES
from auditor.score.group_shares import GroupShare, estimate_group_shares

MOST = 2000  # groups listed, the largest first
BINS = 20  # for a column of fractions
SHARES = {"unusable": "rows", "mismatched": "scored", "ambiguous": "usable"}  # defect: its denominator
OWN = frozenset({"key", "media_path", "media_offset", "uid_order"})  # columns whose values hardly repeat
FRACTIONS = {"float32", "float64"}
FACETS = (
    "status",
    "kind",
    "flag",
    "language",
    "looks_like",
    "caption_source",
    "topic",
    "shard",
)  # joined columns follow
EXTRA = "col-"  # before the name of a joined column, which may be that of another facet
MOST_VALUES = 100  # of a facet, the most frequent ones
NONE, UNUSABLE = "(none)", "not ok"  # values of facets: no value, and every status but ok


@dataclass(frozen=True, slots=True)
class Group:
    """One group: its rows, the shares of defects, and the condition that selects it."""

    name: str
    where: str  # SQL
    rows: int
    unusable: GroupShare
    mismatched: GroupShare | None  # None if no row was scored
    ambiguous: GroupShare | None
    similarity: float | None  # mean
    faults: tuple[str, ...] = ()  # sentences


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of a corpus by a column, the largest first; `left_out` counts those that are not listed."""

    by: str
    groups: list[Group]
    left_out: int


def list_grouping_columns(database: AuditDatabase) -> list[str]:
    """List the columns that can group a corpus, shard and topic first."""
    excluded = {name for name, column in COLUMNS.items() if column.unique or column.hexadecimal} | OWN
    return ["shard", "topic", *(c for c in database.columns if c not in excluded | {"shard", "topic"})]


def group_rows(database: AuditDatabase, column_name: str) -> Groups:
    """Group all rows by the values of a column, or by ranges of values for fractions."""
    column = database.column(column_name)
    own = COLUMNS[column_name].type if column_name in COLUMNS else None
    is_fraction = (own or database.files.extra_columns.get(column_name)) in FRACTIONS
    bounds = find_value_range(database, column_name) if is_fraction else None
    value = build_bin_sql(column, *bounds, BINS) if bounds else column
    rows = count_groups(database, column_name, value)
    left_out = int(rows[0]["parts"]) - len(rows) if rows else 0
    labels = [describe_group(database, column_name, column, row["value"], bounds) for row in rows]
    faults = read_faults(database.files.folder) or [] if column_name == "shard" else []
    corpus = read_noise_estimates(database.statistics)
    return Groups(column_name, build_groups(rows, labels, faults, corpus), left_out)


def count_groups(database: AuditDatabase, column_name: str, value: str) -> list[dict[str, Any]]:
    """Count the rows of the largest groups; `parts` is the number of all groups."""
    if column_name == "shard" and database.memory:
        value, table = "file", f"{IN_MEMORY} AS samples"
    else:
        table = database.table(value)
    rows = database.rows(
        f"SELECT {value} AS value, count(*) AS rows, count(*) FILTER (status = 'ok') AS usable, "
        "count(p_mismatch) AS scored, coalesce(sum(p_mismatch), 0) AS mismatched, "
        "count(*) FILTER (status <> 'ok') AS unusable, "
        "count(*) FILTER (ambiguous_visual OR ambiguous_text) AS ambiguous, avg(similarity) AS similarity, "
        f"count(*) OVER () AS parts FROM {table} GROUP BY value ORDER BY rows DESC, value LIMIT {MOST}"
    )
    if value == "file":
        names = [get_shard_name(file) for file in database.files.all]
        return [{**row, "value": names[row["value"]]} for row in rows]
    return rows


def describe_group(
    database: AuditDatabase, column_name: str, column: str, value: Any, bounds: tuple[float, float] | None
) -> tuple[str, str]:
    if value is None:
        return "(none)", f"{column} IS NULL"
    if bounds:
        low, step = bounds[0], (bounds[1] - bounds[0]) / BINS
        first, last = low + step * value, low + step * (value + 1)
        end = "" if value == BINS - 1 else f" AND {column} < {last!r}"
        return f"{first:.4g} to {last:.4g}", f"{column} >= {first!r}{end}" if value else f"{column} < {last!r}"
    if column_name == "topic":
        return format_topic_name(read_topics(database.files.folder), int(value)), f"{column} = {int(value)}"
    return str(value), f"{column} = {quote_literal(value)}"


def format_topic_name(captions: Sequence[Sequence[str]], topic: int) -> str:
    typical = captions[topic][:1] if topic < len(captions) else []
    return " ".join([f"{topic}:", *typical]) if typical else str(topic)


@dataclass(frozen=True, slots=True)
class FacetValue:
    """One value of a facet, as text, and the number of rows that have it."""

    value: str
    label: str
    rows: int


def list_facets(database: AuditDatabase) -> list[str]:
    """List the facets of an audit: `FACETS` and its joined, applied and carried columns."""
    return [*FACETS, *(EXTRA + column for column in database.columns if column not in COLUMNS)]


def find_facet_bounds(database: AuditDatabase, column_name: str) -> tuple[float, float] | None:
    """Find the ends of a joined column of fractions, whose facet counts ranges of values."""
    is_fraction = database.files.extra_columns.get(column_name) in FRACTIONS
    return find_value_range(database, column_name) if is_fraction else None


def build_facet_condition(database: AuditDatabase, facet: str, values: Sequence[str]) -> str:
    """Build the condition of the rows that have any of the values, or all flags; unknown values match no row."""
    if facet == "flag":
        return " AND ".join(flag if flag in FLAGS else "FALSE" for flag in values)
    column_name = facet.removeprefix(EXTRA)
    column, bounds = database.column(column_name), find_facet_bounds(database, column_name)
    parts = [build_value_condition(database, column_name, column, value, bounds) for value in values]
    return " OR ".join(f"({part})" for part in parts)


def build_value_condition(
    database: AuditDatabase, column_name: str, column: str, value: str, bounds: tuple[float, float] | None
) -> str:
    if value == NONE:
        return f"{column} IS NULL"
    if column_name == "status" and value == UNUSABLE:
        return "status <> 'ok'"
    if bounds:
        is_bin = value.isascii() and value.isdecimal() and int(value) < BINS
        return describe_group(database, column_name, column, int(value), bounds)[1] if is_bin else "FALSE"
    is_text = column_name in COLUMNS and COLUMNS[column_name].type == "string"
    return f"{column if is_text else f'CAST({column} AS VARCHAR)'} = {quote_literal(value)}"


def count_facets(database: AuditDatabase, conditions: Mapping[str, str | None]) -> dict[str, list[FacetValue]]:
    """Count the rows of each value of facets, the most frequent first; each facet has a condition of its own.

    Facets with the same condition are counted in one pass.
    """
    passes: dict[tuple[str | None, bool], list[str]] = {}
    for facet, where in conditions.items():
        passes.setdefault((where, database.in_memory(build_facet_sql(database, facet))), []).append(facet)
    counts: dict[str, list[FacetValue]] = {}
    for (where, _), facets in passes.items():
        pass_counts = count_values(database, facets, database.where(where))
        counts |= {facet: pass_counts[facet] for facet in facets}
    return {facet: counts[facet] for facet in conditions}


def count_values(database: AuditDatabase, facets: Sequence[str], condition: str) -> dict[str, list[FacetValue]]:
    columns = dict.fromkeys([*facets, "kind"])  # at least one beside the flags
    parts = {f"part_{i}": facet for i, facet in enumerate(columns) if facet != "flag"}
    listed = ", ".join([f"{build_facet_sql(database, facet)} AS {part}" for part, facet in parts.items()])
    texts = ", ".join(f"CAST({part} AS VARCHAR)" for part in parts)
    flags = ", ".join(f"count(*) FILTER ({flag}) AS {flag}" for flag in FLAGS)
    source = build_from_clause(database, condition, listed, remember=True)
    # one bit for each part that a set lacks, the first part highest; the empty set counts the flags
    rows = database.rows(
        f"SELECT grouping({', '.join(parts)}) AS absent, coalesce({texts}) AS value, count(*) AS n, {flags} "
        f"FROM (SELECT {listed}, {', '.join(FLAGS)} FROM {source}) GROUP BY GROUPING SETS ((), ({'), ('.join(parts)})) "
        f"QUALIFY row_number() OVER (PARTITION BY absent ORDER BY n DESC, value) <= {MOST_VALUES} "
        "ORDER BY n DESC, value"
    )
    everything = 2 ** len(parts) - 1
    counts = {
        facet: [
            make_facet_value(database, facet, row["value"], row["n"])
            for row in rows
            if row["absent"] == everything - 2 ** (len(parts) - 1 - i)
        ]
        for i, facet in enumerate(parts.values())
    }
    totals = next((row for row in rows if row["absent"] == everything), dict.fromkeys(FLAGS, 0))
    counts["flag"] = [FacetValue(name, flag.label, totals[name]) for name, flag in FLAGS.items()]
    return counts


def build_facet_sql(database: AuditDatabase, facet: str) -> str:
    column_name = facet.removeprefix(EXTRA)
    bounds = find_facet_bounds(database, column_name)
    if facet == "shard":
        return "file"  # in memory, unlike the name
    return build_bin_sql(quote_name(column_name), *bounds, BINS) if bounds else quote_name(column_name)


def make_facet_value(database: AuditDatabase, facet: str, value: str | None, rows: int) -> FacetValue:
    column_name = facet.removeprefix(EXTRA)
    if value is None:
        return FacetValue(NONE, NONE, rows)
    if facet == "shard":
        name = get_shard_name(database.files.all[int(value)])
        return FacetValue(name, name, rows)
    if facet == "status":
        return FacetValue(value, STATUSES[value].label if value in STATUSES else value, rows)
    bounds = find_facet_bounds(database, column_name)
    typed = int(value) if bounds or facet == "topic" else value
    return FacetValue(value, describe_group(database, column_name, quote_name(column_name), typed, bounds)[0], rows)


def widen_by_corpus(groups: Sequence[GroupShare], corpus: Sequence[Noise]) -> list[GroupShare]:
    """The shares of mismatched pairs with intervals that include how far the corpus's own share is uncertain.

    A group that is the whole corpus has the corpus's interval.
    """
    pairs = sum(noise.pairs for noise in corpus)
    share, low, high = (sum(noise.pairs * getattr(noise, end) for noise in corpus) for end in ("share", "low", "high"))
    if not pairs or not share:
        return list(groups)
    rows = sum(group.rows for group in groups)
    widened = []
    for group in groups:
        apart = np.sqrt(1 - group.rows / max(rows, 1))  # the part of the chance that is the group's own
        below = np.hypot(apart * (group.share - group.low), group.share * (1 - low / share))
        above = np.hypot(apart * (group.high - group.share), group.share * (high / share - 1))
        ends = max(0.0, float(group.share - below)), min(1.0, float(group.share + above))
        widened.append(replace(group, low=ends[0], high=ends[1]))
    return widened


def build_groups(
    rows: Sequence[dict[str, Any]], labels: Sequence[tuple[str, str]], faults: list[Fault], corpus: Sequence[Noise] = ()
) -> list[Group]:
    if not rows:
        return []
    names = [name for name, _ in labels]
    numbers = {part: np.array([row[part] for row in rows], np.float64) for part in (*SHARES, *SHARES.values())}
    parts = {part: estimate_group_shares(names, numbers[part], numbers[whole])[0] for part, whole in SHARES.items()}
    parts["mismatched"] = widen_by_corpus(parts["mismatched"], corpus)
    return [
        Group(
            name,
            where,
            row["rows"],
            parts["unusable"][i],
            parts["mismatched"][i] if row["scored"] else None,
            parts["ambiguous"][i] if row["usable"] else None,
            row["similarity"],
            tuple(fault.sentence for fault in faults if fault.shard == name),
        )
        for i, (row, (name, where)) in enumerate(zip(rows, labels, strict=True))
    ]

"""A corpus in parts: a line for every shard, topic or value of any column, to see which part of it is bad.

    groups_by(database, "shard").groups[0].mismatched.high

Shares of small parts are shrunk towards the whole (auditor.faults.group_faults), so that three bad rows do not make the worst
shard of a corpus.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from auditor.audit_folder.audit_files import get_shard_name
from auditor.audit_folder.fault_records import Fault, read_faults
from auditor.audit_folder.side_files import read_topics
from auditor.query.database import AuditDatabase
from auditor.query.distributions import value_range
from auditor.query.sample_tables import IN_MEMORY
from auditor.query.sandbox import literal
from auditor.schema import COLUMNS
from auditor.score.group_shares import GroupShare, estimate_group_shares

MOST = 2000  # parts that are listed, the largest
BINS = 20  # parts of a column of numbers that do not repeat
SHARES = {"unusable": "rows", "mismatched": "scored", "ambiguous": "usable"}  # each of how many
OWN = frozenset({"key", "media_path", "media_offset", "uid_order"})  # columns in which hardly a value repeats
FRACTIONS = {"float32", "float64"}


@dataclass(frozen=True, slots=True)
class Group:
    """One part: how many rows, what share of them has which defect, and the condition that finds them."""

    name: str
    where: str  # SQL
    rows: int
    unusable: GroupShare
    mismatched: GroupShare | None  # None where nothing was scored, as below
    ambiguous: GroupShare | None
    similarity: float | None  # mean
    faults: tuple[str, ...] = ()  # sentences


@dataclass(frozen=True, slots=True)
class Groups:
    """The parts of a corpus by a column, the largest first; `left_out` are not listed."""

    by: str
    groups: list[Group]
    left_out: int


def grouping_columns(database: AuditDatabase) -> list[str]:
    """Columns that part a corpus into something: shard and topic first."""
    apart = {name for name, column in COLUMNS.items() if column.unique or column.hexadecimal} | OWN
    others = [column for column in database.columns if column not in apart and column not in ("shard", "topic")]
    return ["shard", "topic", *others]


def groups_by(database: AuditDatabase, by: str) -> Groups:
    """All rows by the values of a column; numbers with fractions by ranges."""
    column = database.column(by)
    ranged = by in COLUMNS and COLUMNS[by].type in FRACTIONS
    value = bin_of(database, by, column) if ranged else column
    found = counted(database, by, value)
    left_out = int(found[0]["parts"]) - len(found) if found else 0
    named = [described(database, by, column, row["value"], ranged=ranged) for row in found]
    return Groups(by, with_shares(found, named, faults_of(database, by)), left_out)


def bin_of(database: AuditDatabase, by: str, column: str) -> str:
    low, high = value_range(database, by)
    return f"least(floor(({column} - {literal(low)}) * {literal(BINS / (high - low))}), {BINS - 1})"


def counted(database: AuditDatabase, by: str, value: str) -> list[dict[str, Any]]:
    """Counts of the largest parts, and in `parts` how many there are."""
    if by == "shard" and database.memory:
        value, table = "file", f"{IN_MEMORY} AS samples"
    else:
        table = database.table(value)
    found = database.rows(
        f"SELECT {value} AS value, count(*) AS rows, count(*) FILTER (status = 'ok') AS usable, "
        "count(p_mismatch) AS scored, coalesce(sum(p_mismatch), 0) AS mismatched, "
        "count(*) FILTER (status <> 'ok') AS unusable, "
        "count(*) FILTER (ambiguous_visual OR ambiguous_text) AS ambiguous, avg(similarity) AS similarity, "
        f"count(*) OVER () AS parts FROM {table} GROUP BY value ORDER BY rows DESC, value LIMIT {MOST}"
    )
    if value == "file":
        names = [get_shard_name(file) for file in database.files.all]
        return [{**row, "value": names[row["value"]]} for row in found]
    return found


def described(database: AuditDatabase, by: str, column: str, value: Any, *, ranged: bool) -> tuple[str, str]:
    """The name of a part and the condition that finds it."""
    if value is None:
        return "(none)", f"{column} IS NULL"
    if ranged:
        low, high = value_range(database, by)
        step = (high - low) / BINS
        first, last = low + step * value, low + step * (value + 1)
        end = "" if value == BINS - 1 else f" AND {column} < {last:.9g}"
        return f"{first:.4g} to {last:.4g}", f"{column} >= {first:.9g}{end}" if value else f"{column} < {last:.9g}"
    if by == "topic":
        return topic_name(read_topics(database.files.folder), int(value)), f"{column} = {int(value)}"
    return str(value), f"{column} = {literal(value)}"


def topic_name(captions: Sequence[Sequence[str]], topic: int) -> str:
    """A topic by its number and its most typical caption."""
    typical = captions[topic][:1] if topic < len(captions) else []
    return " ".join([f"{topic}:", *typical]) if typical else str(topic)


def faults_of(database: AuditDatabase, by: str) -> list[Fault]:
    """Patterns that belong to a shard."""
    return [fault for fault in read_faults(database.files.folder) or [] if fault.shard] if by == "shard" else []


def with_shares(found: Sequence[dict[str, Any]], named: Sequence[tuple[str, str]], faults: list[Fault]) -> list[Group]:
    if not found:
        return []
    names = [name for name, _ in named]
    numbers = {part: np.array([row[part] for row in found], np.float64) for part in (*SHARES, *SHARES.values())}
    parts = {defect: estimate_group_shares(names, numbers[defect], numbers[of])[0] for defect, of in SHARES.items()}
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
        for i, (row, (name, where)) in enumerate(zip(found, named, strict=True))
    ]

"""How a kept subset differs from the whole corpus: caption length, resolution, duration, kind and topic.

It warns of filters that drop, for example, most videos or a whole topic. Rules in balance are measured by the topics,
or values of another column, that they balance.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from auditor.keep.rule_effects import build_clauses, conjoin_clauses
from auditor.query.database import AuditDatabase
from auditor.query.map_queries import sample_points
from auditor.query.rules import Rules

MEASURES = {
    "caption length": "length(caption)",
    "resolution (megapixels)": "CAST(width AS BIGINT) * height / 1e6",
    "duration (seconds)": "CAST(duration AS DOUBLE)",
    "share of videos": "CAST(kind = 'video' AS INTEGER)",
}


@dataclass(frozen=True, slots=True)
class MeanDrift:
    """The mean of a measure over all usable rows and over the kept rows."""

    measure: str
    whole: float | None
    kept: float | None

    @property
    def change(self) -> float | None:
        return self.kept / self.whole - 1 if self.whole and self.kept is not None else None


@dataclass(frozen=True, slots=True)
class TopicDrift:
    topic: int | str  # or value of the column that is balanced
    whole: float  # share of the usable rows
    kept: float  # share of the kept rows
    rows: int


@dataclass(frozen=True, slots=True)
class Drift:
    measures: list[MeanDrift]
    topics: list[TopicDrift]  # the most changed first
    column: str = "topic"

    @property
    def topic_distance(self) -> float:
        """Total variation: the share of kept rows that would have to change topic to match the whole corpus."""
        if not any(topic.kept for topic in self.topics):
            return 0.0  # no kept row has a topic
        return sum(abs(topic.kept - topic.whole) for topic in self.topics) / 2

    @property
    def effective_numbers(self) -> tuple[float, float]:
        """The effective number of topics before and after."""
        sides = ([getattr(topic, side) for topic in self.topics] for side in ("whole", "kept"))
        whole_count, kept_count = map(count_effectively, sides)
        return whole_count, kept_count

    def describe_topics(self) -> str:
        numbers = "{:.1f} -> {:.1f}".format(*self.effective_numbers)
        name = "topics" if self.column.startswith("topic") else f"values of {self.column}"
        return f"{name}: {self.topic_distance:.1%} of the kept rows moved; effective number {numbers}"


def count_effectively(shares: Sequence[float]) -> float:
    """exp(entropy): the number of equal shares that are as diverse as these; 0 if all are 0."""
    total = sum(shares)
    return math.exp(-sum(share / total * math.log(share / total) for share in shares if share)) if total else 0.0


def sample_kept_points(database: AuditDatabase, over: str, rules: Rules, where: str | None = None) -> pa.Table:
    """The points of a map (auditor.query.map_queries), each with whether rules keep it."""
    condition = conjoin_clauses(build_clauses(database, rules))
    value = f"CASE WHEN {condition} THEN 'kept' ELSE 'left out' END"
    return sample_points(database, over, "", where, value_sql=value)


def measure_subset_drift(database: AuditDatabase, rules: Rules) -> Drift:
    """Measure drift in one pass over the usable rows."""
    condition = conjoin_clauses(build_clauses(database, rules))
    cell = database.column(rules.cell_column, "balance")
    table = database.table(condition, cell, *MEASURES.values())
    means = ", ".join(
        f"avg({sql}) AS whole{i}, avg({sql}) FILTER (is_kept) AS kept{i}" for i, sql in enumerate(MEASURES.values())
    )
    total, *groups = database.rows(
        f"SELECT {cell} AS topic, count(*) AS rows, count(*) FILTER (is_kept) AS kept, {means} "
        f"FROM (SELECT *, {condition} AS is_kept FROM {table} WHERE status = 'ok') "
        f"GROUP BY GROUPING SETS ((), ({cell})) ORDER BY grouping({cell}) DESC, {cell}"
    )
    measures = [MeanDrift(measure, total[f"whole{i}"], total[f"kept{i}"]) for i, measure in enumerate(MEASURES)]
    topics = [
        TopicDrift(group["topic"], group["rows"] / total["rows"], group["kept"] / max(total["kept"], 1), group["rows"])
        for group in groups
        if group["topic"] is not None
    ]
    return Drift(measures, sorted(topics, key=lambda topic: -abs(topic.kept - topic.whole)), rules.cell_column)

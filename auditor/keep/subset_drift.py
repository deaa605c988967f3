"""How a kept subset differs from the whole corpus: caption length, resolution, duration, kind and topic.

It warns of filters that drop, for example, most videos or a whole topic.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from auditor.keep.rule_effects import build_clauses, conjoin_clauses
from auditor.query.database import AuditDatabase
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
    topic: int
    whole: float  # share of the usable rows
    kept: float  # share of the kept rows
    rows: int


@dataclass(frozen=True, slots=True)
class Drift:
    measures: list[MeanDrift]
    topics: list[TopicDrift]  # the most changed first

    @property
    def topic_distance(self) -> float:
        """Total variation: the share of kept rows that would have to change topic to match the whole corpus."""
        if not any(topic.kept for topic in self.topics):
            return 0.0  # no kept row has a topic
        return sum(abs(topic.kept - topic.whole) for topic in self.topics) / 2


def count_by_topic(groups: list[dict[str, Any]]) -> Counter[int | None]:
    counts: Counter[int | None] = Counter()
    for group in groups:
        counts[group["topic"]] += group["n"]
    return counts


def measure_subset_drift(database: AuditDatabase, rules: Rules) -> Drift:
    """Measure drift in one pass over the usable rows."""
    clauses = build_clauses(database, rules)
    table = database.table(conjoin_clauses(clauses), *MEASURES.values())
    sums = ", ".join(f"sum({sql}) AS s{i}, count({sql}) AS n{i}" for i, sql in enumerate(MEASURES.values()))
    groups = database.rows(
        f"SELECT topic, kept, count(*) AS n, {sums} "
        f"FROM (SELECT *, {conjoin_clauses(clauses)} AS kept FROM {table} WHERE status = 'ok') GROUP BY topic, kept"
    )
    kept_groups = [group for group in groups if group["kept"]]

    def mean(i: int, some_groups: list[dict[str, Any]]) -> float | None:
        count = sum(group[f"n{i}"] for group in some_groups)
        return float(sum(group[f"s{i}"] or 0 for group in some_groups)) / count if count else None

    measures = [MeanDrift(measure, mean(i, groups), mean(i, kept_groups)) for i, measure in enumerate(MEASURES)]
    rows, rows_kept = count_by_topic(groups), count_by_topic(kept_groups)
    topics = [
        TopicDrift(topic, n / rows.total(), rows_kept[topic] / max(rows_kept.total(), 1), n)
        for topic, n in rows.items()
        if topic is not None
    ]
    return Drift(measures, sorted(topics, key=lambda topic: -abs(topic.kept - topic.whole)))

"""How a kept set differs from the whole it was taken from: caption length, resolution, duration, kind and topic.

A filter that keeps 60% of a corpus and drops most of its videos, or one topic, should say so before it is used.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from auditor.keep.rule_effects import all_of, clauses
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
    """The mean of something over all usable rows and over the kept ones."""

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
        """Total variation: the share of the kept set that would have to change topic to look like the whole."""
        if not any(topic.kept for topic in self.topics):
            return 0.0  # nothing is kept that could have moved
        return sum(abs(topic.kept - topic.whole) for topic in self.topics) / 2


def by_topic(groups: list[dict[str, Any]]) -> Counter[int | None]:
    found: Counter[int | None] = Counter()
    for group in groups:
        found[group["topic"]] += group["n"]
    return found


def find_drift(database: AuditDatabase, rules: Rules) -> Drift:
    """One pass over the usable rows, summed by topic."""
    found = clauses(database, rules)
    table = database.table(all_of(found), *MEASURES.values())
    sums = ", ".join(f"sum({sql}) AS s{i}, count({sql}) AS n{i}" for i, sql in enumerate(MEASURES.values()))
    groups = database.rows(
        f"SELECT topic, kept, count(*) AS n, {sums} "
        f"FROM (SELECT *, {all_of(found)} AS kept FROM {table} WHERE status = 'ok') GROUP BY topic, kept"
    )
    kept = [group for group in groups if group["kept"]]

    def mean(i: int, of: list[dict[str, Any]]) -> float | None:
        count = sum(group[f"n{i}"] for group in of)
        return float(sum(group[f"s{i}"] or 0 for group in of)) / count if count else None

    measures = [MeanDrift(measure, mean(i, groups), mean(i, kept)) for i, measure in enumerate(MEASURES)]
    rows, rows_kept = by_topic(groups), by_topic(kept)
    topics = [
        TopicDrift(topic, n / rows.total(), rows_kept[topic] / max(rows_kept.total(), 1), n)
        for topic, n in rows.items()
        if topic is not None
    ]
    return Drift(measures, sorted(topics, key=lambda topic: -abs(topic.kept - topic.whole)))

"""How a kept set differs from the whole it was taken from: caption length, resolution, duration, kind and topic.

A filter that keeps 60% of a corpus and drops most of its videos, or one topic, should say so before it is used.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from auditor.filter import all_of, clauses
from auditor.rules import Rules

if TYPE_CHECKING:
    from auditor.query import Audit

MEASURES = {
    "caption length": "CAST(length(caption) AS DOUBLE)",
    "resolution (megapixels)": "CAST(width AS DOUBLE) * height / 1e6",
    "duration (seconds)": "CAST(duration AS DOUBLE)",
    "share of videos": "CAST(kind = 'video' AS INTEGER)",
}


@dataclass(frozen=True, slots=True)
class Shift:
    """The mean of something over all usable rows and over the kept ones."""

    measure: str
    whole: float | None
    kept: float | None

    @property
    def change(self) -> float | None:
        return self.kept / self.whole - 1 if self.whole and self.kept is not None else None


@dataclass(frozen=True, slots=True)
class TopicShift:
    topic: int
    whole: float  # share of the usable rows
    kept: float  # share of the kept rows
    rows: int


@dataclass(frozen=True, slots=True)
class Shifts:
    measures: list[Shift]
    topics: list[TopicShift]  # the most changed first

    @property
    def topic_distance(self) -> float:
        """Total variation: the share of the kept set that would have to change topic to look like the whole."""
        return sum(abs(topic.kept - topic.whole) for topic in self.topics) / 2


def shifts(audit: "Audit", rules: Rules) -> Shifts:
    """One pass over the usable rows, summed by topic."""
    found = clauses(audit, rules)
    sums = ", ".join(
        f"sum({sql}) AS s{i}, count({sql}) AS n{i}, sum({sql}) FILTER (kept) AS ks{i}, "
        f"count({sql}) FILTER (kept) AS kn{i}"
        for i, sql in enumerate(MEASURES.values())
    )
    table = audit.table(all_of(found))
    groups = audit.database.rows(
        f"SELECT topic, count(*) AS n, count(*) FILTER (kept) AS kept, {sums} "
        f"FROM (SELECT *, {all_of(found)} AS kept FROM {table} WHERE status = 'ok') GROUP BY topic"
    )

    def mean(i: int, prefix: str) -> float | None:
        count = sum(group[f"{prefix}n{i}"] for group in groups)
        return float(sum(group[f"{prefix}s{i}"] or 0 for group in groups)) / count if count else None

    measures = [Shift(measure, mean(i, ""), mean(i, "k")) for i, measure in enumerate(MEASURES)]
    whole, kept = sum(group["n"] for group in groups), sum(group["kept"] for group in groups)
    topics = [
        TopicShift(group["topic"], group["n"] / whole, group["kept"] / kept if kept else 0.0, group["n"])
        for group in groups
        if group["topic"] is not None
    ]
    return Shifts(measures, sorted(topics, key=lambda topic: -abs(topic.kept - topic.whole)))

"""What the Map page shows: a sample of rows with their places and the values that colour them, and names of topics."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from auditor.audit_folder.topic_names import read_topics
from auditor.query.database import AuditDatabase
from auditor.query.sandbox import name

PLACES: Mapping[str, tuple[str, str]] = {"media": ("map_x", "map_y"), "captions": ("map_text_x", "map_text_y")}
MOST = 4000  # points that are drawn


@dataclass(frozen=True, slots=True)
class TopicLabel:
    """A topic where most of its rows lie."""

    topic: int
    x: float
    y: float
    rows: int
    captions: list[str]  # the most typical


def has_map(database: AuditDatabase) -> bool:
    """Audits that were scored before there were maps have none."""
    x, y = PLACES["media"]
    found = database.rows(f"SELECT count({x}) AS n FROM {database.table(x, y)}")
    return bool(found[0]["n"])


def is_number(column: str, form: pa.DataType) -> bool:
    """Is a column shaded, and not told apart by colours? Topics are numbers that mean nothing."""
    return column != "topic" and (pa.types.is_integer(form) or pa.types.is_floating(form))


def points(database: AuditDatabase, over: str, colour: str, where: str | None = None, most: int = MOST) -> pa.Table:
    """Columns x, y, value, uid_order and, where they are at hand, caption; always the same rows of the same audit."""
    x, y = PLACES[over]
    condition = f"({database.where(where)}) AND {x} IS NOT NULL"
    value = database.column(colour)
    caption = "caption" if database.memory is None or database.in_memory("caption") else "NULL"
    return database.run(
        f"SELECT {x} AS x, {y} AS y, {value} AS value, CAST(uid_order AS VARCHAR) AS uid_order, "
        f"left(CAST({caption} AS VARCHAR), 160) AS caption FROM {database.table(condition, value, caption)} "
        f"WHERE {condition} ORDER BY hash(uid_order), uid_order LIMIT {int(most)}"
    )


def topic_labels(database: AuditDatabase, over: str, where: str | None = None) -> list[TopicLabel]:
    """Each topic at the median of its rows."""
    x, y = PLACES[over]
    condition = f"({database.where(where)}) AND topic IS NOT NULL AND {x} IS NOT NULL"
    found: list[dict[str, Any]] = database.rows(
        f"SELECT topic, median({x}) AS x, median({y}) AS y, count(*) AS rows "
        f"FROM {database.table(condition, x, name('topic'))} WHERE {condition} GROUP BY topic ORDER BY topic"
    )
    known = read_topics(database.files.folder)
    return [TopicLabel(**row, captions=known[row["topic"]] if row["topic"] < len(known) else []) for row in found]

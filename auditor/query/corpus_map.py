"""The map of a corpus: a sample of rows with their positions, names of topics, and shapes drawn on it as SQL.

A shape is a list of corners; two corners are opposite corners of a box, more are a lasso. A shape becomes a condition
that Browse, Thresholds, `query` and `filter` understand.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from auditor.audit_folder.side_files import read_topics
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


Shape = list[tuple[float, float]]
Doubles = npt.NDArray[np.float64]

CORNERS = 24  # of a lasso: hands are not steadier than that, and conditions stay readable
DIGITS = 3  # of places between -1 and 1


def simplified(corners: Sequence[tuple[float, float]]) -> Shape:
    """A lasso with few corners: those without which it would change most (Ramer, Douglas and Peucker)."""
    points = np.asarray(corners, np.float64).reshape(-1, 2)
    tolerance = 10.0**-DIGITS
    kept = points
    while len(kept) > CORNERS:
        kept = points[needed(points, tolerance)]
        tolerance *= 1.5
    return list(dict.fromkeys((round(float(x), DIGITS), round(float(y), DIGITS)) for x, y in kept))


def needed(points: Doubles, tolerance: float) -> list[int]:
    """Places of the points that a line may not pass by at more than a distance."""
    keep, open_parts = {0, len(points) - 1}, [(0, len(points) - 1)]
    while open_parts:
        first, last = open_parts.pop()
        if last - first < 2:
            continue
        away = distances(points[first + 1 : last], points[first], points[last])
        far = int(away.argmax())
        if away[far] > tolerance:
            middle = first + 1 + far
            keep.add(middle)
            open_parts += [(first, middle), (middle, last)]
    return sorted(keep)


def distances(points: Doubles, start: Doubles, end: Doubles) -> Doubles:
    """Of points to the line through two others, or to the one point that they are."""
    along = end - start
    length = float(np.hypot(*along))
    if not length:
        return np.asarray(np.hypot(*(points - start).T))
    return np.asarray(np.abs(along[0] * (points[:, 1] - start[1]) - along[1] * (points[:, 0] - start[0])) / length)


def shapes_sql(shapes: Sequence[Shape], x: str, y: str) -> str:
    """Rows that lie in any of the shapes, by two columns."""
    return " OR ".join(f"({shape_sql(shape, x, y)})" for shape in shapes) or "FALSE"


def shape_sql(shape: Shape, x: str, y: str) -> str:
    """The bounding box; and for a lasso, that a ray to the right leaves it an odd number of times."""
    xs, ys = zip(*shape, strict=True)
    box = f"{x} BETWEEN {min(xs):g} AND {max(xs):g} AND {y} BETWEEN {min(ys):g} AND {max(ys):g}"
    if len(shape) < 3:
        return box
    edges = zip(shape, [*shape[1:], shape[0]], strict=True)
    crossed = [f"CAST({crossing(a, b, x, y)} AS INTEGER)" for a, b in edges if a[1] != b[1]]
    return f"{box} AND ({' + '.join(crossed) or '0'}) % 2 = 1"


def crossing(a: tuple[float, float], b: tuple[float, float], x: str, y: str) -> str:
    """Does the ray to the right of a point cross the edge from a to b?"""
    slope = (b[0] - a[0]) / (b[1] - a[1])
    return f"(({y} > {a[1]:g}) <> ({y} > {b[1]:g}) AND {x} < {a[0]:g} + {slope:.6g} * ({y} - {a[1]:g}))"


def encoded(shapes: Sequence[Shape]) -> str:
    """For a URL: x,y;x,y|x,y;..."""
    return "|".join(";".join(f"{x:g},{y:g}" for x, y in shape) for shape in shapes)


def decoded(text: str) -> list[Shape]:
    """What `encoded` gave; nothing where it makes no sense."""
    try:
        shapes = [[corner(pair) for pair in part.split(";")] for part in text.split("|") if part]
    except ValueError:
        return []
    return [shape for shape in shapes if 2 <= len(shape) <= 2 * CORNERS]


def corner(text: str) -> tuple[float, float]:
    x, y = (float(number) for number in text.split(","))
    if not (abs(x) < 100 and abs(y) < 100):
        raise ValueError(text)
    return round(x, DIGITS), round(y, DIGITS)

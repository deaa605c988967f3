"""The map of a corpus: a sample of rows with their positions, names of topics, and shapes drawn on it as SQL.

A shape is a list of corners; two corners are opposite corners of a box, more are a lasso. A shape becomes a condition
that Browse, Thresholds, `query` and `filter` understand.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from auditor.audit_folder.side_files import read_topics
from auditor.query.database import AuditDatabase
from auditor.query.distributions import Density, compute_density
from auditor.query.sandbox import quote_name
from auditor.vectors import Doubles

PLACES: Mapping[str, tuple[str, str]] = {"media": ("map_x", "map_y"), "captions": ("map_text_x", "map_text_y")}
MOST = 4000  # points drawn
CELLS = 90  # of the density along each side
DRAWN_ROWS = 1_000_000  # about as many rows of a larger audit determine the density and the topics of a map


@dataclass(frozen=True, slots=True)
class TopicLabel:
    """A topic and the position of the row that is nearest to the median of its rows."""

    topic: int
    x: float
    y: float
    rows: int
    captions: list[str]  # the most typical ones


def has_map(database: AuditDatabase) -> bool:
    x, y = PLACES["media"]
    return bool(database.value(f"SELECT count({x}) FROM {database.table(x, y)}"))


def is_shaded_column(column: str, data_type: pa.DataType) -> bool:
    """Whether a column gets a continuous color scale; topic numbers are categories."""
    return column != "topic" and (pa.types.is_integer(data_type) or pa.types.is_floating(data_type))


def sample_points(
    database: AuditDatabase,
    over: str,
    color: str,
    where: str | None = None,
    limit: int = MOST,
    *,
    value_sql: str | None = None,
) -> pa.Table:
    """Return x, y, value, uid_order and, if it can be read quickly, caption; always the same rows of an audit.

    The value is that of the column `color`, or of the auditor's own SQL.
    """
    x, y = PLACES[over]
    condition = f"({database.where(where)}) AND {x} IS NOT NULL"
    value = value_sql or database.column(color)
    caption = "caption" if database.memory is None or database.in_memory("caption") else "NULL"
    return database.run(
        "SELECT x, y, value, CAST(uid_order AS VARCHAR) AS uid_order, left(CAST(caption AS VARCHAR), 160) AS caption "
        f"FROM (SELECT {x} AS x, {y} AS y, {value} AS value, uid_order, {caption} AS caption "
        f"FROM {database.table(condition, value, caption)} "
        f"WHERE {condition} ORDER BY hash(uid_order), uid_order LIMIT {int(limit)}) ORDER BY hash(uid_order), uid_order"
    )


def choose_random_rows(database: AuditDatabase) -> str:
    """Build the condition of about a million rows of a large audit, which are the same each time, or TRUE."""
    share = max(1, int(database.counts["rows"]) // DRAWN_ROWS)
    return f"uid_order % {share} = 0" if share > 1 else "TRUE"


def compute_map_density(database: AuditDatabase, over: str, where: str | None = None) -> Density:
    """Count the rows in cells of a map: about a million rows of a large audit."""
    return compute_density(database, *PLACES[over], where, CELLS, drawn=choose_random_rows(database))


def list_topic_labels(database: AuditDatabase, over: str, where: str | None = None) -> list[TopicLabel]:
    """Return a label for each topic, from about a million rows of a large audit."""
    x, y = PLACES[over]
    condition = (
        f"{choose_random_rows(database)} AND ({database.where(where)}) AND topic IS NOT NULL AND {x} IS NOT NULL"
    )
    rows = database.rows(
        f"WITH places AS (SELECT topic, {x} AS x, {y} AS y "
        f"FROM {database.table(condition, x, quote_name('topic'))} WHERE {condition}), "
        "middles AS (SELECT topic, median(x) AS mx, median(y) AS my, count(*) AS rows FROM places GROUP BY topic) "
        "SELECT topic, arg_min(x, distance) AS x, arg_min(y, distance) AS y, any_value(rows) AS rows FROM "
        "(SELECT *, (x - mx) ** 2 + (y - my) ** 2 AS distance FROM places JOIN middles USING (topic)) "
        "GROUP BY topic ORDER BY topic"
    )
    captions = read_topics(database.files.folder)
    return [TopicLabel(**row, captions=captions[row["topic"]] if row["topic"] < len(captions) else []) for row in rows]


Shape = list[tuple[float, float]]

CORNERS = 24  # of a lasso: more would not be more exact, and conditions stay readable
DIGITS = 3  # of coordinates between -1 and 1


def simplify_lasso(corners: Sequence[tuple[float, float]]) -> Shape:
    """Reduce a lasso to its most important corners (Ramer-Douglas-Peucker)."""
    points = np.asarray(corners, np.float64).reshape(-1, 2)
    tolerance = 10.0**-DIGITS
    remaining = points
    while len(remaining) > CORNERS:
        remaining = points[find_needed_points(points, tolerance)]
        tolerance *= 1.5
    return list(dict.fromkeys((round(float(x), DIGITS), round(float(y), DIGITS)) for x, y in remaining))


def find_needed_points(points: Doubles, tolerance: float) -> list[int]:
    """Return the indices of the points that the simplified line must keep to stay within a tolerance."""
    keep, open_parts = {0, len(points) - 1}, [(0, len(points) - 1)]
    while open_parts:
        first, last = open_parts.pop()
        if last - first < 2:
            continue
        away = measure_distances(points[first + 1 : last], points[first], points[last])
        far = int(away.argmax())
        if away[far] > tolerance:
            middle = first + 1 + far
            keep.add(middle)
            open_parts += [(first, middle), (middle, last)]
    return sorted(keep)


def measure_distances(points: Doubles, start: Doubles, end: Doubles) -> Doubles:
    """Return the distances of points to the line through `start` and `end`, or to that point if they are equal."""
    along = end - start
    length = float(np.hypot(*along))
    if not length:
        return np.asarray(np.hypot(*(points - start).T))
    return np.asarray(np.abs(along[0] * (points[:, 1] - start[1]) - along[1] * (points[:, 0] - start[0])) / length)


def build_shapes_condition(shapes: Sequence[Shape], x: str, y: str) -> str:
    """Build the condition of the rows inside any of the shapes; `x` and `y` are columns."""
    return " OR ".join(f"({build_shape_condition(shape, x, y)})" for shape in shapes) or "FALSE"


def build_shape_condition(shape: Shape, x: str, y: str) -> str:
    """Build the condition of a shape: its bounding box and, for a lasso, an odd number of crossings of a ray."""
    xs, ys = zip(*shape, strict=True)
    box = f"{x} BETWEEN {min(xs):g} AND {max(xs):g} AND {y} BETWEEN {min(ys):g} AND {max(ys):g}"
    if len(shape) < 3:
        return box
    crossed = []
    for (x1, y1), (x2, y2) in zip(shape, [*shape[1:], shape[0]], strict=True):
        if y1 != y2:  # does a ray to the right of a point cross the edge?
            edge = f"{x} < {x1:g} + {(x2 - x1) / (y2 - y1):.6g} * ({y} - {y1:g})"
            crossed.append(f"CAST((({y} > {y1:g}) <> ({y} > {y2:g}) AND {edge}) AS INTEGER)")
    return f"{box} AND ({' + '.join(crossed) or '0'}) % 2 = 1"


def encode_shapes(shapes: Sequence[Shape]) -> str:
    """Encode shapes for a URL: x,y;x,y|x,y;..."""
    return "|".join(";".join(f"{x:g},{y:g}" for x, y in shape) for shape in shapes)


def decode_shapes(text: str) -> list[Shape]:
    """Decode the text of `encode_shapes`; an empty list if it is malformed."""
    try:
        shapes = [[parse_corner(pair) for pair in part.split(";")] for part in text.split("|") if part]
    except ValueError:
        return []
    return [shape for shape in shapes if 2 <= len(shape) <= 2 * CORNERS]


def parse_corner(text: str) -> tuple[float, float]:
    x, y = (float(number) for number in text.split(","))
    if not (abs(x) < 100 and abs(y) < 100):
        raise ValueError(text)
    return round(x, DIGITS), round(y, DIGITS)

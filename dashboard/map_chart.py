"""The chart of the Map page, drawn by Plotly, the only library here with a lasso that works offline.

Plotly reads some HTML, so captions are escaped.
"""

import html
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pyarrow as pa
from scipy.spatial import cKDTree

from auditor.query.distributions import Density, Floats
from auditor.query.map_queries import Shape, TopicLabel, is_shaded_column
from auditor.schema import HIGH_IS_SUSPICIOUS
from auditor.sweep.caption_facts import classify_caption
from dashboard.display_text import column_label, shorten_text

CATEGORY_COLORS = ("#4c8bd9", "#e8743b", "#3aa676", "#b45fd0", "#d9b23a", "#45b7c9", "#d9547a", "#7f8b52", "#9a6b4f")
GRAY = "#8a94a6"
GOOD_TO_BAD = ("#4c8bd9", "#c9b79a", "#e8743b")
NAME_LENGTH = 28  # characters
NAME_SIZE = (0.27, 0.032)  # width and height of a name as shares of the map, in a window of 1440 pixels


def draw_map(
    rows: pa.Table,
    color_column: str,
    topics: Sequence[TopicLabel],
    shapes: Sequence[Shape],
    density: Density | None,
    *,
    sides: Sequence[tuple[float, float]] = ((-1.0, 1.0), (-1.0, 1.0)),
    dark: bool,
) -> Any:
    """Points, the names of topics and the selected shapes; a density below them if not every row is a point.

    `sides` are the ends of the whole map along x and y. The map fills the page, because its coordinates have no unit.
    """
    figure = go.Figure()
    if density is not None:
        figure.add_trace(draw_density_layer(density, dark))
    draw_points = draw_number_points if is_shaded_column(color_column, rows["value"].type) else draw_category_points
    figure.add_traces(draw_points(rows, color_column))
    x_range, y_range = (widen_range(*ends) for ends in sides)
    points = np.column_stack([rows["x"].to_numpy(), rows["y"].to_numpy()])
    places = place_names(topics, points, (x_range, y_range))
    outline = {"type": "path", "line": {"color": "#e8743b", "width": 2}, "layer": "above"}
    figure.update_layout(  # adding annotations one by one copies all of them each time
        annotations=[topic_annotation(topic, place, dark) for topic, place in zip(topics, places, strict=True)],
        shapes=[{**outline, "path": shape_path(shape)} for shape in shapes],
        margin={"l": 0, "r": 0, "t": 0, "b": 0},
        xaxis={"visible": False, "range": x_range},
        yaxis={"visible": False, "range": y_range},
        dragmode="lasso",
        legend={"orientation": "h", "y": -0.02, "itemsizing": "constant"},
        uirevision="map",
    )
    return figure


def draw_density_layer(density: Density, dark: bool) -> Any:
    """The number of rows in each place, on a logarithmic scale."""
    ends = ["rgba(128,128,128,0)", "rgba(160,175,200,0.55)" if dark else "rgba(90,105,130,0.45)"]
    return go.Heatmap(
        z=np.log1p(density.counts),
        x=(density.x_edges[1:] + density.x_edges[:-1]) / 2,
        y=(density.y_edges[1:] + density.y_edges[:-1]) / 2,
        colorscale=[[0, ends[0]], [1, ends[1]]],
        showscale=False,
        hoverinfo="skip",
        zsmooth="best",
    )


def draw_number_points(rows: pa.Table, color_column: str) -> list[Any]:
    """Points colored from good to bad between the 2% and 98% quantiles; points without a value are gray."""
    values = np.array([np.nan if value is None else float(value) for value in rows["value"].to_pylist()])
    finite = np.isfinite(values)
    ends = np.quantile(values[finite], [0.02, 0.98]) if finite.any() else np.array([0.0, 1.0])
    scale = list(GOOD_TO_BAD if color_column in HIGH_IS_SUSPICIOUS else reversed(GOOD_TO_BAD))
    title = {"text": column_label(color_column), "side": "top"}
    bar = {
        "title": title,
        "orientation": "h",
        "thickness": 8,
        "len": 0.5,
        "x": 0,
        "xanchor": "left",
        "y": 0,
        "yanchor": "top",
    }
    limits = {"cmin": float(ends[0]), "cmax": float(ends[1])}
    marker = {"color": values[finite], **limits, "colorscale": scale, "colorbar": bar}
    traces = [draw_dots(rows, np.flatnonzero(~finite), {"color": GRAY}, "no value")] if not finite.all() else []
    return [*traces, draw_dots(rows, np.flatnonzero(finite), marker, column_label(color_column), legend=False)]


def draw_category_points(rows: pa.Table, color_column: str) -> list[Any]:
    """Points with a color for each of the most frequent values; all others are gray."""
    values = np.array(["none" if value is None else str(value) for value in rows["value"].to_pylist()])
    frequent = [value for value, _ in Counter(values.tolist()).most_common(len(CATEGORY_COLORS))]
    prefix = f"{column_label(color_column)} " if color_column == "topic" else ""
    traces = [
        draw_dots(rows, np.flatnonzero(values == value), {"color": color}, shorten_text(prefix + value, 40))
        for value, color in zip(frequent, CATEGORY_COLORS, strict=False)
    ]
    others = np.flatnonzero(~np.isin(values, frequent))
    return [*traces, draw_dots(rows, others, {"color": GRAY}, "others")] if len(others) else traces


def draw_dots(rows: pa.Table, indices: Any, marker: Mapping[str, Any], name: str, *, legend: bool = True) -> Any:
    part = rows.take(pa.array(indices, pa.int64()))
    captions = [escape_text(shorten_text(caption, 90)) for caption in part["caption"].to_pylist()]
    return go.Scatter(
        x=part["x"].to_numpy(),
        y=part["y"].to_numpy(),
        mode="markers",
        name=escape_text(name),
        showlegend=legend,
        marker={"size": 5, "opacity": 0.75, "line": {"width": 0}, **marker},
        customdata=part["uid_order"].to_pylist(),
        text=captions,
        hovertemplate="%{text}<extra></extra>",
        unselected={"marker": {"opacity": 0.75}},
    )


def widen_range(low: float, high: float, share: float = 0.03) -> tuple[float, float]:
    """A range with a margin on both sides, even if its length is zero."""
    margin = share * (high - low) or 0.1
    return low - margin, high + margin


def place_names(
    topics: Sequence[TopicLabel], points: Floats, ranges: Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    """Positions of names beside the points, in the order of topics: the nearest places without points or other names.

    Larger topics choose first. If a name has no free place, it takes the one with the fewest points.
    """
    low, high = np.array(ranges).T
    sides = high - low
    size = np.array(NAME_SIZE) * sides
    steps = np.array([(column, row) for column in range(-4, 5) for row in range(-12, 13)]) * (0.25, 1) * size
    steps = steps[np.argsort(np.hypot(*(steps / sides).T), kind="stable")]
    places: dict[int, tuple[float, float]] = {}
    tree = cKDTree(points / size)
    for number in sorted(range(len(topics)), key=lambda number: -topics[number].rows):
        candidates = np.clip(np.array((topics[number].x, topics[number].y)) + steps, low + size / 2, high - size / 2)
        names = np.array([*places.values()]).reshape(-1, 2)
        over_names = (np.abs(candidates[:, None] - names) < size).all(axis=2).sum(axis=1)
        over_points = tree.query_ball_point(candidates / size, 0.5, p=np.inf, return_length=True)
        best = candidates[np.lexsort((np.arange(len(steps)), over_points, over_names > 0))[0]]
        places[number] = (float(best[0]), float(best[1]))
    return [places[number] for number in range(len(topics))]


def topic_annotation(topic: TopicLabel, place: tuple[float, float], dark: bool) -> dict[str, Any]:
    """The name of a topic: its first typical caption that reads like one, with a line to its middle."""
    readable = [caption for caption in topic.captions if classify_caption(caption) is None]
    name = shorten_text(readable[0], NAME_LENGTH) if readable else f"topic {topic.topic}"
    return {
        "x": topic.x,
        "y": topic.y,
        "ax": place[0],
        "ay": place[1],
        "axref": "x",
        "ayref": "y",
        "text": escape_text(name),
        "arrowhead": 0,
        "arrowwidth": 1,
        "arrowcolor": GRAY,
        "standoff": 4,
        "font": {"size": 12, "color": "#e6eaf0" if dark else "#1c2430"},
        "bgcolor": "rgba(18,22,29,0.72)" if dark else "rgba(255,255,255,0.78)",
        "captureevents": False,
    }


def escape_text(text: str) -> str:
    """Plotly reads tags and these entities; it would show `&quot;` as it is."""
    return html.escape(text, quote=False)


def shape_path(shape: Shape) -> str:
    if len(shape) == 2:
        (x0, y0), (x1, y1) = shape
        shape = [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]
    return "M " + " L ".join(f"{x},{y}" for x, y in shape) + " Z"

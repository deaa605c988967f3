"""The chart of the Map page, by Plotly: the one component that draws a lasso offline. Captions are escaped, as Plotly
reads a little HTML.
"""

import html
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pyarrow as pa

from auditor.query.distributions import Density
from auditor.query.map_sample import TopicLabel, is_number
from auditor.query.map_selection import Shape
from auditor.schema import HIGH_IS_SUSPICIOUS
from dashboard.display_text import label, shortened

COLOURS = ("#4c8bd9", "#e8743b", "#3aa676", "#b45fd0", "#d9b23a", "#45b7c9", "#d9547a", "#7f8b52", "#9a6b4f")
OTHER = "#8a94a6"
GOOD_TO_BAD = ("#4c8bd9", "#c9b79a", "#e8743b")
NAMED = 28  # characters of a topic's name
NAME_SIZE = (0.17, 0.034)  # the share of the map's sides that such a name takes, on a window of 1440 pixels


def map_chart(
    rows: pa.Table,
    colour: str,
    topics: Sequence[TopicLabel],
    shapes: Sequence[Shape],
    density: Density | None,
    *,
    sides: Sequence[tuple[float, float]] = ((-1.0, 1.0), (-1.0, 1.0)),
    dark: bool,
) -> Any:
    """Points over a density where there are more rows than points, names of topics, and the selection.

    `sides` are the ends of the whole map, along x and along y: it fills the page, as places have no unit.
    """
    figure = go.Figure()
    if density is not None:
        figure.add_trace(shaded(density, dark))
    for trace in (shaded_points if is_number(colour, rows["value"].type) else told_apart)(rows, colour):
        figure.add_trace(trace)
    across, along = (widened(*ends) for ends in sides)
    for topic in apart(topics, (across[1] - across[0], along[1] - along[0])):
        figure.add_annotation(**named(topic, dark))
    for shape in shapes:
        figure.add_shape(type="path", path=path_of(shape), line={"color": "#e8743b", "width": 2}, layer="above")
    figure.update_layout(
        height=560,  # of a screen of 720, with the menus above it
        margin={"l": 0, "r": 0, "t": 0, "b": 0},
        xaxis={"visible": False, "range": across},
        yaxis={"visible": False, "range": along},
        dragmode="lasso",
        legend={"orientation": "h", "y": -0.02, "itemsizing": "constant"},
        uirevision="map",
    )
    return figure


def shaded(density: Density, dark: bool) -> Any:
    """How many rows lie where, by the logarithm."""
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


def shaded_points(rows: pa.Table, colour: str) -> list[Any]:
    """Numbers: from good to bad where that is known; extremes do not use up the scale. Those without one are grey."""
    values = np.array([np.nan if value is None else float(value) for value in rows["value"].to_pylist()])
    there = np.isfinite(values)
    ends = np.quantile(values[there], [0.02, 0.98]) if there.any() else np.array([0.0, 1.0])
    scale = list(GOOD_TO_BAD if colour in HIGH_IS_SUSPICIOUS else reversed(GOOD_TO_BAD))
    marker = {
        "color": values[there],
        "cmin": float(ends[0]),
        "cmax": float(ends[1]),
        "colorscale": scale,
        "colorbar": {"title": {"text": label(colour), "side": "right"}, "thickness": 12, "len": 0.6},
    }
    parts = [dots(rows, np.flatnonzero(~there), {"color": OTHER}, "no value")] if not there.all() else []
    return [*parts, dots(rows, np.flatnonzero(there), marker, label(colour), legend=False)]


def told_apart(rows: pa.Table, colour: str) -> list[Any]:
    """Words: a colour for each of the most frequent, grey for the rest."""
    values = ["none" if value is None else str(value) for value in rows["value"].to_pylist()]
    often = [value for value, _ in Counter(values).most_common(len(COLOURS))]
    traces = []
    for value, shade in zip([*often, None], [*COLOURS[: len(often)], OTHER], strict=True):
        at = [i for i, one in enumerate(values) if (one == value if value is not None else one not in often)]
        if at:
            title = "others" if value is None else f"{label(colour)} {value}" if colour == "topic" else value
            traces.append(dots(rows, np.array(at), {"color": shade}, html.escape(shortened(title, 40))))
    return traces


def dots(rows: pa.Table, at: Any, marker: Mapping[str, Any], name: str, *, legend: bool = True) -> Any:
    part = rows.take(pa.array(at, pa.int64()))
    captions = [html.escape(shortened(caption, 90)) for caption in part["caption"].to_pylist()]
    return go.Scatter(
        x=part["x"].to_numpy(),
        y=part["y"].to_numpy(),
        mode="markers",
        name=name,
        showlegend=legend,
        marker={"size": 5, "opacity": 0.75, "line": {"width": 0}, **marker},
        customdata=part["uid_order"].to_pylist(),
        text=captions,
        hovertemplate="%{text}<extra></extra>",
        unselected={"marker": {"opacity": 0.75}},
    )


def widened(low: float, high: float, by: float = 0.03) -> tuple[float, float]:
    """A range with a margin; one of no length gets some."""
    margin = by * (high - low) or 0.1
    return low - margin, high + margin


def apart(topics: Sequence[TopicLabel], sides: tuple[float, float]) -> list[TopicLabel]:
    """Names that do not lie on each other: the largest topic stays, others move up or down by as little as will do."""
    width, height = (share * side for share, side in zip(NAME_SIZE, sides, strict=True))
    moves = sorted((step * height / 2 for step in range(-30, 31)), key=abs)
    placed: list[TopicLabel] = []
    for topic in sorted(topics, key=lambda topic: -topic.rows):
        beside = [other.y for other in placed if abs(other.x - topic.x) < width]
        tried = (topic.y + move for move in moves)
        free = (y for y in tried if all(abs(y - other) >= height * 0.999 for other in beside))
        placed.append(replace(topic, y=next(free, topic.y)))
    return placed


def named(topic: TopicLabel, dark: bool) -> dict[str, Any]:
    words = shortened(topic.captions[0], NAMED) if topic.captions else f"topic {topic.topic}"
    return {
        "x": topic.x,
        "y": topic.y,
        "text": html.escape(words),
        "showarrow": False,
        "font": {"size": 12, "color": "#e6eaf0" if dark else "#1c2430"},
        "bgcolor": "rgba(18,22,29,0.72)" if dark else "rgba(255,255,255,0.78)",
        "borderpad": 2,
        "captureevents": False,
    }


def path_of(shape: Shape) -> str:
    """A shape as an SVG path."""
    if len(shape) == 2:
        (x0, y0), (x1, y1) = shape
        shape = [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]
    return "M " + " L ".join(f"{x},{y}" for x, y in shape) + " Z"

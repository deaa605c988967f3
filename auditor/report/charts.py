"""Charts of the report, the dashboard and `auditor reproduce`, as SVG text.

This module replaces Altair with vl-convert: they would add two seconds and 180 MB of packages to `auditor report`, make
its density charts more than twice as large and fix their colors. These charts take their colors from the style sheet of
the page (charts.css), in light and in dark. A figure, which is a file of its own, carries its title and style inside.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from auditor.query.distributions import Density, Histogram
from auditor.report.plot_area import (
    FIGURE_HEIGHT,
    FIGURE_MARGINS,
    FIGURE_WIDTH,
    LEGEND_MARGINS,
    MARGINS,
    SMALL,
    PlotArea,
    Size,
    draw_axes,
    draw_side_legend,
    draw_top_legend,
    format_compact,
    format_tick_percent,
    make_box,
    make_chart,
    make_element,
    make_figure,
    make_text,
    series_class,
)

CHART_STYLE = Path(__file__).with_name("charts.css")  # style sheet of charts inside a page
Floats = npt.NDArray[np.float64]
Series = Mapping[str, Sequence[tuple[float, float]]]  # name -> points
BAR, BAR_LABEL, BAR_NUMBER = 14.0, 22.0, 48.0  # height of a bar, height of the name above it, width of its number


# -- charts of pages ---------------------------------------------------------------------------------------------------


def draw_bar(area: PlotArea, low: float, high: float, value: float, css_class: str, hint: str) -> Markup:
    start, end, top = area.x(low), area.x(high), area.y(value)
    return make_box(css_class, start + 0.4, top, max(end - start - 0.8, 0.6), area.y(0) - top, hint)


def draw_histogram(
    histogram: Histogram,
    label: str,
    *,
    log: bool = False,
    cut: float | None = None,
    unit: str = "rows",
    size: Size = SMALL,
) -> Markup:
    """Bars, and a dashed line at a threshold."""
    counts = histogram.counts.tolist()
    ends = float(histogram.edges[0]), float(histogram.edges[-1])
    area = PlotArea(*ends, 0, max([*counts, 1]) * 1.05, log, size=size)
    parts = draw_axes(area, label, unit)
    for (low, high), count in zip(pairwise(histogram.edges.tolist()), counts, strict=True):
        if count:
            parts.append(draw_bar(area, low, high, count, "bar", f"{low:.3g} to {high:.3g}: {count:,}"))
    if cut is not None and area.x_low <= cut <= area.x_high:
        x = area.x(cut)
        parts.append(make_element("line", class_="cut", x1=x, x2=x, y1=area.top, y2=area.bottom))
    return make_chart(parts, f"Histogram of {label}", size)


def mixture_shares(histogram: Mapping[str, Any], mismatched: float) -> tuple[Floats, Floats]:
    """The share of pairs in each bin of the score, and the part of it that mismatched pairs explain."""
    observed, null = (np.asarray(histogram[name], np.float64) for name in ("observed", "null"))
    return observed / (observed.sum() or 1), null / (null.sum() or 1) * mismatched


def draw_score_mixture(histogram: Mapping[str, Any], mismatched: float, *, size: Size = SMALL) -> Markup:
    """Observed scores as bars; over them the scores of re-paired captions, scaled to the share of mismatched pairs."""
    observed, null = mixture_shares(histogram, mismatched)
    edges: list[float] = list(histogram["edges"])
    highest = float(max(observed.max(initial=0), null.max(initial=0), 1e-9)) * 1.05
    area = PlotArea(edges[0], edges[-1], 0, highest, root_y=True, size=size)
    x_label, y_label = "mismatch score (low: suspicious)", "share of pairs (square root)"
    parts = draw_axes(area, x_label, y_label, format_y=format_tick_percent)
    for (low, high), share, explained in zip(pairwise(edges), observed.tolist(), null.tolist(), strict=True):
        hint = f"{low:.3g} to {high:.3g}: {share:.2%} of the pairs, {explained:.2%} explained by mismatches"
        parts.append(draw_bar(area, low, high, share, "bar soft", hint))
    centers = [(low + high) / 2 for low, high in pairwise(edges)]
    curve = [area.point(x, y) for x, y in zip(centers, null.tolist(), strict=True)]
    corners = [area.point(centers[0], 0), *curve, area.point(centers[-1], 0)]
    parts.append(make_element("polygon", class_="null", points=" ".join(corners)))
    return make_chart(parts, "Observed mismatch scores and those of random re-pairings", size)


def draw_density(
    density: Density, x_label: str, y_label: str, *, size: Size = SMALL, clickable: bool = False
) -> Markup:
    """Cells shaded by the logarithm of their count, without the margins that hold fewer than 1 in 5,000 rows.

    A clickable cell has a hint and the attribute data-id, `COLUMN-ROW` of the density.
    """
    columns, rows = occupied_bins(density.counts.sum(axis=0)), occupied_bins(density.counts.sum(axis=1))
    x_edges, y_edges = density.x_edges.tolist(), density.y_edges.tolist()
    area = PlotArea(x_edges[columns.start], x_edges[columns.stop], y_edges[rows.start], y_edges[rows.stop], size=size)
    highest = math.log1p(max(int(density.counts[rows, columns].max(initial=0)), 1))
    parts = draw_axes(area, x_label, y_label)
    places = np.add(np.argwhere(density.counts[rows, columns]), (rows.start, columns.start))
    for row, column in places.tolist():
        count = int(density.counts[row, column])
        start, end = area.x(x_edges[column]), area.x(x_edges[column + 1])
        top, bottom = area.y(y_edges[row + 1]), area.y(y_edges[row])
        hint = f"{count:,} rows; {x_label} from {x_edges[column]:.3g}, {y_label} from {y_edges[row]:.3g}"
        link = {"hint": hint, "data_id": f"{column}-{row}"} if clickable else {}
        shade = f"{0.06 + 0.94 * math.log1p(count) / highest:.2f}"
        parts.append(make_box("cell", start, top, end - start + 0.3, bottom - top + 0.3, fill_opacity=shade, **link))
    return make_chart(parts, f"{y_label} against {x_label}", size)


def occupied_bins(counts: npt.NDArray[np.int64]) -> slice:
    """The range of bins that holds nearly all of the counts."""
    share = np.cumsum(counts) / max(int(counts.sum()), 1)
    first = min(int(np.searchsorted(share, 0.0001, side="right")), len(counts) - 1)
    last = min(int(np.searchsorted(share, 0.9999, side="left")), len(counts) - 1)
    return slice(max(first - 1, 0), min(max(last, first) + 2, len(counts)))


def draw_series(area: PlotArea, series: Series, *, dots: bool) -> list[Markup]:
    parts = []
    for number, (name, points) in enumerate(series.items()):
        color, corners = series_class(number), " ".join(area.point(*point) for point in points)
        parts.append(make_element("polyline", class_=f"line {color}", points=corners))
        for x, y in points if dots else ():
            hint = make_element("title", f"{name}: {x:.4g}, {y:.4g}")
            parts.append(make_element("circle", hint, class_=f"dot {color}", cx=area.x(x), cy=area.y(y), r=2.5))
    return parts


def enclosing_range(values: Sequence[float], margin: float = 0.0) -> tuple[float, float]:
    """The ends of the values, widened by a share of their distance."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    padding = (high - low) * margin or (1.0 if margin and high == low else 0.0)
    return low - padding, high + padding


def draw_lines(
    series: Series,
    x_label: str,
    y_label: str,
    *,
    size: Size = SMALL,
    dots: bool = True,
    diagonal: bool = False,
    highlight: int | None = None,
    format_x: Callable[[float], str] = format_compact,
    format_y: Callable[[float], str] = format_compact,
) -> Markup:
    """Lines with a legend above them; the diagonal as a reference, and a highlighted point of the first series."""
    points = [point for line in series.values() for point in line] + ([(0.0, 0.0), (1.0, 1.0)] if diagonal else [])
    legend = list(series) if len(series) > 1 else []
    ends = *enclosing_range([x for x, _ in points]), *enclosing_range([y for _, y in points], 0.05)
    area = PlotArea(*ends, size=size, margins=LEGEND_MARGINS if legend else MARGINS)
    parts = draw_axes(area, x_label, y_label, format_x=format_x, format_y=format_y) + draw_top_legend(area, legend)
    if diagonal:
        parts.append(make_element("polyline", class_="reference", points=f"{area.point(0, 0)} {area.point(1, 1)}"))
    parts += draw_series(area, series, dots=dots)
    if highlight is not None:
        x, y = next(iter(series.values()))[highlight]
        parts.append(make_element("circle", class_="highlight", cx=area.x(x), cy=area.y(y), r=5.0))
    return make_chart(parts, f"{y_label} against {x_label}", size)


def draw_overlaid_histograms(histograms: Mapping[str, Histogram], label: str, *, size: Size = SMALL) -> Markup:
    """Histograms as steps, in shares of their rows, so that their totals do not matter."""
    series = {}
    for name, histogram in histograms.items():
        shares = (histogram.counts / max(histogram.total, 1)).tolist()
        bins = zip(pairwise(histogram.edges.tolist()), shares, strict=True)
        series[name] = [point for (low, high), share in bins for point in ((low, share), (high, share))]
    return draw_lines(series, label, "share of rows", size=size, dots=False, format_y=format_tick_percent)


def draw_grouped_columns(
    groups: Sequence[str], series: Mapping[str, Sequence[float]], x_label: str, y_label: str, *, size: Size = SMALL
) -> Markup:
    """Columns side by side in each group, one for each series; their heights are shares."""
    highest = max((share for shares in series.values() for share in shares), default=0.0) or 1.0
    area = PlotArea(0, max(len(groups), 1), 0, highest * 1.05, size=size, margins=LEGEND_MARGINS)
    parts = draw_axes(area, x_label, y_label, format_y=format_tick_percent, x_names=groups)
    parts += draw_top_legend(area, list(series))
    width = 0.8 / max(len(series), 1)
    for number, (name, shares) in enumerate(series.items()):
        for place, share in enumerate(shares):
            low = place + 0.1 + width * number
            hint = f"{groups[place]}, {name}: {share:.2%}"
            parts.append(draw_bar(area, low, low + width, share, f"column {series_class(number)}", hint))
    return make_chart(parts, f"{y_label} by {x_label}", size)


# -- figures: files of their own ---------------------------------------------------------------------------------------


def draw_line_figure(title: str, x_label: str, y_label: str, series: Series) -> str:
    points = [point for line in series.values() for point in line]
    ends = *enclosing_range([x for x, _ in points]), *enclosing_range([y for _, y in points], 0.08)
    area = PlotArea(*ends, size=(FIGURE_WIDTH, FIGURE_HEIGHT), margins=FIGURE_MARGINS)
    parts = [*draw_axes(area, x_label, y_label), *draw_series(area, series, dots=True), *draw_side_legend(area, series)]
    return make_figure(parts, title, area.size)


def draw_bar_figure(title: str, label: str, series: Mapping[str, Sequence[tuple[str, float]]]) -> str:
    """A figure of horizontal bars from zero with their numbers: a group for each name, a bar for each series."""
    groups = list(dict.fromkeys(group for bars in series.values() for group, _ in bars))
    values = [0.0, *(value for bars in series.values() for _, value in bars if math.isfinite(value))]
    step = BAR_LABEL + BAR * len(series)
    left, right, top, bottom = FIGURE_MARGINS
    height = top + max(step * len(groups), 18 * len(series)) + bottom
    margins = (left, right + BAR_NUMBER, top, bottom)
    area = PlotArea(min(values), max(values), 0, 1, size=(FIGURE_WIDTH, height), margins=margins)
    middle, zero = (area.left + area.right + BAR_NUMBER) / 2, area.x(0)
    parts = [
        make_text(label, "label", middle, height - 12, "middle"),
        make_element("line", class_="gridline", x1=zero, x2=zero, y1=area.top, y2=area.bottom),
        *draw_side_legend(area, series),
    ]
    for place, group in enumerate(groups):
        parts.append(make_text(group, "label", area.left, area.top + step * place + 15))
    for number, bars in enumerate(series.values()):
        for group, value in bars:
            top = area.top + step * groups.index(group) + BAR_LABEL + BAR * number
            start, end = sorted((zero, area.x(value) if math.isfinite(value) else zero))
            parts.append(make_box(f"column {series_class(number)}", start, top, end - start, BAR - 2))
            parts.append(make_text(f"{value:.4g}" if math.isfinite(value) else "unknown", "number", end + 5, top + 10))
    return make_figure(parts, title, area.size)

"""Charts as SVG text: histograms, densities, curves over a histogram, lines and bars. No plotting library needed.

Only numbers and escaped text go into an element, so a chart can stand in a page with the strictest content policy.
Inside a page colours come from its style sheet; `standalone` makes a file of its own, with the same classes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from markupsafe import Markup, escape

from auditor.query.distributions import Density, Histogram

COLOURS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#475569")
STYLE = (
    "text{font-family:sans-serif;fill:#0f172a}.title{font-size:14px}.legend,.label{font-size:12px}"
    ".tick,.figure{font-size:11px}.tick{fill:#64748b}.grid{stroke:#e2e8f0}.line{fill:none;stroke-width:2}"
)
BAR, BAR_LABEL, BAR_FIGURE = 14.0, 22.0, 48.0  # height of a bar and of the name above it, room for the figure behind it


@dataclass(frozen=True, slots=True)
class Frame:
    """The rectangle of a plot, the margins around it, and what its axes mean."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    log_x: bool = False
    root_y: bool = False  # heights by their square root, from zero: small ones can be seen
    width: float = 420.0
    height: float = 210.0
    margins: tuple[float, float, float, float] = (56.0, 10.0, 10.0, 38.0)  # left, right, top, bottom

    @property
    def left(self) -> float:
        return self.margins[0]

    @property
    def right(self) -> float:
        return self.width - self.margins[1]

    @property
    def top(self) -> float:
        return self.margins[2]

    @property
    def bottom(self) -> float:
        return self.height - self.margins[3]

    def x(self, value: float) -> float:
        low, high = self.x_low, self.x_high
        if self.log_x:
            value, low, high = math.log10(value), math.log10(low), math.log10(high)
        return self.left + (value - low) / ((high - low) or 1) * (self.right - self.left)

    def y(self, value: float) -> float:
        part = (value - self.y_low) / ((self.y_high - self.y_low) or 1)
        return self.bottom - (math.sqrt(max(part, 0)) if self.root_y else part) * (self.bottom - self.top)

    def point(self, x: float, y: float) -> str:
        return f"{self.x(x):.1f},{self.y(y):.1f}"


def element(tag: str, content: str = "", /, **attributes: str | float) -> Markup:
    """One element; underscores of attribute names are dashes, numbers have one decimal."""
    written = "".join(
        f' {name.strip("_").replace("_", "-")}="{escape(value if isinstance(value, str) else f"{value:.1f}")}"'
        for name, value in attributes.items()
    )
    return Markup(f"<{tag}{written}/>" if content == "" else f"<{tag}{written}>{escape(content)}</{tag}>")


def joined(parts: Sequence[Markup]) -> Markup:
    return Markup("").join(parts)


def drawing(parts: Sequence[Markup], title: str, width: float, height: float) -> Markup:
    body = joined([element("title", title), *parts])
    return element("svg", body, viewBox=f"0 0 {width:g} {height:g}", role="img", aria_label=title)


def standalone(parts: Sequence[Markup], title: str, width: float, height: float) -> str:
    """A file of its own: white ground, its title and its style inside."""
    shown = [element("rect", width=width, height=height, fill="#ffffff"), element("style", Markup(STYLE))]
    shown.append(element("text", title, class_="title", x=64.0, y=22.0))
    body = joined([*shown, *parts])
    return element("svg", body, xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width:g} {height:g}") + "\n"


def compact(value: float) -> str:
    """1234567 -> 1.2M, 0.25 -> 0.25"""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers inside a range."""
    if not high > low:
        return [low]
    raw = (high - low) / count
    power = 10 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def power_ticks(low: float, high: float) -> list[float]:
    return [10.0**power for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]


def axes(frame: Frame, label: str, y_label: str) -> list[Markup]:
    parts = []
    for value in power_ticks(frame.x_low, frame.x_high) if frame.log_x else nice_ticks(frame.x_low, frame.x_high):
        x, y = frame.x(value), frame.bottom + 15
        parts.append(element("text", compact(value), class_="tick", x=x, y=y, text_anchor="middle"))
    for value in nice_ticks(frame.y_low, frame.y_high, 4):
        y = frame.y(value)
        parts.append(element("line", class_="grid", x1=frame.left, x2=frame.right, y1=y, y2=y))
        parts.append(element("text", compact(value), class_="tick", x=frame.left - 6, y=y + 3.5, text_anchor="end"))
    middle = (frame.left + frame.right) / 2
    parts.append(element("text", label, class_="label", x=middle, y=frame.height - 5, text_anchor="middle"))
    if y_label:
        turned = f"translate(11 {(frame.bottom + frame.top) / 2:g}) rotate(-90)"
        parts.append(element("text", y_label, class_="label", transform=turned, text_anchor="middle"))
    return parts


def bar(frame: Frame, low: float, high: float, value: float, name: str, hint: str = "") -> Markup:
    left, right, top = frame.x(low), frame.x(high), frame.y(value)
    box = {"x": left + 0.4, "y": top, "width": max(right - left - 0.8, 0.6), "height": frame.y(0) - top}
    return element("rect", element("title", hint) if hint else "", class_=name, **box)


def histogram_chart(found: Histogram, label: str, *, log: bool = False, cut: float | None = None) -> Markup:
    """Bars, and a dashed line at a threshold."""
    counts = found.counts.tolist()
    frame = Frame(float(found.edges[0]), float(found.edges[-1]), 0, max([*counts, 1]) * 1.05, log)
    parts = axes(frame, label, "rows")
    for low, high, count in zip(found.edges[:-1].tolist(), found.edges[1:].tolist(), counts, strict=True):
        if count:
            parts.append(bar(frame, low, high, count, "bar", f"{low:.3g} to {high:.3g}: {count:,}"))
    if cut is not None and frame.x_low <= cut <= frame.x_high:
        x = frame.x(cut)
        parts.append(element("line", class_="cut", x1=x, x2=x, y1=frame.top, y2=frame.bottom))
    return drawing(parts, f"Histogram of {label}", frame.width, frame.height)


def null_chart(edges: Sequence[float], observed: Sequence[float], null: Sequence[float], share: float) -> Markup:
    """The observed scores as bars; over them re-paired captions, at the height their estimated share gives them."""
    seen, other = np.asarray(observed, float), np.asarray(null, float)
    seen = seen / (seen.sum() or 1)
    other = other / (other.sum() or 1) * share
    most = float(max(seen.max(initial=0), other.max(initial=0), 1e-9)) * 1.05
    frame = Frame(edges[0], edges[-1], 0, most, root_y=True)
    parts = axes(frame, "mismatch score", "share of pairs (square root)")
    for low, high, value in zip(edges[:-1], edges[1:], seen.tolist(), strict=True):
        parts.append(bar(frame, low, high, value, "bar soft"))
    middles = [(low + high) / 2 for low, high in pairwise(edges)]
    line = [frame.point(x, y) for x, y in zip(middles, other.tolist(), strict=True)]
    ends = frame.point(middles[0], 0), frame.point(middles[-1], 0)
    parts.append(element("polygon", class_="null", points=" ".join([ends[0], *line, ends[1]])))
    return drawing(parts, "Observed mismatch scores and those of random re-pairings", frame.width, frame.height)


def density_chart(found: Density, x_label: str, y_label: str) -> Markup:
    """Cells shaded by the logarithm of their count; the view is cut to where all but one in 5000 rows lie."""
    columns, rows = inner(found.counts.sum(axis=0)), inner(found.counts.sum(axis=1))
    counts = found.counts[rows, columns]
    x_edges = found.x_edges[columns.start : columns.stop + 1]
    y_edges = found.y_edges[rows.start : rows.stop + 1]
    frame = Frame(float(x_edges[0]), float(x_edges[-1]), float(y_edges[0]), float(y_edges[-1]))
    most = math.log1p(max(int(counts.max(initial=0)), 1))
    parts = axes(frame, x_label, y_label)
    for row, column in zip(*np.nonzero(counts), strict=True):
        left, right = frame.x(x_edges[column]), frame.x(x_edges[column + 1])
        top, bottom = frame.y(y_edges[row + 1]), frame.y(y_edges[row])
        box = {"x": left, "y": top, "width": right - left + 0.3, "height": bottom - top + 0.3}
        shade = 0.06 + 0.94 * math.log1p(int(counts[row, column])) / most
        parts.append(element("rect", class_="cell", **box, fill_opacity=f"{shade:.2f}"))
    return drawing(parts, f"{y_label} against {x_label}", frame.width, frame.height)


def inner(counts: np.ndarray) -> slice:
    """The stretch of bins that holds nearly all of the counts."""
    share = np.cumsum(counts) / max(int(counts.sum()), 1)
    first = int(np.searchsorted(share, 0.0001, side="right"))
    last = int(np.searchsorted(share, 0.9999, side="left"))
    first, last = min(first, len(counts) - 1), min(last, len(counts) - 1)
    return slice(max(first - 1, 0), min(max(last, first) + 2, len(counts)))


def line_chart(
    title: str,
    x_label: str,
    y_label: str,
    series: Mapping[str, Sequence[tuple[float, float]]],  # name -> points
) -> str:
    """A file with one line for each series and a legend."""
    points = [point for line in series.values() for point in line]
    xs, ys = [x for x, _ in points] or [0.0, 1.0], [y for _, y in points] or [0.0, 1.0]
    margin = (max(ys) - min(ys)) * 0.08 or 1.0
    around = (64.0, 190.0, 40.0, 52.0)
    frame = Frame(min(xs), max(xs), min(ys) - margin, max(ys) + margin, width=640, height=380, margins=around)
    parts = axes(frame, x_label, y_label)
    for number, (name, line) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        parts.append(element("polyline", class_="line", points=" ".join(frame.point(*p) for p in line), stroke=colour))
        parts += [element("circle", cx=frame.x(x), cy=frame.y(y), r=2.5, fill=colour) for x, y in line]
        parts.append(legend(frame, number, name))
    return standalone(parts, title, frame.width, frame.height)


def bar_chart(
    title: str,
    label: str,
    bars: Mapping[str, Sequence[tuple[str, float]]],  # name -> what each bar stands for, and its length
) -> str:
    """A file of bars that lie, from zero, in one group for each thing they stand for; each with its figure."""
    groups = list(dict.fromkeys(group for line in bars.values() for group, _ in line))
    values = [0.0, *(value for line in bars.values() for _, value in line if math.isfinite(value))]
    step = BAR_LABEL + BAR * len(bars)
    around = (64.0, 190.0 + BAR_FIGURE, 40.0, 52.0)
    height = around[2] + max(step * len(groups), 18 * len(bars)) + around[3]
    frame = Frame(min(values), max(values), 0, 1, width=640, height=height, margins=around)
    middle, zero = (frame.left + frame.right + BAR_FIGURE) / 2, frame.x(0)
    parts = [
        element("text", label, class_="label", x=middle, y=height - 12, text_anchor="middle"),
        element("line", class_="grid", x1=zero, x2=zero, y1=frame.top, y2=frame.bottom),
    ]
    parts += [element("text", g, class_="label", x=64.0, y=frame.top + step * i + 15) for i, g in enumerate(groups)]
    for number, (name, line) in enumerate(bars.items()):
        parts.append(legend(frame, number, name))
        for group, value in line:
            top = frame.top + step * groups.index(group) + BAR_LABEL + BAR * number
            start, end = sorted((zero, frame.x(value) if math.isfinite(value) else zero))
            box = {"x": start, "y": top, "width": end - start, "height": BAR - 2}
            parts.append(element("rect", **box, fill=COLOURS[number % len(COLOURS)]))
            figure = f"{value:.4g}" if math.isfinite(value) else "not known"
            parts.append(element("text", figure, class_="figure", x=end + 5, y=top + 10))
    return standalone(parts, title, frame.width, height)


def legend(frame: Frame, number: int, name: str) -> Markup:
    place = {"x": 640.0 - 190 + 12, "y": frame.top + 18 * number}
    return element("text", name, class_="legend", **place, style=f"fill:{COLOURS[number % len(COLOURS)]}")

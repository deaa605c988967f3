"""The parts that charts are made of: SVG elements, a plot area with its scales, axes and legends.

Only numbers and escaped text enter an element, so a chart fits a page with the strictest content policy.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup, escape

Size = tuple[float, float]  # width and height
SMALL: Size = (420.0, 210.0)
MARGINS = (56.0, 10.0, 10.0, 38.0)  # left, right, top, bottom
LEGEND = 22.0  # height of a legend above the plot
LEGEND_MARGINS = (56.0, 10.0, 10.0 + LEGEND, 38.0)
SERIES_COLORS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#475569")  # of figures
FIGURE_STYLE = (
    "text{font-family:sans-serif;fill:#0f172a}.title{font-size:14px}.legend,.label{font-size:12px}"
    ".tick,.number{font-size:11px}.tick{fill:#64748b}.gridline{stroke:#e2e8f0}"
    ".line{fill:none;stroke:currentColor;stroke-width:2}.dot,.column{fill:currentColor}.legend{fill:currentColor}"
) + "".join(f".series-{number}{{color:{color}}}" for number, color in enumerate(SERIES_COLORS))
FIGURE_WIDTH, FIGURE_HEIGHT = 640.0, 380.0
FIGURE_MARGINS = (64.0, 190.0, 40.0, 52.0)


@dataclass(slots=True)
class PlotArea:
    """The rectangle of a plot, the margins around it, and the scales of its axes."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    log_x: bool = False
    root_y: bool = False  # square-root scale from zero, on which small values stay visible
    size: Size = SMALL
    margins: tuple[float, float, float, float] = MARGINS
    left: float = field(init=False)
    right: float = field(init=False)
    top: float = field(init=False)
    bottom: float = field(init=False)

    def __post_init__(self) -> None:
        (width, height), (self.left, right, self.top, bottom) = self.size, self.margins
        self.right, self.bottom = width - right, height - bottom

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


# -- elements ----------------------------------------------------------------------------------------------------------


def make_element(tag: str, content: str = "", /, **attributes: str | float) -> Markup:
    """An SVG element. Underscores in attribute names become dashes; numbers get one decimal."""
    attribute_text = "".join(
        f' {name.strip("_").replace("_", "-")}="{escape(value if isinstance(value, str) else f"{value:.1f}")}"'
        for name, value in attributes.items()
    )
    return Markup(f"<{tag}{attribute_text}/>" if content == "" else f"<{tag}{attribute_text}>{escape(content)}</{tag}>")


def make_text(text: str, css_class: str, x: float, y: float, anchor: str = "") -> Markup:
    return make_element("text", text, class_=css_class, x=x, y=y, **({"text_anchor": anchor} if anchor else {}))


def make_box(css_class: str, x: float, y: float, width: float, height: float, hint: str = "", **more: str) -> Markup:
    """A rectangle; the hint shows when the pointer rests on it."""
    content = make_element("title", hint) if hint else ""
    return make_element("rect", content, class_=css_class, x=x, y=y, width=width, height=height, **more)


def make_chart(parts: Sequence[Markup], title: str, size: Size) -> Markup:
    body = Markup("").join([make_element("title", title), *parts])
    view_box = f"0 0 {size[0]:g} {size[1]:g}"
    return make_element("svg", body, class_="chart", viewBox=view_box, role="img", aria_label=title)


def make_figure(parts: Sequence[Markup], title: str, size: Size) -> str:
    """A chart as a file of its own, on white, with its title and its style inside."""
    width, height = size
    background = make_element("rect", width=width, height=height, fill="#ffffff")
    heading = make_text(title, "title", FIGURE_MARGINS[0], 22)
    body = Markup("").join([background, make_element("style", Markup(FIGURE_STYLE)), heading, *parts])
    return make_element("svg", body, xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width:g} {height:g}") + "\n"


def series_class(number: int) -> str:
    return f"series-{number % len(SERIES_COLORS)}"


# -- axes --------------------------------------------------------------------------------------------------------------


def format_compact(value: float) -> str:
    """1234567 -> 1.23M, 0.25 -> 0.25"""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def format_tick_percent(value: float) -> str:
    """0.025 -> 2.5%"""
    return f"{100 * value:.3g}%"


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    if not high > low:
        return [low]
    raw = (high - low) / count
    power = 10 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def power_ticks(low: float, high: float) -> list[float]:
    return [10.0**power for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]


def draw_axes(
    area: PlotArea,
    x_label: str,
    y_label: str,
    *,
    format_x: Callable[[float], str] = format_compact,
    format_y: Callable[[float], str] = format_compact,
    x_names: Sequence[str] = (),
) -> list[Markup]:
    """Ticks, horizontal grid lines and labels. With `x_names`, the x axis has a name in the middle of each unit."""
    x_values = power_ticks(area.x_low, area.x_high) if area.log_x else nice_ticks(area.x_low, area.x_high)
    x_ticks = [(place + 0.5, name) for place, name in enumerate(x_names)] or [(v, format_x(v)) for v in x_values]
    parts = [make_text(text, "tick", area.x(value), area.bottom + 15, "middle") for value, text in x_ticks]
    for value in nice_ticks(area.y_low, area.y_high, 4):
        y = area.y(value)
        parts.append(make_element("line", class_="gridline", x1=area.left, x2=area.right, y1=y, y2=y))
        parts.append(make_text(format_y(value), "tick", area.left - 6, y + 3.5, "end"))
    parts.append(make_text(x_label, "label", (area.left + area.right) / 2, area.size[1] - 5, "middle"))
    if y_label:
        rotation = f"translate(11 {(area.bottom + area.top) / 2:g}) rotate(-90)"
        parts.append(make_element("text", y_label, class_="label", transform=rotation, text_anchor="middle"))
    return parts


def draw_top_legend(area: PlotArea, names: Sequence[str]) -> list[Markup]:
    """Names of series in one line above the plot, each in its color."""
    parts, x = [], area.left
    for number, name in enumerate(names):
        parts.append(make_box(f"column {series_class(number)}", x, area.top - LEGEND + 4, 10, 10, rx="2.0"))
        parts.append(make_text(name, "label", x + 15, area.top - LEGEND + 13))
        x += 35 + 6.2 * len(name)
    return parts


def draw_side_legend(area: PlotArea, names: Mapping[str, object]) -> list[Markup]:
    """Names of series at the right of a figure, each in its color."""
    x = FIGURE_WIDTH - FIGURE_MARGINS[1] + 12
    return [
        make_text(name, f"legend {series_class(number)}", x, area.top + 18 * number)
        for number, name in enumerate(names)
    ]

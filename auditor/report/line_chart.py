"""Charts as SVG files of their own, lines or bars, with axes and a legend. No plotting library needed."""

import math
from collections.abc import Mapping, Sequence
from html import escape

COLOURS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#475569")
WIDTH, HEIGHT = 640.0, 380.0
LEFT, RIGHT, TOP, BOTTOM = 64.0, 190.0, 40.0, 52.0
BAR, BAR_LABEL, BAR_FIGURE = 14.0, 22.0, 48.0  # height of a bar and of the name above it, room for the figure behind it


def line_chart(
    title: str,
    x_label: str,
    y_label: str,
    series: Mapping[str, Sequence[tuple[float, float]]],  # name -> points
) -> str:
    points = [point for line in series.values() for point in line]
    xs, ys = [x for x, _ in points] or [0.0, 1.0], [y for _, y in points] or [0.0, 1.0]
    x_low, x_high, y_low, y_high = min(xs), max(xs), min(ys), max(ys)
    margin = (y_high - y_low) * 0.08 or 1.0
    y_low, y_high = y_low - margin, y_high + margin

    def x(value: float) -> float:
        return LEFT + (value - x_low) / ((x_high - x_low) or 1.0) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (value - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)

    parts = [
        _opening(title, HEIGHT),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, x_label, anchor="middle"),
        _text(10, TOP - 10, y_label),
    ]
    for step in range(5):
        level = y_low + (y_high - y_low) * step / 4
        place = x_low + (x_high - x_low) * step / 4
        parts.append(f'<path d="M{LEFT:g} {y(level):.1f}H{WIDTH - RIGHT:g}" stroke="#e2e8f0" fill="none"/>')
        parts.append(_text(LEFT - 6, y(level) + 4, f"{level:.3g}", anchor="end"))
        parts.append(_text(x(place), HEIGHT - BOTTOM + 18, f"{place:.3g}", anchor="middle"))
    for number, (name, line) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in line)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="2.5" fill="{colour}"/>' for a, b in line]
        parts.append(_legend(number, name))
    return "".join(parts) + "</svg>\n"


def bar_chart(
    title: str,
    label: str,
    bars: Mapping[str, Sequence[tuple[str, float]]],  # name -> what each bar stands for, and its length
) -> str:
    """Bars that lie, from zero, in one group for each thing they stand for; each with its figure."""
    groups = list(dict.fromkeys(group for line in bars.values() for group, _ in line))
    values = [0.0, *(value for line in bars.values() for _, value in line if math.isfinite(value))]
    low, high = min(values), max(values)
    step = BAR_LABEL + BAR * len(bars)
    bottom = TOP + max(step * len(groups), 18 * len(bars))

    def x(value: float) -> float:
        return LEFT + (value - low) / ((high - low) or 1.0) * (WIDTH - LEFT - RIGHT - BAR_FIGURE)

    parts = [
        _opening(title, bottom + BOTTOM),
        _text((LEFT + WIDTH - RIGHT) / 2, bottom + BOTTOM - 12, label, anchor="middle"),
        f'<path d="M{x(0):.1f} {TOP:g}V{bottom:.1f}" stroke="#e2e8f0" fill="none"/>',
        *(_text(LEFT, TOP + step * row + 15, group) for row, group in enumerate(groups)),
    ]
    for number, (name, line) in enumerate(bars.items()):
        parts.append(_legend(number, name))
        for group, value in line:
            top = TOP + step * groups.index(group) + BAR_LABEL + BAR * number
            known = value if math.isfinite(value) else 0.0
            start, end = sorted((x(0), x(known)))
            parts.append(
                f'<rect x="{start:.1f}" y="{top:.1f}" width="{end - start:.1f}" height="{BAR - 2:g}" '
                f'fill="{COLOURS[number % len(COLOURS)]}"/>'
            )
            parts.append(_text(end + 5, top + 10, f"{value:.4g}" if math.isfinite(value) else "not known", size=11))
    return "".join(parts) + "</svg>\n"


def _opening(title: str, height: float) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {height:g}" font-family="sans-serif" '
        f'font-size="12"><rect width="{WIDTH:g}" height="{height:g}" fill="#ffffff"/>' + _text(LEFT, 22, title, size=14)
    )


def _legend(number: int, name: str) -> str:
    return _text(WIDTH - RIGHT + 12, TOP + 18 * number, name, colour=COLOURS[number % len(COLOURS)])


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12, colour: str = "#0f172a") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}">{escape(text)}</text>'
    )

"""Small charts as SVG text: histograms, curves over a histogram, densities. Colours come from the page's style sheet.

Only numbers and escaped labels go into the text, so a chart can stand in a page with the strictest content policy.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

import numpy as np

from auditor.query.distributions import Density, Histogram

WIDTH, HEIGHT = 420.0, 210.0
LEFT, RIGHT, TOP, BOTTOM = 56.0, 10.0, 10.0, 38.0


@dataclass(frozen=True, slots=True)
class Frame:
    """The rectangle of a plot and what its axes mean."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    log_x: bool = False

    def x(self, value: float) -> float:
        low, high = self.x_low, self.x_high
        if self.log_x:
            value, low, high = math.log10(value), math.log10(low), math.log10(high)
        return LEFT + (value - low) / ((high - low) or 1) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (value - self.y_low) / ((self.y_high - self.y_low) or 1) * (HEIGHT - TOP - BOTTOM)


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


def axes(frame: Frame, label: str, y_label: str) -> str:
    parts = []
    for value in power_ticks(frame.x_low, frame.x_high) if frame.log_x else nice_ticks(frame.x_low, frame.x_high):
        x = frame.x(value)
        parts.append(
            f'<text class="tick" x="{x:.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{compact(value)}</text>'
        )
    for value in nice_ticks(frame.y_low, frame.y_high, 4):
        y = frame.y(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{compact(value)}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text class="label" x="{middle}" y="{HEIGHT - 5}" text-anchor="middle">{escape(label)}</text>')
    if y_label:
        parts.append(
            f'<text class="label" transform="translate(11 {(HEIGHT - BOTTOM + TOP) / 2}) rotate(-90)" '
            f'text-anchor="middle">{escape(y_label)}</text>'
        )
    return "".join(parts)


def svg(body: str, title: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{escape(title, quote=True)}">'
        f"<title>{escape(title)}</title>{body}</svg>"
    )


def histogram_chart(found: Histogram, label: str, *, log: bool = False, cut: float | None = None) -> str:
    """Bars, and a dashed line at a threshold."""
    counts = found.counts.tolist()
    frame = Frame(float(found.edges[0]), float(found.edges[-1]), 0, max([*counts, 1]) * 1.05, log)
    parts = [axes(frame, label, "rows")]
    for low, high, count in zip(found.edges[:-1].tolist(), found.edges[1:].tolist(), counts, strict=True):
        if count:
            left, right, top = frame.x(low), frame.x(high), frame.y(count)
            parts.append(
                f'<rect class="bar" x="{left + 0.4:.1f}" y="{top:.1f}" width="{max(right - left - 0.8, 0.6):.1f}" '
                f'height="{frame.y(0) - top:.1f}"><title>{low:.3g} to {high:.3g}: {count:,}</title></rect>'
            )
    if cut is not None and frame.x_low <= cut <= frame.x_high:
        x = frame.x(cut)
        parts.append(f'<line class="cut" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
    return svg("".join(parts), f"Histogram of {label}")


def null_chart(edges: Sequence[float], observed: Sequence[float], null: Sequence[float], share: float) -> str:
    """The observed scores as bars; over them re-paired captions, at the height their estimated share gives them."""
    seen, other = np.asarray(observed, float), np.asarray(null, float)
    seen = seen / (seen.sum() or 1)
    other = other / (other.sum() or 1) * share
    frame = Frame(edges[0], edges[-1], 0, float(max(seen.max(initial=0), other.max(initial=0), 1e-9)) * 1.05)
    parts = [axes(frame, "mismatch score", "share of pairs")]
    for low, high, value in zip(edges[:-1], edges[1:], seen.tolist(), strict=True):
        left, right, top = frame.x(low), frame.x(high), frame.y(value)
        width, height = max(right - left - 0.8, 0.6), frame.y(0) - top
        parts.append(
            f'<rect class="bar soft" x="{left + 0.4:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}"/>'
        )
    middles = [(low + high) / 2 for low, high in pairwise(edges)]
    line = " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in zip(middles, other.tolist(), strict=True))
    first, last = frame.x(middles[0]), frame.x(middles[-1])
    parts.append(f'<polygon class="null" points="{first:.1f},{frame.y(0):.1f} {line} {last:.1f},{frame.y(0):.1f}"/>')
    return svg("".join(parts), "Observed mismatch scores and those of random re-pairings")


def density_chart(found: Density, x_label: str, y_label: str) -> str:
    """Cells shaded by the logarithm of their count; the view is cut to where all but one in 5000 rows lie."""
    columns, rows = inner(found.counts.sum(axis=0)), inner(found.counts.sum(axis=1))
    counts = found.counts[rows, columns]
    x_edges = found.x_edges[columns.start : columns.stop + 1]
    y_edges = found.y_edges[rows.start : rows.stop + 1]
    frame = Frame(float(x_edges[0]), float(x_edges[-1]), float(y_edges[0]), float(y_edges[-1]))
    most = math.log1p(max(int(counts.max(initial=0)), 1))
    parts = [axes(frame, x_label, y_label)]
    for row, column in zip(*np.nonzero(counts), strict=True):
        left, right = frame.x(x_edges[column]), frame.x(x_edges[column + 1])
        top, bottom = frame.y(y_edges[row + 1]), frame.y(y_edges[row])
        count = int(counts[row, column])
        parts.append(
            f'<rect class="cell" x="{left:.1f}" y="{top:.1f}" width="{right - left + 0.3:.1f}" '
            f'height="{bottom - top + 0.3:.1f}" fill-opacity="{0.06 + 0.94 * math.log1p(count) / most:.2f}"/>'
        )
    return svg("".join(parts), f"{y_label} against {x_label}")


def inner(counts: np.ndarray) -> slice:
    """The stretch of bins that holds nearly all of the counts."""
    share = np.cumsum(counts) / max(int(counts.sum()), 1)
    first = int(np.searchsorted(share, 0.0001, side="right"))
    last = int(np.searchsorted(share, 0.9999, side="left"))
    first, last = min(first, len(counts) - 1), min(last, len(counts) - 1)
    return slice(max(first - 1, 0), min(max(last, first) + 2, len(counts)))

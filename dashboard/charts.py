"""The charts of the pages, by Altair; colours are such that both themes can show them. Nothing of the corpus's text
goes into a chart: axes and tooltips are numbers and words of ours.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from dashboard.benchmark_results import ORDERS
from dashboard.display_text import label

BLUE, ORANGE, GREEN, GREY = "#4c8bd9", "#e8743b", "#3aa676", "#8a94a6"
SERIES = (BLUE, ORANGE, GREEN, GREY)
TOP = alt.Legend(orient="top", offset=2, padding=0)
Records = Sequence[Mapping[str, Any]]
Chart = Any  # Altair's own types do not survive its methods


def frame(records: Records) -> pd.DataFrame:
    return pd.DataFrame(list(records))


def histogram(
    records: Records,
    title: str,
    *,
    log: bool = False,
    cut: float | None = None,
    height: int = 220,
    of: str = "rows",
) -> Chart:
    """Bars of equal width, or of equal ratio; a dashed line at a threshold."""
    scale = alt.Scale(type="log", nice=False) if log else alt.Scale(zero=False, nice=False)
    bars = (
        alt.Chart(frame(records))
        .mark_bar(color=BLUE, binSpacing=0)
        .encode(
            x=alt.X(
                "low:Q", bin="binned", title=title, scale=scale, axis=alt.Axis(grid=False, format="~s" if log else "~g")
            ),
            x2="high:Q",
            y=alt.Y("rows:Q", title=of, axis=alt.Axis(format="~s")),
            tooltip=[
                alt.Tooltip("low:Q", title="from", format=".3~g"),
                alt.Tooltip("high:Q", title="to", format=".3~g"),
                alt.Tooltip("rows:Q", title=of, format=","),
            ],
        )
        .properties(height=height)
    )
    if cut is None:
        return bars
    line = alt.Chart(pd.DataFrame({"cut": [cut]})).mark_rule(color=ORANGE, strokeDash=[5, 4], size=2).encode(x="cut:Q")
    return alt.layer(bars, line)


def null_chart(records: Records) -> Chart:
    """All pairs by score, and the share of them that random re-pairings explain; on a root, or nobody sees a few %."""
    data = frame(records).melt(["low", "high"], var_name="which", value_name="share")
    colours = alt.Scale(domain=["all pairs", "mismatched"], range=[BLUE, ORANGE])
    return (
        alt.Chart(data)
        .mark_bar(binSpacing=0, opacity=0.75)
        .encode(
            x=alt.X(
                "low:Q",
                bin="binned",
                title="mismatch score (low: suspicious)",
                scale=alt.Scale(zero=False, nice=False),
                axis=alt.Axis(grid=False),
            ),
            x2="high:Q",
            y=alt.Y(
                "share:Q",
                title="share of pairs (square-root axis)",
                stack=None,
                scale=alt.Scale(type="sqrt"),
                axis=alt.Axis(format=".2~%", tickCount=6),
            ),
            color=alt.Color("which:N", title=None, scale=colours, legend=TOP),
            tooltip=[
                alt.Tooltip("low:Q", title="score from", format=".3~g"),
                "which:N",
                alt.Tooltip("share:Q", format=".2%"),
            ],
        )
        .properties(height=340)
    )


def density(records: Records, x: str, y: str) -> Chart:
    """Cells shaded by the logarithm of their rows; one can be clicked."""
    picked = alt.selection_point(name="cell", fields=["x_low", "x_high", "y_low", "y_high"], on="click", clear=False)
    axis = alt.Axis(grid=False, format="~g")
    return (
        alt.Chart(frame(records))
        .mark_rect(cursor="pointer", stroke=None)
        .encode(
            x=alt.X("x_low:Q", title=label(x), scale=alt.Scale(zero=False, nice=False), axis=axis),
            x2="x_high:Q",
            y=alt.Y("y_low:Q", title=label(y), scale=alt.Scale(zero=False, nice=False), axis=axis),
            y2="y_high:Q",
            color=alt.Color(
                "rows:Q", scale=alt.Scale(type="log", scheme="viridis"), legend=alt.Legend(title="rows", format="~s")
            ),
            tooltip=[
                alt.Tooltip("rows:Q", format=","),
                alt.Tooltip("x_low:Q", title=f"{label(x)} from", format=".3~g"),
                alt.Tooltip("y_low:Q", title=f"{label(y)} from", format=".3~g"),
            ],
        )
        .add_params(picked)
        .properties(height=420)
    )


def counts(values: Mapping[str, int]) -> Chart:
    """Horizontal bars, the longest first, with their numbers."""
    data = pd.DataFrame({"what": list(values), "rows": list(values.values())})
    base = alt.Chart(data).encode(
        y=alt.Y("what:N", sort=None, title=None, axis=alt.Axis(labelLimit=240)),
        x=alt.X("rows:Q", axis=None),  # the bars carry their numbers
        tooltip=["what:N", alt.Tooltip("rows:Q", format=",")],
    )
    text = base.mark_text(align="left", dx=4, color=GREY).encode(text=alt.Text("rows:Q", format=","))
    return alt.layer(base.mark_bar(color=BLUE), text).properties(height=34 * len(data) + 10)


def frames(records: Records, best: int | None) -> Chart:
    """Similarity of each frame to the caption over time; the best one marked."""
    data = frame(records)
    data["best"] = [i == best for i in range(len(data))]
    base = alt.Chart(data).encode(
        x=alt.X("time:Q", title="seconds", axis=alt.Axis(tickCount=8, grid=False)),
        y=alt.Y("similarity:Q", title="similarity of the frame", scale=alt.Scale(zero=False)),
        tooltip=[alt.Tooltip("time:Q", format=".2f"), alt.Tooltip("similarity:Q", format=".3f")],
    )
    points = base.mark_point(filled=True, size=90, opacity=1).encode(
        color=alt.condition(alt.datum.best, alt.value(ORANGE), alt.value(BLUE))
    )
    return alt.layer(base.mark_line(color=BLUE), points).properties(height=200)


def lines(records: Records, x: str, y: str, x_title: str, y_title: str, *, percent: bool = False) -> Chart:
    """One line for each of the ways to order items, always in the same colour."""
    names = list(ORDERS.values())
    colours = alt.Scale(domain=names, range=[BLUE, ORANGE, GREY])
    return (
        alt.Chart(frame(records))
        .mark_line(point=alt.OverlayMarkDef(size=45))
        .encode(
            x=alt.X(f"{x}:Q", title=x_title, axis=alt.Axis(format="%" if percent else "", tickCount=10)),
            y=alt.Y(f"{y}:Q", title=y_title, scale=alt.Scale(zero=False)),
            color=alt.Color("series:N", title=None, scale=colours, legend=TOP),
            tooltip=["series:N", alt.Tooltip(f"{x}:Q", format=".3~g"), alt.Tooltip(f"{y}:Q", format=".3~f")],
        )
        .properties(height=280)
    )


def calibration(records: Records) -> Chart:
    """Predicted against observed recall; a calibrated score lies on the diagonal."""
    diagonal = alt.Chart(pd.DataFrame({"x": [0, 1], "y": [0, 1]})).mark_line(color=GREY, strokeDash=[4, 4])
    drawn = lines(records, "predicted", "seen", "predicted share of hits", "observed share of hits")
    return alt.layer(diagonal.encode(x="x:Q", y="y:Q"), drawn)


def overlaid(records: Records, title: str) -> Chart:
    """Histograms of two audits as steps, by share so that sizes do not matter."""
    return (
        alt.Chart(frame(records))
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(
            x=alt.X("low:Q", title=title, scale=alt.Scale(zero=False, nice=False), axis=alt.Axis(grid=False)),
            y=alt.Y("share:Q", title="share of rows", axis=alt.Axis(format="%")),
            color=alt.Color("audit:N", title=None, scale=alt.Scale(range=SERIES), legend=TOP),
            tooltip=[
                "audit:N",
                alt.Tooltip("low:Q", title="from", format=".3~g"),
                alt.Tooltip("share:Q", format=".2%"),
            ],
        )
        .properties(height=280)
    )


def shares(records: Records) -> Chart:
    """The share of each topic in the whole and in the kept set, side by side."""
    data = frame(records).melt(["topic"], var_name="of", value_name="share")
    return (
        alt.Chart(data)
        .mark_bar()
        .encode(
            x=alt.X("topic:N", title="topic", sort=None, axis=alt.Axis(labelAngle=0)),
            xOffset=alt.XOffset("of:N", sort=["all", "kept"]),
            y=alt.Y("share:Q", title="share of rows", axis=alt.Axis(format="%")),
            color=alt.Color(
                "of:N",
                title=None,
                scale=alt.Scale(domain=["all", "kept"], range=[GREY, BLUE]),
                legend=TOP,
            ),
            tooltip=["topic:N", "of:N", alt.Tooltip("share:Q", format=".2%")],
        )
        .properties(height=240)
    )

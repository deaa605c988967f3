"""Shows the SVG charts of auditor/report/charts.py on a page, in the colors of its theme."""

from pathlib import Path

import streamlit as st

from auditor.report.charts import CHART_STYLE

HALF, FULL = (540.0, 250.0), (1100.0, 420.0)  # sizes of charts in a column and over the whole page
THEME_COLORS = """
.chart-box {
  font-family: var(--st-font);
  --accent: #4c8bd9; --soft: #8fb4e6; --warm: #e8743b; --line: var(--st-border-color);
  --quiet: color-mix(in srgb, var(--st-text-color) 65%, transparent);
}
"""

_chart_component = st.components.v2.component(
    "auditor_chart",
    css=THEME_COLORS + CHART_STYLE.read_text(encoding="utf-8"),
    js=Path(__file__).with_name("chart.js").read_text(encoding="utf-8"),
)


def show_chart(svg: str, key: str) -> str | None:
    """Show a chart and return the data-id of the element that the user has just clicked, if any."""
    result = _chart_component(key=f"chart-{key}", data={"svg": svg}, on_clicked_change=lambda: None)
    clicked: str | None = result.clicked
    return clicked

"""Altair charts of an audit, to change or combine in a notebook: `audit.plot.mixture()`.

The data are inside a chart, as plain values, and bounded: bins, or a sample of the rows.
"""

from typing import Any

from auditor.errors import AuditorError
from auditor.keep.thresholds import STEPS, compute_cuts, count_pairs
from auditor.query.database import AuditDatabase
from auditor.query.map_queries import PLACES, is_shaded_column, sample_points
from auditor.query.row_queries import check_whole_number
from auditor.query.summary import summarize_audit
from auditor.report.charts import mixture_shares
from auditor.report.report import find_mixtures

POINTS = 2000  # of the map
CAPTION = 80  # characters that a point shows
CUTS = 51


class Plots:
    """The charts of one audit."""

    def __init__(self, database: AuditDatabase) -> None:
        self.database = database

    def mixture(self) -> Any:
        """Observed mismatch scores (bars), and the part that mismatched pairs explain (line), by kind."""
        alt = import_altair()
        rows = []
        for noise, scores in find_mixtures(self.database, summarize_audit(self.database)):
            edges = list(scores["edges"])
            for low, high, share, null in zip(edges, edges[1:], *mixture_shares(scores, noise.share), strict=False):
                rows.append({"kind": noise.kind, "low": low, "high": high, "share": share, "mismatched": null})
        chart = alt.Chart(make_data(rows, "the scores of pairs"))
        x = alt.X("low:Q").title("mismatch score (low: suspicious)")
        y = alt.Y("share:Q").scale(type="sqrt", domainMin=0).axis(format="%").title("share of pairs")
        ends = {"x2": "high:Q", "y2": alt.datum(0)}
        bars = chart.mark_rect(opacity=0.5).encode(x, y, **ends, tooltip=["share:Q", "mismatched:Q"])
        line = chart.mark_line(color="#d1495b").encode(x, y="mismatched:Q")
        return alt.layer(bars, line).properties(width=320, height=200).facet(alt.Column("kind:N").title(None))

    def map(self, over: str = "media", color: str = "p_mismatch", where: str | None = None, n: int = POINTS) -> Any:
        """The map of media or captions: a sample of n rows, colored by a column."""
        alt = import_altair()
        if over not in PLACES:
            raise AuditorError(f"over must be {' or '.join(PLACES)}, not {over!r}")
        points = sample_points(self.database, over, color, where, check_whole_number("n", n, 1))
        kind = "Q" if is_shaded_column(color, points.schema.field("value").type) else "N"
        rows = [
            {"x": round(row["x"], 3), "y": round(row["y"], 3), color: row["value"]}
            | {"caption": (row["caption"] or "")[:CAPTION]}
            for row in points.to_pylist()
        ]
        chart = (
            alt.Chart(make_data(rows, "positions on the map")).mark_circle(size=24).properties(width=520, height=420)
        )
        axes = alt.X("x:Q").axis(None), alt.Y("y:Q").axis(None)
        return chart.encode(*axes, color=f"{color}:{kind}", tooltip=["caption:N", f"{color}:{kind}"]).interactive()

    def thresholds(self, where: str | None = None) -> Any:
        """What each cut-off of p_mismatch removes, catches, loses and leaves, with 90% intervals."""
        alt = import_altair()
        places = [round(step * STEPS / (CUTS - 1)) / STEPS for step in range(CUTS)]
        rows = [
            {"cut": cut.p, "share": title}
            | {
                end: getattr(cut, f"{name}{suffix}")
                for end, suffix in (("value", ""), ("low", "_low"), ("high", "_high"))
            }
            for cut in compute_cuts(count_pairs(self.database, where), places)
            for title, name in cut.SHARES.items()
        ]
        chart = alt.Chart(make_data(rows, "cut-offs"))
        x, color = (
            alt.X("cut:Q").title("cut-off of p_mismatch"),
            alt.Color("share:N").title(None).sort(None).legend(symbolOpacity=1),
        )
        y = alt.Y("value:Q").axis(format="%").title("share, with 90% interval")
        band = chart.mark_area(opacity=0.2).encode(x, alt.Y("low:Q"), alt.Y2("high:Q"), color)
        return alt.layer(chart.mark_line().encode(x, y, color), band).properties(width=480, height=260)


def import_altair() -> Any:
    try:
        import altair
    except ModuleNotFoundError:
        raise AuditorError("Altair is not installed; pip install 'pau-auditor[notebook]'") from None
    return altair


def make_data(rows: list[dict[str, Any]], words: str) -> Any:
    if not rows:
        raise AuditorError(f"this audit has no {words}: it has too few pairs, or it is not scored yet")
    return import_altair().InlineData(values=rows)

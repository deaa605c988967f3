"""Altair charts of an audit, to change or combine in a notebook. Their data are bins, or a sample of the rows."""

from typing import Any

from auditor.errors import AuditorError
from auditor.keep.thresholds import compute_cuts, count_pairs
from auditor.query.database import AuditDatabase
from auditor.query.map_queries import PLACES, is_shaded_column, sample_points
from auditor.query.row_queries import check_whole_number
from auditor.query.summary import summarize_audit
from auditor.report.charts import mixture_shares
from auditor.report.report import find_mixtures

CAPTION = 80  # characters of a hint
CUTS = 50


class Plots:
    def __init__(self, database: AuditDatabase) -> None:
        self.database = database
        try:
            import altair
        except ModuleNotFoundError:
            raise AuditorError("Altair is not installed; pip install 'pau-auditor[notebook]'") from None
        self.alt: Any = altair

    def start_chart(self, rows: list[dict[str, Any]]) -> Any:
        if not rows:
            raise AuditorError("there is nothing to draw: the audit has too few pairs, or it is not scored yet")
        return self.alt.Chart(self.alt.InlineData(values=rows))

    def mixture(self) -> Any:
        """Observed mismatch scores (bars), and the part that mismatched pairs explain (line), by kind."""
        alt = self.alt
        rows = []
        for noise, scores in find_mixtures(self.database, summarize_audit(self.database)):
            edges = list(scores["edges"])
            for low, high, share, null in zip(edges, edges[1:], *mixture_shares(scores, noise.share), strict=False):
                rows.append({"kind": noise.kind, "low": low, "high": high, "share": share, "mismatched": null})
        chart, x = self.start_chart(rows), alt.X("low:Q").title("mismatch score (low: suspicious)")
        y = alt.Y("share:Q").scale(type="sqrt", domainMin=0).axis(format="%").title("share of pairs")
        hints = ["share:Q", "mismatched:Q"]
        bars = chart.mark_rect(opacity=0.5).encode(x, y, x2="high:Q", y2=alt.datum(0), tooltip=hints)
        line = chart.mark_line(color="#d1495b").encode(x, y="mismatched:Q")
        return alt.layer(bars, line).properties(width=320, height=200).facet(alt.Column("kind:N").title(None))

    def map(self, over: str = "media", color: str = "p_mismatch", where: str | None = None, n: int = 2000) -> Any:
        """The map of media or captions: a sample of n rows, colored by a column."""
        alt = self.alt
        if over not in PLACES:
            raise AuditorError(f"over must be {' or '.join(PLACES)}, not {over!r}")
        points = sample_points(self.database, over, color, where, check_whole_number("n", n, 1))
        value = f"{color}:{'Q' if is_shaded_column(color, points.schema.field('value').type) else 'N'}"
        rows = [
            {"x": round(row["x"], 3), "y": round(row["y"], 3), color: row["value"]}
            | {"caption": (row["caption"] or "")[:CAPTION]}
            for row in points.to_pylist()
        ]
        axes = alt.X("x:Q").axis(None), alt.Y("y:Q").axis(None)
        chart = self.start_chart(rows).mark_circle(size=24).encode(*axes, color=value, tooltip=["caption:N", value])
        return chart.properties(width=520, height=420).interactive()

    def thresholds(self, where: str | None = None) -> Any:
        """What each cut-off of p_mismatch removes, catches, loses and leaves, with 90% intervals."""
        alt = self.alt
        ends = ("", "_low", "_high")
        rows = [
            {"cut": cut.p, "share": title, **{f"value{end}": getattr(cut, name + end) for end in ends}}
            for cut in compute_cuts(count_pairs(self.database, where), [step / CUTS for step in range(CUTS + 1)])
            for title, name in cut.SHARES.items()
        ]
        color = alt.Color("share:N").title(None).sort(None).legend(symbolOpacity=1)
        chart, x = self.start_chart(rows), alt.X("cut:Q").title("cut-off of p_mismatch")
        line = chart.mark_line().encode(x, alt.Y("value:Q").axis(format="%").title("share, with 90% interval"), color)
        band = chart.mark_area(opacity=0.2).encode(x, alt.Y("value_low:Q"), alt.Y2("value_high:Q"), color)
        return alt.layer(line, band).properties(width=480, height=260)

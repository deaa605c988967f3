"""Compare: two audits side by side, of one corpus with two models or of two versions of a corpus."""

import streamlit as st

from auditor.query.compare import Comparison, compare_audits
from auditor.query.database import AuditDatabase
from auditor.query.distributions import compute_histogram, find_common_range
from auditor.query.summary import Summary, summarize_audit
from auditor.report.charts import draw_overlaid_histograms
from auditor.report.source_comparison import compare_sources
from auditor.schema import FLAGS, HEADLINES
from dashboard.audit_source import open_first_audit, open_numbered_audit
from dashboard.chart_view import HALF, show_chart
from dashboard.display_text import (
    NumberCard,
    column_label,
    format_number,
    make_noise_card,
    show_empty_state,
    show_number_cards,
    show_source_table,
)
from dashboard.evidence_panels import show_caption_line
from dashboard.url_state import sample_query

MEASURES = HEADLINES[:4]
NAMES = ("first", "second")
LARGEST_CHANGES = 15

st.title("Compare")
first, second = open_first_audit(), open_numbered_audit(1)
if second is None:
    show_empty_state(
        "There is only one audit",
        "Start the dashboard with two to see them side by side:",
        f"auditor dashboard {first.database.path} AUDIT2",
    )
    st.stop()
assert second is not None


def show_audit(name: str, database: AuditDatabase, summary: Summary) -> None:
    st.subheader(name.capitalize())
    st.text(f"{database.path}\n{database.manifest.get('model', {}).get('spec', '')}")
    show_number_cards([NumberCard("Rows", f"{summary.rows:,}"), NumberCard("Usable", f"{summary.usable:,}")])
    if summary.noise:
        show_number_cards([make_noise_card(noise) for noise in summary.noise])
    show_source_table(compare_sources(database))


def show_audit_agreement(comparison: Comparison) -> None:
    st.subheader("Do they agree?")
    unmatched = f"{comparison.only_first:,} only in the first, {comparison.only_second:,} only in the second"
    st.markdown(f"**{comparison.matched:,}** rows matched by {comparison.matched_by}; {unmatched}.")
    left, right = st.columns(2, gap="large")
    with left:
        rows = [{"measurement": column_label(c), "rank correlation": v} for c, v in comparison.correlation.items()]
        bar = st.column_config.ProgressColumn(min_value=-1.0, max_value=1.0, format="%.3f")
        st.dataframe(rows, hide_index=True, column_config={"rank correlation": bar})
    with right:
        flags = [
            {"flag": FLAGS[f.flag].label, "in both": f.both, "only in the first": f.gone, "only in the second": f.newly}
            for f in comparison.flags
        ]
        st.dataframe(flags, hide_index=True)
        if comparison.status_changes:
            st.dataframe(comparison.status_changes, hide_index=True)


def show_largest_changes(comparison: Comparison) -> None:
    st.subheader("Largest changes in the probability of a mismatch")
    rows = [row for row in comparison.moved[:LARGEST_CHANGES] if row["p_first"] != row["p_second"]]
    for row in rows:
        change = f"**{format_number(row['p_first'])}** → **{format_number(row['p_second'])}**"
        show_caption_line(change, row["caption"], sample_query(row))
    if not rows:
        st.caption("No probability changed.")


for column, name, audit in zip(st.columns(2, gap="large"), NAMES, (first, second), strict=True):
    with column:
        show_audit(name, audit.database, audit.ask("summary", summarize_audit))
for pair in (MEASURES[:2], MEASURES[2:]):
    for column, measure in zip(st.columns(2, gap="large"), pair, strict=True):
        ends = find_common_range((first.database, second.database), measure)
        histograms = {
            name: audit.ask("overlay", compute_histogram, measure, None, 50, False, ends)
            for name, audit in zip(NAMES, (first, second), strict=True)
        }
        with column:
            show_chart(draw_overlaid_histograms(histograms, column_label(measure), size=HALF), f"overlay-{measure}")
with st.spinner("Matching rows …"):
    comparison = first.ask(f"compare {second.identity}", compare_audits, second.database)
show_audit_agreement(comparison)
show_largest_changes(comparison)

"""Compare: two audits side by side, of one corpus with two models or of two versions of a corpus."""

import streamlit as st

from auditor.query.compare import Comparison, compare
from auditor.query.database import AuditDatabase
from auditor.query.distributions import common_range, histogram
from auditor.query.summary import Summary, summarise
from auditor.schema import FLAGS, HEADLINES
from dashboard import charts
from dashboard.audit_source import open_source, source
from dashboard.display_text import Number, empty, label, number, number_cards, share_of_noise, shortened
from dashboard.records import bars, beside
from dashboard.url_state import SAMPLE, sample_query

SHOWN = HEADLINES[:4]
NAMES = ("first", "second")

st.title("Compare")
first, second = source(), open_source(1)
if second is None:
    empty(
        "There is one audit only",
        "Start the dashboard with two to see them side by side:",
        f"auditor dashboard {first.database.path} AUDIT2",
    )
    st.stop()
assert second is not None


def side(name: str, database: AuditDatabase, summary: Summary) -> None:
    st.subheader(name.capitalize())
    st.text(f"{database.path}\n{database.manifest.get('model', {}).get('spec', '')}")
    number_cards([Number("Rows", f"{summary.rows:,}"), Number("Usable", f"{summary.usable:,}")])
    if summary.noise:
        number_cards([share_of_noise(noise) for noise in summary.noise])


def agreement(found: Comparison) -> None:
    st.subheader("Do they agree?")
    alone = f"{found.only_first:,} only in the first, {found.only_second:,} only in the second"
    st.markdown(f"**{found.matched:,}** rows matched by {found.matched_by}; {alone}.")
    left, right = st.columns(2, gap="large")
    with left:
        st.dataframe(
            [{"measurement": label(c), "rank correlation": v} for c, v in found.correlation.items()],
            hide_index=True,
            column_config={
                "rank correlation": st.column_config.ProgressColumn(min_value=-1.0, max_value=1.0, format="%.3f")
            },
        )
    with right:
        st.dataframe(
            [
                {
                    "flag": FLAGS[f.flag].label,
                    "in both": f.both,
                    "only in the first": f.gone,
                    "only in the second": f.newly,
                }
                for f in found.flags
            ],
            hide_index=True,
        )
        if found.status_changes:
            st.dataframe(found.status_changes, hide_index=True)


def moved(found: Comparison) -> None:
    st.subheader("Whose probability of a mismatch changed most")
    rows = [row for row in found.moved[:15] if row["p_first"] != row["p_second"]]
    for row in rows:
        change, text, way = st.columns([2, 9, 1], vertical_alignment="center")
        change.markdown(f"**{number(row['p_first'])}** → **{number(row['p_second'])}**")
        text.text(shortened(row.get("caption"), 160))
        if row.get("uid"):
            way.page_link(SAMPLE, label="Open", query_params=sample_query(row))
    if not rows:
        st.caption("None changed.")


for column, name, opened in zip(st.columns(2, gap="large"), NAMES, (first, second), strict=True):
    with column:
        side(name, opened.database, opened.ask("summary", summarise))
for pair in (SHOWN[:2], SHOWN[2:]):
    for column, measure in zip(st.columns(2, gap="large"), pair, strict=True):
        ends = common_range((first.database, second.database), measure)
        drawn = [bars(opened.ask("overlay", histogram, measure, None, 50, False, ends)) for opened in (first, second)]
        column.altair_chart(
            charts.overlaid(beside(drawn, NAMES), label(measure)), alt=f"{label(measure)} in both audits"
        )
with st.spinner("Matching rows …"):
    compared = first.ask(f"compare {second.identity}", compare, second.database)
agreement(compared)
moved(compared)

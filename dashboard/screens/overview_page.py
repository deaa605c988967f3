"""Overview: what was audited and what was found, with links to the rows behind each number."""

import json

import streamlit as st

from auditor.query.distributions import TimeShifts, compute_histograms_and_densities
from auditor.query.row_queries import list_errors
from auditor.query.summary import RELATED, Summary, summarize_audit
from auditor.report.charts import draw_counts, draw_density, draw_histogram, draw_score_mixture
from auditor.score.statistics.caption_timing import SIGNIFICANT_P
from dashboard.audit_source import open_first_audit
from dashboard.chart_view import FULL, HALF, show_chart
from dashboard.display_text import (
    NumberCard,
    column_label,
    format_part,
    make_noise_card,
    show_choice,
    show_empty_state,
    show_number_cards,
    status_label,
)
from dashboard.records import cell_ranges, estimated_kinds
from dashboard.url_state import BROWSE

UNCERTAINTIES = {"captions": "uncertainty_text", "media": "uncertainty_visual"}
LINKS = (
    ("Mismatched pairs", {"flag": "mismatch"}),
    ("Ambiguous captions", {"flag": "ambiguous_text", "sort": "matches_text"}),
    ("Ambiguous media", {"flag": "ambiguous_visual", "sort": "matches_visual"}),
    ("Unusable rows", {"status": "not ok", "sort": "corpus order"}),
)
MANIFEST_PARTS = ("corpus", "model", "settings", "thresholds", "versions", "created", "finished")

audit = open_first_audit()
database = audit.database


def show_numbers(summary: Summary) -> None:
    show_number_cards(
        [
            NumberCard("Rows", f"{summary.rows:,}"),
            NumberCard("Usable", format_part(summary.usable, summary.rows)),
            NumberCard("Flagged as mismatched", f"{summary.flags['mismatch']:,}"),
            NumberCard("Duplicates", f"{summary.duplicates:,}"),
        ]
    )
    cards = [make_noise_card(noise) for noise in summary.noise]
    for label, flag in (("Ambiguous captions", "ambiguous_text"), ("Ambiguous media", "ambiguous_visual")):
        count = summary.flags[flag]
        cards.append(NumberCard(label, f"{count:,}", f"{format_part(count, summary.usable)} of the usable rows"))
    show_number_cards(cards)


def show_competence(summary: Summary) -> None:
    """Say how well the model judges the corpus, with a warning if some pairs have no estimate because of it."""
    for sentence in summary.explain_missing_estimates():
        st.warning(f"Without an estimate: {sentence}")
    for kind, words in summary.describe_competence().items():
        st.caption(f"The model on {kind}s: it {words}.")


def show_mismatches() -> None:
    st.subheader("Do captions belong to their media?")
    kinds = estimated_kinds(database)
    if not kinds:
        show_empty_state("Not estimated", "There are too few pairs, or the audit has not been scored yet.")
        return
    statistics = kinds[show_choice("Kind", kinds, "pairs", label_visibility="collapsed")]
    show_chart(draw_score_mixture(statistics["histogram"], statistics["pi0"], size=(HALF[0], 320)), "mixture")
    st.caption(
        f"Random re-pairings of captions show what mismatched pairs look like; they explain the orange part. {RELATED}"
    )


def show_statuses(summary: Summary) -> None:
    st.subheader("What could be read?")
    counts = {status_label(status): count for status, count in summary.status.items()}
    show_chart(draw_counts(counts, "Rows by status"), "statuses")
    errors = audit.ask("errors", list_errors, 20) if summary.usable < summary.rows else []
    if errors:
        columns = {"error_message": st.column_config.TextColumn("error", width="large")}
        st.dataframe(errors, hide_index=True, height=220, column_config=columns)
    else:
        st.caption("Every row is usable.")


def show_ambiguity() -> None:
    """Show the distributions of uncertainty; a click on a cell opens its rows on the Browse page."""
    st.subheader("How ambiguous are they?")
    columns = tuple(UNCERTAINTIES.values())
    histograms, densities = audit.ask("ambiguity", compute_histograms_and_densities, "similarity", columns, 50, 40)
    for container, column, counts in zip(st.columns(2, gap="large"), columns, histograms, strict=True):
        with container:
            show_chart(draw_histogram(counts, column_label(column), size=HALF), column)
    if summary.time_shifts:
        show_time_shifts(summary.time_shifts)
    st.subheader("Ambiguity against similarity")
    column = UNCERTAINTIES[show_choice("Of", UNCERTAINTIES, "density", label_visibility="collapsed")]
    density = densities[columns.index(column)]
    labels = column_label("similarity"), column_label(column)
    clicked_cell = show_chart(draw_density(density, *labels, size=FULL, clickable=True), f"density-{column}")
    st.caption("The deeper the color of a cell, the more rows it holds. Click a cell to browse its rows.")
    if clicked_cell:
        st.switch_page(BROWSE, query_params=cell_ranges(density, clicked_cell))


def show_time_shifts(shifts: TimeShifts) -> None:
    st.subheader("Are timed captions in sync with their videos?")
    label = "seconds to add to the spans"
    show_chart(draw_histogram(shifts.histogram(), label, unit="videos", size=FULL), "time-shifts")
    st.caption(f"Out of sync: {shifts.words()}.")
    if shifts.shifted:
        query = {"where": f"p_time_shift <= {SIGNIFICANT_P}", "sort": "time_shift_gain"}
        st.page_link(BROWSE, label="Captions out of sync", icon=":material/arrow_forward:", query_params=query)


summary = audit.ask("summary", summarize_audit)
corpus, model = database.manifest.get("corpus", {}), database.manifest.get("model", {})
st.title("Overview")
st.text(f"{corpus.get('spec', '')}  ·  {model.get('spec', '')}")
if not summary.rows:
    show_empty_state("Nothing has been audited yet", "Rows appear here shard by shard while the audit runs.")
    st.stop()
show_numbers(summary)
show_competence(summary)
with st.container(horizontal=True):
    for label, query in LINKS:
        st.page_link(BROWSE, label=label, icon=":material/arrow_forward:", query_params=query)
left, right = st.columns(2, gap="large")
with left:
    show_mismatches()
with right:
    show_statuses(summary)
show_ambiguity()
with st.expander("How this audit was made"):
    manifest = {name: database.manifest.get(name) for name in MANIFEST_PARTS}
    st.code(json.dumps(manifest, indent=1), language="json", height=400)

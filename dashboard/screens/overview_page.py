"""Overview: the findings with pictures and links to their rows, then numbers and distributions."""

import json

import streamlit as st

from auditor.query.distributions import TimeShifts, compute_histograms_and_densities
from auditor.query.summary import RELATED, Summary, summarize_audit
from auditor.report.charts import draw_density, draw_histogram, draw_score_mixture
from auditor.report.findings import Finding, Findings, describe_example, find_findings
from dashboard.audit_source import open_first_audit
from dashboard.chart_view import FULL, HALF, show_chart
from dashboard.display_text import (
    NumberCard,
    column_label,
    format_part,
    make_noise_card,
    shorten_text,
    show_choice,
    show_empty_state,
    show_number_cards,
)
from dashboard.media_preview import SMALL, thumbnail_cache
from dashboard.records import cell_ranges, estimated_kinds
from dashboard.url_state import BROWSE, SAMPLE, rows_query, sample_query

UNCERTAINTIES = {"captions": "uncertainty_text", "media": "uncertainty_visual"}
FINDINGS, PICTURES = 8, 7  # shown at once
MANIFEST_PARTS = ("corpus", "model", "settings", "thresholds", "versions", "created", "finished")

audit = open_first_audit()
database = audit.database


def show_findings(findings: Findings) -> None:
    """Show the findings, worst first, or the weakest spots of a sound corpus."""
    if not findings:
        show_empty_state("Nothing found", "\n".join(["The weakest spots:", *map(str, findings.weakest)]))
    for finding in findings.items[:FINDINGS]:
        show_finding(finding)
    if findings.items[FINDINGS:]:
        with st.expander(f"{len(findings) - FINDINGS} more"):
            for finding in findings.items[FINDINGS:]:
                show_finding(finding)


def show_finding(finding: Finding) -> None:
    with st.container(horizontal=True, vertical_alignment="center", key=f"finding-{finding.name}"):
        st.markdown(f"**{finding.rows:,}** :small[{finding.percent}]", width=110)
        with st.container(gap=None):
            st.markdown(f"**{finding.title[:1].upper()}{finding.title[1:]}**")
            row = finding.examples[0]
            example = "" if row["status"] == "ok" else f" For example {describe_example(row)}."  # others have a picture
            st.text(f"{shorten_text(finding.describe(), 300)}{example}")
        query = rows_query(finding.where, finding.sort)
        st.page_link(BROWSE, label="Show", icon=":material/photo_library:", query_params=query, width="content")
        with st.popover("What to do", width="content"):
            st.code(finding.advice, language="bash", wrap_lines=True)


def show_clearest_examples(findings: Findings) -> None:
    """Show the clearest example of each finding, then the next ones."""
    rank = max((len(finding.examples) for finding in findings), default=0)
    examples = [(f.title, f.examples[i]) for i in range(rank) for f in findings if len(f.examples) > i]
    shown = [(title, row) for title, row in examples if row["status"] == "ok"][:PICTURES]
    previews = thumbnail_cache(SMALL).show(database, [row for _, row in shown])
    pictures = [(*item, preview) for item, preview in zip(shown, previews, strict=True) if preview.jpeg]
    for column, (title, row, preview) in zip(st.columns(PICTURES, gap="small"), pictures, strict=False):
        with column:
            assert preview.jpeg is not None
            st.image(preview.jpeg, width="stretch", alt=shorten_text(row["caption"], 120))
            st.page_link(SAMPLE, label=title, query_params=sample_query(row))


def show_numbers(summary: Summary) -> None:
    cards = [
        NumberCard("Rows", f"{summary.rows:,}"),
        NumberCard("Usable", format_part(summary.usable, summary.rows)),
    ]
    show_number_cards([*cards, *(make_noise_card(noise) for noise in summary.noise)])
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


summary = audit.ask("summary", summarize_audit)
corpus, model = database.manifest.get("corpus", {}), database.manifest.get("model", {})
st.title("Overview")
st.text(f"{corpus.get('spec', '')}  ·  {model.get('spec', '')}")
if not summary.rows:
    show_empty_state("Nothing has been audited yet", "Rows appear here shard by shard while the audit runs.")
    st.stop()
strip = st.container(key="pictures")  # filled last: the findings are there while thumbnails are made
findings = audit.ask("findings", find_findings)
show_findings(findings)
show_numbers(summary)
show_mismatches()
show_ambiguity()
with strip:
    show_clearest_examples(findings)
with st.expander("How this audit was made"):
    manifest = {name: database.manifest.get(name) for name in MANIFEST_PARTS}
    st.code(json.dumps(manifest, indent=1), language="json", height=400)

"""Overview: what was audited and what was found, with ways into the rows behind each number."""

import json

import streamlit as st

from auditor.query.distributions import histograms_and_densities
from auditor.query.row_queries import errors as find_errors
from auditor.query.summary import AT_LEAST, summarise
from auditor.score.statistics.caption_timing import SURE
from dashboard import charts
from dashboard.audit_source import source
from dashboard.display_text import Number, empty, label, number_cards, percent, share_of_noise, status_label
from dashboard.records import bars, cells, null_curves, statistics_kinds
from dashboard.url_state import BROWSE

SIDES = {"captions": "uncertainty_text", "media": "uncertainty_visual"}

found = source()
database = found.database
summary = found.ask("summary", summarise)

st.title("Overview")
st.text(
    f"{database.manifest.get('corpus', {}).get('spec', '')}  ·  {database.manifest.get('model', {}).get('spec', '')}"
)
if not summary.rows:
    empty("Nothing has been audited yet", "Rows appear here shard by shard while the audit runs.")
    st.stop()

number_cards(
    [
        Number("Rows", f"{summary.rows:,}"),
        Number("Usable", percent(summary.usable / summary.rows)),
        Number("Flagged as mismatched", f"{summary.flags['mismatch']:,}"),
        Number("Duplicates", f"{summary.duplicates:,}"),
    ]
)
ambiguous = [
    Number(words, f"{summary.flags[flag]:,}", f"{percent(summary.flags[flag] / max(summary.usable, 1))} of the usable")
    for words, flag in (("Ambiguous captions", "ambiguous_text"), ("Ambiguous media", "ambiguous_visual"))
]
number_cards([*map(share_of_noise, summary.noise), *ambiguous])

with st.container(horizontal=True):
    for words, query in (
        ("Mismatched pairs", {"flag": "mismatch"}),
        ("Ambiguous captions", {"flag": "ambiguous_text", "sort": "matches_text"}),
        ("Ambiguous media", {"flag": "ambiguous_visual", "sort": "matches_visual"}),
        ("What could not be used", {"status": "not ok", "sort": "corpus order"}),
    ):
        st.page_link(BROWSE, label=words, icon=":material/arrow_forward:", query_params=query)

kinds = statistics_kinds(database)
left, right = st.columns(2, gap="large")
with left:
    st.subheader("Do they belong together?")
    if kinds:
        kind = st.segmented_control(
            "Kind",
            kinds,
            default=kinds[0],
            key="pairs",
            bind="query-params",
            required=True,
            label_visibility="collapsed",
        )
        st.altair_chart(
            charts.null_chart(null_curves(database, kind)),
            alt="Scores of all pairs, and the part that random re-pairings explain",
        )
        st.caption(
            "Random re-pairings of captions show what mismatched pairs look like; the orange part is what they explain."
            f" {AT_LEAST}"
        )
    else:
        empty("Not estimated", "Too few pairs to tell, or the audit has not been scored yet.")
with right:
    st.subheader("What could be used?")
    st.altair_chart(charts.counts({status_label(s): n for s, n in summary.status.items()}), alt="Rows by status")
    errors = found.ask("errors", find_errors, 20) if summary.usable < summary.rows else []
    if errors:
        st.dataframe(
            errors,
            hide_index=True,
            height=220,
            column_config={"error_message": st.column_config.TextColumn("what was wrong", width="large")},
        )
    else:
        st.caption("Every row could be used.")

st.subheader("How ambiguous?")
x = "similarity"
histograms, densities = found.ask("ambiguity", histograms_and_densities, x, tuple(SIDES.values()), 50, 40)
for column, side, counted in zip(st.columns(2, gap="large"), SIDES.values(), histograms, strict=True):
    with column:
        st.altair_chart(
            charts.histogram(bars(counted), label(side)),
            alt=f"Histogram of {label(side)}",
        )

if summary.time_shifts:
    st.subheader("In step with the picture?")
    st.altair_chart(
        charts.histogram(bars(summary.time_shifts.histogram()), "seconds to add to the spans", of="videos"),
        alt="Shifts of the videos whose timed captions are out of step",
    )
    st.caption(f"Out of step: {summary.time_shifts.words()}.")
    if summary.time_shifts.shifted:
        out_of_step = {"where": f"p_time_shift <= {SURE}", "sort": "time_shift_gain"}
        st.page_link(BROWSE, label="Captions out of step", icon=":material/arrow_forward:", query_params=out_of_step)

st.subheader("Ambiguity against similarity")
side = st.segmented_control(
    "Of",
    list(SIDES),
    default="captions",
    key="density",
    bind="query-params",
    required=True,
    label_visibility="collapsed",
)
y = SIDES[side or "captions"]
drawn = charts.density(cells(densities[list(SIDES.values()).index(y)]), x, y)
event = st.altair_chart(
    drawn, on_select="rerun", key=f"density-{y}", alt="Rows by similarity and uncertainty; click a cell to see its rows"
)
st.caption("Click a cell to browse its rows.")
picked = (event.get("selection") or {}).get("cell") or []
if picked:
    cell = picked[0]
    ranges = {
        x: [f"{cell['x_low']:.9g}", f"{cell['x_high']:.9g}"],
        y: [f"{cell['y_low']:.9g}", f"{cell['y_high']:.9g}"],
    }
    st.switch_page(BROWSE, query_params=ranges)

with st.expander("How it was made"):
    st.code(
        json.dumps(
            {
                k: database.manifest.get(k)
                for k in ("corpus", "model", "settings", "thresholds", "versions", "created", "finished")
            },
            indent=1,
        ),
        language="json",
        height=400,
    )

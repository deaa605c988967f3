"""Benchmarks: retrieval results of `auditor evaluate`, and how well uncertainty predicts failures."""

import streamlit as st

from auditor.dashboard_settings import read_settings
from auditor.report.charts import draw_lines
from auditor.report.plot_area import format_tick_percent
from dashboard.benchmark_results import (
    DIRECTIONS,
    calibration_series,
    decile_series,
    list_calibration,
    list_metrics,
    read_results,
    removal_series,
    round_finite,
)
from dashboard.chart_view import HALF, show_chart
from dashboard.display_text import format_number, show_choice, show_empty_state

st.title("Benchmarks")
folder = read_settings().results
results, other_files = read_results(folder)
if not results:
    start = "Start the dashboard with the folder of the results:"
    show_empty_state(
        "There are no results to show",
        f"{folder} holds no JSON results of `auditor evaluate`." if folder else start,
        "auditor evaluate msrvtt --data SHARDS --model MODEL --out results/msrvtt.json\n"
        "auditor dashboard AUDIT --results results",
    )
    st.stop()

results_by_name = {result.name: result for result in results}
result = results_by_name[st.selectbox("Result", list(results_by_name), key="result", bind="query-params")]
content = result.content
data, model = content.get("data") or {}, content.get("model") or {}
size = f"{data.get('media', 0):,} media, {data.get('captions', 0):,} captions"
st.text(f"{content['benchmark']}, {data.get('split', '')}: {size}")
st.text(f"{model.get('spec', '')}, prototypes {model.get('head', '')}")
if data and not data.get("complete"):
    st.caption("This is not the official test split: do not compare with published figures.")
st.dataframe(list_metrics(result), hide_index=True)
if rerank := content.get("rerank"):
    betas = f"{format_number(rerank['beta_visual'])} (visual) and {format_number(rerank['beta_text'])} (text)"
    st.caption(f"Re-ranked with beta {betas}, fitted on {rerank['media']:,} other media.")
if pearson := content.get("pearson"):
    with st.container(horizontal=True):
        for label, name in (("u and h of media, Pearson", "PCC_V"), ("u and h of captions, Pearson", "PCC_T")):
            st.metric(label, format_number(round_finite(pearson[name], 3)), border=True)

direction = show_choice("Direction", DIRECTIONS, "direction", format_func=DIRECTIONS.__getitem__)
left, right = st.columns(2, gap="large")
with left:
    st.subheader("Recall without the most uncertain")
    labels = "share removed", "R@1 of the rest"
    removal = draw_lines(removal_series(result, direction), *labels, size=HALF, format_x=format_tick_percent)
    show_chart(removal, "removal")
    st.caption("Any removal makes the task easier; only the distance to random removal matters.")
with right:
    st.subheader("Recall by tenth of the score")
    deciles = decile_series(result, direction)
    show_chart(draw_lines(deciles, "tenth, the least uncertain first", "R@1", size=HALF), "deciles")
st.subheader("Does the score predict success?")
left, right = st.columns(2, gap="large")
with left:
    calibration = calibration_series(result, direction)
    labels = "predicted share of hits", "observed share of hits"
    show_chart(draw_lines(calibration, *labels, size=HALF, diagonal=True), "calibration")
right.dataframe(list_calibration(result, direction), hide_index=True)
if other_files:
    with st.expander("Files that hold no result"):
        st.text("\n".join(other_files))

"""Benchmarks: retrieval results of `auditor evaluate`, and what the uncertainty is worth there."""

import streamlit as st

from auditor.dashboard_settings import read_settings
from dashboard import benchmark_results, charts
from dashboard.display_text import empty, number

st.title("Benchmarks")
folder = read_settings().results
found, passed = benchmark_results.read_results(folder)
if not found:
    empty(
        "There are no results to show",
        f"No JSON of `auditor evaluate` in {folder}."
        if folder
        else "Name the folder of the results when you start the dashboard.",
        "auditor evaluate msrvtt --data SHARDS --model MODEL --out results/msrvtt.json\n"
        "auditor dashboard AUDIT --results results",
    )
    st.stop()

named = {one.name: one for one in found}
chosen = named[st.selectbox("Result", list(named), key="result", bind="query-params")]
content = chosen.content
data, model = content.get("data") or {}, content.get("model") or {}
size = f"{data.get('media', 0):,} media, {data.get('captions', 0):,} captions"
st.text(f"{content['benchmark']}, {data.get('split', '')}: {size}")
st.text(f"{model.get('spec', '')}, prototypes {model.get('head', '')}")
if data and not data.get("complete"):
    st.caption("Not the benchmark's own test split: not to be compared with published figures.")
st.dataframe(benchmark_results.table(chosen), hide_index=True)
if rerank := content.get("rerank"):
    betas = f"{number(rerank['beta_visual'])} (visual) and {number(rerank['beta_text'])} (text)"
    st.caption(f"Re-ranked with beta {betas}, fitted on {rerank['media']:,} other media.")
if pearson := content.get("pearson"):
    with st.container(horizontal=True):
        st.metric("u and h of media, Pearson", number(benchmark_results.rounded(pearson["PCC_V"], 3)), border=True)
        st.metric("u and h of captions, Pearson", number(benchmark_results.rounded(pearson["PCC_T"], 3)), border=True)

direction = st.segmented_control(
    "Direction",
    list(benchmark_results.DIRECTIONS),
    default="visual_to_text",
    format_func=lambda name: benchmark_results.DIRECTIONS[name],
    key="direction",
    bind="query-params",
    required=True,
)
left, right = st.columns(2, gap="large")
with left:
    st.subheader("Without the most uncertain")
    st.altair_chart(
        charts.lines(
            benchmark_results.removal(chosen, direction),
            "share",
            "recall",
            "share removed",
            "R@1 of the rest",
            percent=True,
        ),
        alt="R@1 against the share removed",
    )
    st.caption("Any removal makes the task easier; only the distance to removal at random means something.")
with right:
    st.subheader("By tenths of the score")
    st.altair_chart(
        charts.lines(
            benchmark_results.deciles(chosen, direction), "bin", "recall", "tenth, the least uncertain first", "R@1"
        ),
        alt="R@1 by decile",
    )
st.subheader("Does it predict success?")
left, right = st.columns(2, gap="large")
left.altair_chart(
    charts.calibration(benchmark_results.calibration(chosen, direction)), alt="Predicted against observed recall"
)
right.dataframe(benchmark_results.calibration_table(chosen, direction), hide_index=True)
if passed:
    with st.expander("Files that are not results"):
        st.text("\n".join(passed))

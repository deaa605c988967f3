"""Thresholds: what a filter keeps and loses, the pairs at its cut, and the file or command that applies it."""

import json
import shlex
from functools import partial
from typing import Any

import streamlit as st

from auditor.keep.caption_choice import list_sources
from auditor.keep.rule_effects import RuleEffects, fetch_rows_near_cut, measure_rule_effects
from auditor.keep.subset_drift import Drift, measure_subset_drift
from auditor.keep.thresholds import ThresholdError, choose_cut, compute_cuts, count_pairs
from auditor.keep.uncertainty_cuts import UncertaintyCut, choose_uncertainty_cut, measure_limits
from auditor.query.distributions import cache_ranges, compute_histogram
from auditor.query.row_queries import has_several_captions
from auditor.query.rules import Rules
from auditor.query.sandbox import QueryError
from auditor.report.charts import draw_grouped_columns, draw_histogram
from auditor.report.finding_rules import start_sentence
from auditor.review.flag_precision import measure_flag_precision
from auditor.schema import COLUMNS, FAILURES, MEASUREMENTS, RULES, Column
from dashboard.audit_source import open_first_audit
from dashboard.chart_view import FULL, show_chart
from dashboard.display_text import (
    NumberCard,
    column_label,
    format_change,
    format_interval,
    format_part,
    format_percent,
    show_choice,
    show_condition_error,
    show_empty_state,
    show_number_cards,
)
from dashboard.gallery import show_gallery
from dashboard.records import count_kept_media, describe_kept_sources, estimated_kinds, make_subset_file
from dashboard.row_selection import list_slider_steps, round_up_probability
from dashboard.url_state import KEPT, MAP

NO_LIMIT = "no limit"
NO_BALANCE, CELL_COLUMNS = "no column", ("topic", "language", "kind")
PRECISION_HELP = "Expected precision: the mean probability of a mismatch of the removed pairs."
LOSS_HELP = "Expected share of all well-matched pairs that the filter removes."
PANELS = ("pairs at the cut", "how the kept set differs", "distribution")
TOPICS = 24  # shown
CHART_SIZE = (FULL[0], 260.0)

audit = open_first_audit()
database = audit.database


def show_limit(rule: str, column: Column) -> float | None:
    """Show a slider over the values of a column; its far end means no limit."""
    steps = [f"{step:g}" for step in audit.ask("steps", list_slider_steps, column.name)]
    options, bound = ([*steps, NO_LIMIT], "at most") if rule.startswith("max") else ([NO_LIMIT, *steps], "at least")
    default = NO_LIMIT
    if rule == "max_p_mismatch" and estimated_kinds(database):
        default = round_up_probability(database.thresholds["mismatch"])
    value = st.select_slider(f"{column.label}: {bound}", options, default, key=rule, bind="query-params")
    return None if value == NO_LIMIT else float(value)


def show_rules() -> Rules:
    values: dict[str, Any] = {}
    audit.ask("ranges", cache_ranges, [column.name for column in RULES.values()])
    for rule, column in RULES.items():
        values[rule] = show_limit(rule, column)
        if rule == "max_p_mismatch" or column.name in FAILURES:
            with st.popover("Choose by acceptable loss", icon=":material/balance:", width="stretch"):
                pairs = "Pairs that do not fail in retrieval" if column.name in FAILURES else "Good pairs"
                label = f"{pairs} to lose at most, in %"
                percent = st.number_input(label, 0.0, 50.0, 2.0, 0.5, key=f"{rule}_loses")
                st.button("Set the cut", key=f"{rule}_set", on_click=set_cut, args=(rule, column, percent / 100))
    top = st.slider("Keep the best", 1, 100, 100, format="%d%%", key="keep_top", bind="query-params")
    sort = st.selectbox("… by", MEASUREMENTS, key="by", bind="query-params", disabled=top == 100)
    topics = [column for column in database.columns if column.startswith("topic_")]
    cells = [NO_BALANCE, *CELL_COLUMNS, *topics]
    balance = st.selectbox("… in balance over", cells, key="balance", bind="query-params", disabled=top == 100)
    unique = st.toggle("Keep only the first of duplicates", key="no_duplicates", bind="query-params")
    sources = audit.ask("sources", list_sources)
    prefer = show_source_choice(sources) if sources else []
    best = st.toggle("Keep only the best caption of each medium", key="best_caption", bind="query-params")
    where = st.text_input("SQL condition", key="keep_where", bind="query-params", placeholder="width >= 200")
    if top < 100 and balance == NO_BALANCE:
        values |= {"keep_top": f"{top}%", "by": sort}
    elif top < 100:
        values |= {"share": f"{top}%", "by": sort, "balance": balance}
    values |= {"where": where.strip() or None, "no_duplicates": unique, "best_caption": best, "prefer": prefer}
    return Rules.of(values)


def show_source_choice(sources: list[str]) -> list[str]:
    """Choose sources of captions in order of preference."""
    words = "The first source that has captions of a medium which satisfy the other rules. Others are left out."
    options: Any = {"bind": "query-params", "placeholder": "any source", "help": words}
    return st.multiselect("Keep the captions of the first of these sources", sources, key="prefer", **options)


def set_cut(rule: str, column: Column, share: float) -> None:
    try:
        if column.name in FAILURES:
            cut = choose_uncertainty_cut(database, column.name, lose_at_most=share).at
            steps = audit.ask("steps", list_slider_steps, column.name)
            st.session_state[rule] = next((f"{step:g}" for step in steps if step >= cut), NO_LIMIT)
        else:
            cut = choose_cut(audit.ask("pairs", count_pairs), lose_at_most=share).p
            st.session_state[rule] = round_up_probability(cut)
    except ThresholdError as error:
        st.session_state["cut_problem"] = str(error)


def show_effects(effects: RuleEffects) -> None:
    together = effects.together
    usable = f"{format_part(effects.kept, effects.usable)} of the usable pairs"
    unusable = f"and {effects.rows - effects.usable:,} unusable rows"
    precision, loss = format_percent(together.expected_precision), format_percent(together.expected_loss)
    show_number_cards(
        [
            NumberCard("Kept pairs", f"{effects.kept:,}", usable),
            NumberCard("Removed", f"{together.removed:,}", unusable),
            NumberCard("Mismatched among the removed", precision, meaning=PRECISION_HELP),
            NumberCard("Good pairs lost", loss, meaning=LOSS_HELP),
        ]
    )
    rows = [
        {"rule": effect.rule, "kept": effect.kept, "removed": effect.removed}
        | {"removed only by it": effect.removed_only_by_it}
        | {"expected precision": format_percent(effect.expected_precision)}
        | {"good pairs lost": format_percent(effect.expected_loss)}
        for effect in effects.rules
    ]
    if rows:
        st.dataframe(rows, hide_index=True)
    else:
        st.caption("No rule is set: every usable pair is kept.")
    if effects.unscored:
        st.caption(f"{effects.unscored:,} pairs have no probability of a mismatch; no limit on it removes them.")


def show_failures(cuts: list[UncertaintyCut]) -> None:
    """Show what each limit on an uncertainty or on matches costs by itself."""
    if cuts:
        st.dataframe([{"column": cut.column, **cut.tabulate()} for cut in cuts], hide_index=True)
    for cut in cuts:
        st.caption(f"{cut.column}: {cut.describe_failures()} than its own.")


def show_intervals(p_mismatch: float | None) -> None:
    """Show the intervals of the expectations for a cut by p_mismatch, and the verdicts of reviewers."""
    precision, sentences = measure_flag_precision(database), []
    if p_mismatch is not None and estimated_kinds(database):
        (cut,) = compute_cuts(audit.ask("pairs", count_pairs), [p_mismatch])
        precise = f"precision {format_interval(cut.precision_low, cut.precision_high)}"
        loss = f"good pairs lost {format_interval(cut.lost_low, cut.lost_high, 2)}"
        caught = f"mismatched pairs caught {format_interval(cut.caught_low, cut.caught_high)}"
        sentences.append(f"The cut by p_mismatch alone: {precise}, {loss}, {caught}.")
    if precision.measured is not None:
        interval = format_interval(precision.low, precision.high)
        verdict = f"{format_percent(precision.measured)} of {precision.judged} flagged pairs bad ({interval})"
        sentences.append(f"Reviewers called {verdict}; {format_percent(precision.expected)} were expected.")
    st.caption("  \n".join(sentences))


def show_downloads(rules: Rules, effects: RuleEffects) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        options: Any = {"icon": ":material/download:", "on_click": "ignore"}
        make_file = partial(make_subset_file, database, rules)
        st.download_button("Download the subset (DataComp .npy)", make_file, "kept.npy", type="primary", **options)
        st.download_button("Keys (.txt)", partial(make_file, "txt"), "kept.txt", **options)
    several = audit.ask("several captions", has_several_captions)
    media = audit.ask("media kept", count_kept_media, rules, version=version) if several else effects.kept
    st.caption(f"The subset lists the uids of {effects.kept:,} pairs; the keys are those of their {media:,} media.")
    if sources := audit.ask("kept sources", describe_kept_sources, rules, version=version):
        st.caption(start_sentence(sources))
    command = ["auditor", "filter", database.path, *rules.command_line(), "--out", "kept.npy"]
    st.code(shlex.join(command), language="bash", wrap_lines=True)


def show_pairs_at_cut(rules: Rules) -> None:
    bounds = rules.bounds()
    if not bounds:
        show_empty_state("No limit is set", "Move a slider to see the pairs on both sides of it.")
        return
    rule = st.selectbox("Cut", list(bounds), key="cut", bind="query-params", width=320)
    kept_rows, removed_rows = audit.ask("nearest", fetch_rows_near_cut, rules, rule, 6, version=version)
    sides = (("Just kept", kept_rows, 0), ("Just removed", removed_rows, 100))
    for container, (title, rows, first) in zip(st.columns(2, gap="large"), sides, strict=True):
        with container:
            st.subheader(title)
            cards = [[row] for row in rows.to_pylist()]
            show_gallery(database, cards, columns=2, numbers=(bounds[rule][0],), first=first)
            if not cards:
                st.caption("There are none.")


def show_drift(drift: Drift) -> None:
    rows = [
        {"mean of": mean.measure, "all": mean.whole, "kept": mean.kept, "change": format_change(mean.change)}
        for mean in drift.measures
    ]
    columns = {name: st.column_config.NumberColumn(format="%.4g") for name in ("all", "kept")}
    st.dataframe(rows, hide_index=True, column_config=columns)
    st.caption(drift.describe_topics())
    topics = drift.topics[:TOPICS]
    if topics:
        names = [str(topic.topic) for topic in topics]
        shares = {"all": [topic.whole for topic in topics], "kept": [topic.kept for topic in topics]}
        show_chart(draw_grouped_columns(names, shares, drift.column, "share of rows", size=CHART_SIZE), "topics")


def show_map_link(rules: Rules) -> None:
    query = {"rules": json.dumps(rules.to_dict()), "colour": KEPT}
    st.page_link(MAP, label="Show on the map", icon=":material/map:", query_params=query)


def show_distributions(rules: Rules) -> None:
    for column, _, cut in rules.bounds().values():
        log = COLUMNS[column].logarithmic
        counts = audit.ask("histogram", compute_histogram, column, "status = 'ok'", 60, log)
        show_chart(draw_histogram(counts, column_label(column), log=log, cut=cut, size=CHART_SIZE), f"cut-{column}")


with st.sidebar:
    rules = show_rules()

st.title("Thresholds")
if problem := st.session_state.pop("cut_problem", None):
    show_empty_state("No cut can be chosen", problem)
try:
    version = database.freshness(rules.where)
    effects = audit.ask("effects", measure_rule_effects, rules, version=version)
except QueryError as error:
    show_condition_error(error)
    st.stop()
show_effects(effects)
show_failures(audit.ask("failures", measure_limits, rules))
if database.statistics:
    show_intervals(rules.limits.get("max_p_mismatch"))
show_downloads(rules, effects)
panel = show_choice("Look at", PANELS, "look", label_visibility="collapsed")
if panel == PANELS[0]:
    show_pairs_at_cut(rules)
elif panel == PANELS[1]:
    show_drift(audit.ask("drift", measure_subset_drift, rules, version=version))
    show_map_link(rules)
else:
    show_distributions(rules)

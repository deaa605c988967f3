"""Thresholds: what a filter would keep, what it costs, who stands at the cut, and the file or command that does it."""

import math
import shlex
from typing import Any

import streamlit as st

from auditor.keep.rule_effects import Effects, nearest_cut, rule_effects
from auditor.keep.subset_drift import Drift, find_drift
from auditor.keep.thresholds import ThresholdError, choose_cut, count_pairs, cuts
from auditor.query.distributions import find_ranges_together, histogram
from auditor.query.rules import Rules
from auditor.query.sandbox import QueryError
from auditor.review.flag_precision import precision
from auditor.schema import COLUMNS, MEASUREMENTS, RULES, Column
from dashboard import charts
from dashboard.audit_source import source
from dashboard.display_text import Number, empty, label, number_cards, percent
from dashboard.gallery import gallery
from dashboard.records import bars, media_kept, subset_file
from dashboard.row_selection import steps_of

NO_LIMIT = "no limit"
PRECISION = "Expected precision: the mean probability of a mismatch over what is removed."
LOSS = "Expected share of all well-matched pairs that go with them."
LOOKS = ("pairs at the cut", "how the kept set differs", "distribution")
found = source()
database = found.database


def limit(rule: str, column: Column) -> float | None:
    """A slider over the values of a column; its far end is no limit, for every rule."""
    steps = [f"{step:g}" for step in found.ask("steps", steps_of, column.name)]
    options, words = ([*steps, NO_LIMIT], "at most") if rule.startswith("max") else ([NO_LIMIT, *steps], "at least")
    usual = usual_cut() if rule == "max_p_mismatch" else NO_LIMIT
    value = st.select_slider(f"{column.label}: {words}", options, usual, key=rule, bind="query-params")
    return None if value == NO_LIMIT else float(value)


def usual_cut() -> str:
    """The threshold of the flag, or no limit where nothing is known of mismatches."""
    cut = database.thresholds.get("mismatch") if database.manifest.get("statistics") else None
    return as_step(cut) if isinstance(cut, float) else NO_LIMIT


def as_step(cut: float) -> str:
    """The step of the slider at or just above a cut, so that it never loses more than was asked for."""
    return f"{math.ceil(round(cut * 1000, 6)) / 1000:g}"


def chosen_rules() -> Rules:
    """The widgets of the sidebar."""
    given: dict[str, Any] = {}
    found.ask("ranges", find_ranges_together, [column.name for column in RULES.values()])
    for rule, column in RULES.items():
        given[rule] = limit(rule, column)
        if rule == "max_p_mismatch":
            choose_by_loss()
    top = st.slider("Keep the best", 1, 100, 100, format="%d%%", key="keep_top", bind="query-params")
    by = st.selectbox(
        "… by",
        MEASUREMENTS,
        key="by",
        bind="query-params",
        disabled=top == 100,
    )
    unique = st.toggle("Of duplicates keep the first", key="no_duplicates", bind="query-params")
    where = st.text_input("SQL condition", key="keep_where", bind="query-params", placeholder="width >= 200")
    if top < 100:
        given |= {"keep_top": f"{top}%", "by": by}
    given |= {"where": where.strip() or None, "no_duplicates": unique}
    return Rules.of(given)


def choose_by_loss() -> None:
    """Set the cut by what it may lose."""
    with st.popover("Choose it by what it may lose", icon=":material/balance:", width="stretch"):
        share = st.number_input("Good pairs that may be lost, in %", 0.0, 50.0, 2.0, 0.5, key="lose_at_most")
        st.button("Set the cut", on_click=set_cut, args=(share / 100,))


def set_cut(share: float) -> None:
    try:
        st.session_state["max_p_mismatch"] = as_step(choose_cut(found.ask("pairs", count_pairs), lose_at_most=share).p)
    except ThresholdError as error:
        st.session_state["cut_problem"] = str(error)


def show_effects(effects: Effects) -> None:
    together = effects.together
    usable = f"{percent(effects.kept / max(effects.usable, 1))} of the usable"
    number_cards(
        [
            Number("Kept pairs", f"{effects.kept:,}", usable),
            Number("Removed", f"{together.removed:,}", f"and {effects.rows - effects.usable:,} not usable"),
            Number("Of the removed, mismatched", percent(together.expected_precision), meaning=PRECISION),
            Number("Good pairs lost", percent(together.expected_loss), meaning=LOSS),
        ]
    )
    rows = [
        {
            "rule": e.rule,
            "kept": e.kept,
            "removed": e.removed,
            "only by it": e.removed_only_by_it,
            "expected precision": percent(e.expected_precision),
            "good pairs lost": percent(e.expected_loss),
        }
        for e in effects.rules
    ]
    if rows:
        st.dataframe(rows, hide_index=True)
    else:
        st.caption("No rule is set: every usable pair is kept.")
    if effects.unscored:
        st.caption(f"No estimate: {effects.unscored:,} pairs without a probability, which no limit on it removes.")


def show_interval(p: float | None) -> None:
    """How sure the expectations of the cut by p_mismatch are, and what reviewers found."""
    measured, words = precision(database), []
    if p is not None:
        (cut,) = cuts(found.ask("pairs", count_pairs), [p])
        precise = f"precision {percent(cut.precision_low)} to {percent(cut.precision_high)}"
        lost = f"good pairs lost {percent(cut.lost_low, 2)} to {percent(cut.lost_high, 2)}"
        caught = f"mismatched pairs caught {percent(cut.caught_low)} to {percent(cut.caught_high)}"
        words.append(f"Cut by p_mismatch alone: {precise}, {lost}, {caught}.")
    if measured.measured is not None:
        interval = f"{percent(measured.low)} to {percent(measured.high)}"
        judged = f"{percent(measured.measured)} of {measured.judged} flagged pairs bad ({interval})"
        words.append(f"Reviewers call {judged}; {percent(measured.expected)} were expected.")
    st.caption("  \n".join(words))


def at_the_cut(rules: Rules) -> None:
    bounds_ = list(rules.bounds())
    if not bounds_:
        empty("No limit is set", "Move a slider to see the pairs on both sides of it.")
        return
    rule = st.selectbox("Cut", bounds_, key="cut", bind="query-params", width=320)
    kept, removed = found.ask("nearest", nearest_cut, rules, rule, 6)
    column = rules.bounds()[rule][0]
    for side, words, rows in zip(
        st.columns(2, gap="large"), ("Just kept", "Just removed"), (kept, removed), strict=True
    ):
        with side:
            st.subheader(words)
            gallery(
                database,
                [[row] for row in rows.to_pylist()],
                columns=2,
                shown=(column,),
                first=0 if words == "Just kept" else 100,
            )
            if not len(rows):
                st.caption("None.")


def differing(drift: Drift) -> None:
    st.dataframe(
        [
            {
                "mean of": s.measure,
                "all": s.whole,
                "kept": s.kept,
                "change": None if s.change is None else f"{round(s.change, 3) + 0.0:+.1%}",  # no -0.0%
            }
            for s in drift.measures
        ],
        hide_index=True,
        column_config={name: st.column_config.NumberColumn(format="%.4g") for name in ("all", "kept")},
    )
    st.caption(
        f"Topics: {percent(drift.topic_distance)} of the kept rows would have to change topic to look like the whole."
    )
    if drift.topics:
        st.altair_chart(
            charts.shares([{"topic": t.topic, "all": t.whole, "kept": t.kept} for t in drift.topics[:24]]),
            alt="Share of each topic in all and in kept rows",
        )


def distribution(rules: Rules) -> None:
    for column, _, cut in rules.bounds().values():
        log = COLUMNS[column].logarithmic
        st.altair_chart(
            charts.histogram(
                bars(found.ask("histogram", histogram, column, "status = 'ok'", 60, log)),
                label(column),
                log=log,
                cut=cut,
            ),
            alt=f"Histogram of {label(column)} with the cut",
        )


with st.sidebar:
    rules = chosen_rules()

st.title("Thresholds")
if problem := st.session_state.pop("cut_problem", None):
    empty("No cut can be chosen", problem)
try:
    effects = found.ask("effects", rule_effects, rules)
    show_effects(effects)
except QueryError as error:
    empty("The SQL condition cannot be used", str(error), icon=":material/error:")
    st.stop()
if database.manifest.get("statistics"):
    show_interval(rules.limits.get("max_p_mismatch"))

with st.container(horizontal=True, vertical_alignment="center"):
    st.download_button(
        "Download the subset (DataComp .npy)",
        lambda: subset_file(database, rules),
        "kept.npy",
        type="primary",
        icon=":material/download:",
        on_click="ignore",
    )
    st.download_button(
        "Keys (.txt)",
        lambda: subset_file(database, rules, "txt"),
        "kept.txt",
        icon=":material/download:",
        on_click="ignore",
    )
media = found.ask("media kept", media_kept, rules)
st.caption(f"The subset lists {effects.kept:,} pairs by uid, the keys are those of their {media:,} media.")
st.code(
    shlex.join(["auditor", "filter", database.path, *rules.command_line(), "--out", "kept.npy"]),
    language="bash",
    wrap_lines=True,
)

look = st.segmented_control(
    "Look at", LOOKS, default=LOOKS[0], key="look", bind="query-params", required=True, label_visibility="collapsed"
)
if look == LOOKS[0]:
    at_the_cut(rules)
elif look == LOOKS[1]:
    differing(found.ask("drift", find_drift, rules))
else:
    distribution(rules)

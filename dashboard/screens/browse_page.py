"""Browse: a gallery of the rows that meet every filter of the sidebar; each filter is a parameter of the URL.

A search orders them by how near they are to a text, or to a row (*more like this*). The compact gallery selects and
marks many rows at once.
"""

from typing import Any

import streamlit as st

from auditor.query.by_medium import several_captions
from auditor.query.row_queries import count as count_rows
from auditor.query.rules import Rules
from auditor.query.sandbox import QueryError
from auditor.query.search_index import SIDES
from auditor.schema import FLAGS, HEADLINES, MEASUREMENTS
from auditor.workers.encoder_client import SearchError
from dashboard.audit_source import source
from dashboard.compact_gallery import compact
from dashboard.display_text import empty, label
from dashboard.gallery import USUAL, gallery
from dashboard.records import EXPORT_ROWS, SEARCHED, cards, count_cards, rows_file, searched, subset_file
from dashboard.review_cards import send_all
from dashboard.row_selection import Selection, bounds
from dashboard.url_state import (
    ANY,
    CORPUS_ORDER,
    KINDS,
    MAP,
    ORDERS,
    REVIEW,
    REVIEWS,
    SIZES,
    SORT,
    STATES,
    THRESHOLDS,
    View,
    Wanted,
    first_page,
    narrowed,
)

found = source()
database = found.database
LOOKS = ("compact", "cards")
FILTERS = ("kind", "status", "flag", "review", "text", "where", *HEADLINES)


def turn(by: int) -> None:
    st.session_state["page"] = st.session_state.get("page", 1) + by


def clear() -> None:
    for name in FILTERS:
        st.session_state.pop(name, None)
    for name, usual in (("kind", ANY), ("status", ANY), ("flag", []), ("review", ANY), ("text", ""), ("where", "")):
        st.session_state[name] = usual
    for column in HEADLINES:
        limits = found.ask("bounds", bounds, column)
        st.session_state[column] = (limits.low, limits.high)
    first_page()


def forget_example() -> None:
    st.query_params.pop("like", None)
    first_page()


def searching() -> Wanted:
    """The search box; a row that others should be like comes with the URL. The last one asked for counts."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        text = st.text_input(
            "Search",
            key="search",
            placeholder="a dog on a beach",
            bind="query-params",
            on_change=forget_example,
            help="The nearest by the audit's own model, which is loaded on the first search.",
        )
        sides = list(SIDES)
        over = st.segmented_control("Over", sides, default=sides[0], key="over", bind="query-params", required=True)
        like = st.query_params.get("like", "")  # a text that is typed later takes it away
        if like:
            st.button("Stop looking for more like this", on_click=forget_example, icon=":material/close:")
    return Wanted("" if like else text, like, over or sides[0])


def nearest_of(condition: str | None, wanted: Wanted) -> int:
    """How many rows a search finds; says why where it cannot be done."""
    try:
        with st.spinner("Searching …"):
            return len(searched(database, condition, wanted))
    except SearchError as error:
        words = "Search by example still works: the button ≈ (more like this) of any card."
        empty("This cannot be searched", f"{error}\n{words}", icon=":material/error:")
        st.stop()


def filters() -> Selection:
    """The widgets of the sidebar."""
    bound: Any = {"bind": "query-params", "on_change": first_page}
    text = st.text_input("In the caption", key="text", placeholder="words to look for", **bound)
    kind = st.selectbox("Kind", KINDS, key="kind", **bound)
    flags = st.multiselect("Flagged as", list(FLAGS), key="flag", placeholder="any or none", **bound)
    status = st.selectbox("Status", STATES, key="status", **bound)
    review = st.selectbox("Review", REVIEWS, key="review", **bound)
    ranges = {}
    with st.expander("Ranges", expanded=any(column in st.query_params for column in HEADLINES)):
        for column in HEADLINES:
            limits = found.ask("bounds", bounds, column)
            ends = st.slider(
                label(column), limits.low, limits.high, (limits.low, limits.high), limits.step, key=column, **bound
            )
            if chosen := narrowed(ends, limits):
                ranges[column] = chosen
    where = st.text_input(
        "SQL condition",
        key="where",
        placeholder="width < 200 OR topic = 3",
        help="Any expression over the columns of `samples`.",
        **bound,
    )
    st.button("Clear filters", on_click=clear, icon=":material/filter_alt_off:", width="stretch")
    return Selection(
        None if kind == ANY else kind, None if status == ANY else status, tuple(flags),
        {ANY: None, "reviewed": ANY}.get(review, review), text, where, ranges,
    )  # fmt: skip


def exporting(condition: str | None, count: int) -> None:
    """The selection as a file."""
    with st.popover("Export", icon=":material/download:", disabled=not count):
        st.markdown(f"The selection, **{count:,}** rows")
        st.download_button(
            "All columns (Parquet)", lambda: rows_file(database, condition), "selection.parquet", on_click="ignore"
        )
        st.download_button(
            "Usable rows (DataComp .npy)",
            lambda: subset_file(database, Rules(where=condition)),
            "selection.npy",
            on_click="ignore",
        )
        st.caption(f"Parquet holds at most {EXPORT_ROWS:,} rows; `auditor filter` has no limit.")


with st.sidebar:
    selection = filters()

with st.container(horizontal=True, vertical_alignment="center"):
    st.title("Browse", width="content")
    counted = st.container(horizontal=True, key="count", vertical_alignment="center")
wanted = searching()
try:
    condition = selection.condition(database)
    count = found.ask("count", count_rows, condition)
except QueryError as error:
    empty("The SQL condition cannot be used", str(error), icon=":material/error:")
    st.stop()
nearest = nearest_of(condition, wanted) if wanted else 0
with st.container(horizontal=True, vertical_alignment="bottom"):
    look = st.segmented_control("Gallery", LOOKS, default=LOOKS[0], key="look", bind="query-params", required=True)
    sort = st.selectbox(
        "Sort by",
        [CORPUS_ORDER, *database.columns],
        index=1 + database.columns.index(SORT),
        key="sort",
        bind="query-params",
        on_change=first_page,
        width=220,
        disabled=bool(wanted),
    )
    order = st.selectbox(
        "Order", ORDERS, key="order", bind="query-params", on_change=first_page, width=150, disabled=bool(wanted)
    )
    size = st.selectbox("On a page", SIZES, index=1, key="size", bind="query-params", on_change=first_page, width=100)
    grouped = found.ask("several captions", several_captions) and st.toggle(
        "A card for each medium", True, key="grouped", bind="query-params", on_change=first_page
    )

view = View(selection, None if sort == CORPUS_ORDER else sort, order == ORDERS[0], size, grouped, wanted)
shown_cards = nearest if wanted else found.ask("cards", count_cards, condition, grouped)
pages = max(1, -(-shown_cards // size))
with counted:
    if wanted:
        st.markdown(
            f"the **{nearest:,}** nearest of **{count:,}** rows" + (f" (at most {SEARCHED})" if nearest else "")
        )
    else:
        st.markdown(f"**{count:,}** rows" + (f" of **{shown_cards:,}** media" if grouped else ""))
    if condition:
        st.page_link(MAP, label="On the map", icon=":material/scatter_plot:", query_params={"map_where": condition})
        st.page_link(THRESHOLDS, label="Filter", icon=":material/tune:", query_params={"keep_where": condition})
        st.page_link(REVIEW, label="Review", icon=":material/checklist:", query_params={"queue_where": condition})
    exporting(condition, count)
if not count or not shown_cards:
    empty("No row meets these filters", "Widen a range, or clear the filters in the sidebar.")
    st.stop()

body, footer = st.container(), st.container(horizontal=True, horizontal_alignment="center", vertical_alignment="center")
with footer:
    page = st.session_state.get("page") or 1
    st.button("Previous", on_click=turn, args=(-1,), disabled=page <= 1, shortcut="Left", key="previous")
    page = st.pagination(pages, key="page", bind="query-params")
    st.button("Next", on_click=turn, args=(1,), disabled=page >= pages, shortcut="Right", key="next")
with body:
    first = (page - 1) * size
    extra = (view.sort,) if view.sort in MEASUREMENTS and view.sort not in USUAL else ()
    numbers = ("nearness", *USUAL[:1]) if wanted else (*extra, *USUAL)
    if look == LOOKS[0]:
        send_all()
        compact(found, condition, view, first, numbers[:1])
    else:
        gallery(database, cards(database, condition, view, size, first), view=view, first=first, shown=numbers)

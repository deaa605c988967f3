"""Browse: a gallery of the rows that meet every filter of the sidebar; each filter is a parameter of the URL.

A search orders the rows by their similarity to a text or to a row (*more like this*). The compact gallery selects and
marks many rows at once.
"""

from typing import Any

import streamlit as st

from auditor.query.row_queries import count_matching_rows as count_rows
from auditor.query.row_queries import has_several_captions
from auditor.query.rules import Rules
from auditor.query.sandbox import QueryError
from auditor.query.search_index import SIDES
from auditor.schema import FLAGS, HEADLINES, MEASUREMENTS
from auditor.workers.encoder_client import SearchError
from dashboard.audit_source import open_first_audit
from dashboard.display_text import column_label, show_condition_error, show_empty_state
from dashboard.gallery import CARD_NUMBERS, show_compact_gallery, show_gallery
from dashboard.records import (
    EXPORT_ROWS,
    SEARCH_ROWS,
    count_cards,
    count_pages,
    list_cards,
    make_rows_file,
    make_subset_file,
    search_rows,
)
from dashboard.review_cards import resend_pictures
from dashboard.row_selection import RowSelection, find_slider_bounds
from dashboard.url_state import (
    ANY,
    CORPUS_ORDER,
    KINDS,
    MAP,
    PAGE_SIZES,
    REVIEW,
    REVIEWS,
    SORT,
    SORT_ORDERS,
    STATES,
    THRESHOLDS,
    GallerySearch,
    GalleryView,
    go_to_first_page,
    narrowed_range,
)

audit = open_first_audit()
database = audit.database
LAYOUTS = ("compact", "cards")
FILTER_DEFAULTS = {"kind": ANY, "status": ANY, "flag": [], "review": ANY, "text": "", "where": ""}


def turn_page(pages: int) -> None:
    st.session_state["page"] = st.session_state.get("page", 1) + pages


def clear_filters() -> None:
    for name in (*FILTER_DEFAULTS, *HEADLINES):
        st.session_state.pop(name, None)
    st.session_state.update(FILTER_DEFAULTS)
    for column in HEADLINES:
        bounds = audit.ask("bounds", find_slider_bounds, column)
        st.session_state[column] = (bounds.low, bounds.high)
    go_to_first_page()


def clear_example() -> None:
    st.query_params.pop("like", None)
    go_to_first_page()


def show_search() -> GallerySearch:
    """Show the search box. The URL may hold an example row instead of a text; the later of the two counts."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        text = st.text_input(
            "Search",
            key="search",
            placeholder="a dog on a beach",
            bind="query-params",
            on_change=clear_example,
            help="Finds the most similar rows with the model of the audit, which loads on the first search.",
        )
        sides = list(SIDES)
        over = st.segmented_control("Over", sides, default=sides[0], key="over", bind="query-params", required=True)
        like = st.query_params.get("like", "")  # a text typed later removes it
        if like:
            st.button("Stop looking for more like this", on_click=clear_example, icon=":material/close:")
    return GallerySearch("" if like else text, like, over or sides[0])


def count_matches(condition: str | None, gallery_search: GallerySearch) -> int:
    """The number of rows that a search finds; stops the page with the reason if it fails."""
    try:
        with st.spinner("Searching …"):
            return len(search_rows(database, condition, gallery_search))
    except SearchError as error:
        hint = "Search by example still works: the button ≈ (more like this) of any card."
        show_empty_state("This search is not possible", f"{error}\n{hint}", icon=":material/error:")
        st.stop()


def show_filters() -> RowSelection:
    """Show the widgets of the sidebar."""
    options: Any = {"bind": "query-params", "on_change": go_to_first_page}
    text = st.text_input("In the caption", key="text", placeholder="words to look for", **options)
    kind = st.selectbox("Kind", KINDS, key="kind", **options)
    flags = st.multiselect("Flagged as", list(FLAGS), key="flag", placeholder="any or none", **options)
    status = st.selectbox("Status", STATES, key="status", **options)
    review = st.selectbox("Review", REVIEWS, key="review", **options)
    ranges = {}
    with st.expander("Ranges", expanded=any(column in st.query_params for column in HEADLINES)):
        for column in HEADLINES:
            bounds = audit.ask("bounds", find_slider_bounds, column)
            limits = bounds.low, bounds.high
            ends = st.slider(column_label(column), *limits, limits, bounds.step, key=column, **options)
            if selected_range := narrowed_range(ends, bounds):
                ranges[column] = selected_range
    where = st.text_input(
        "SQL condition",
        key="where",
        placeholder="width < 200 OR topic = 3",
        help="Any expression over the columns of `samples`.",
        **options,
    )
    st.button("Clear filters", on_click=clear_filters, icon=":material/filter_alt_off:", width="stretch")
    return RowSelection(
        None if kind == ANY else kind, None if status == ANY else status, tuple(flags),
        {ANY: None, "reviewed": ANY}.get(review, review), text, where, ranges,
    )  # fmt: skip


def show_export(condition: str | None, count: int) -> None:
    """Show the downloads of the selection."""
    with st.popover("Export", icon=":material/download:", disabled=not count):
        st.markdown(f"The selection, **{count:,}** rows")
        st.download_button(
            "All columns (Parquet)", lambda: make_rows_file(database, condition), "selection.parquet", on_click="ignore"
        )
        st.download_button(
            "Usable rows (DataComp .npy)",
            lambda: make_subset_file(database, Rules(where=condition)),
            "selection.npy",
            on_click="ignore",
        )
        st.caption(f"The Parquet file holds at most {EXPORT_ROWS:,} rows; `auditor filter` has no limit.")


def show_order() -> tuple[str | None, bool]:
    """Show the sort column and the direction, which a search disables."""
    options: Any = {"bind": "query-params", "on_change": go_to_first_page, "disabled": bool(gallery_search)}
    columns = [CORPUS_ORDER, *database.columns]
    sort = st.selectbox("Sort by", columns, index=columns.index(SORT), key="sort", width=220, **options)
    order = st.selectbox("Order", SORT_ORDERS, key="order", width=150, **options)
    return None if sort == CORPUS_ORDER else sort, order == SORT_ORDERS[0]


def show_counts(condition: str | None, count: int, cards: int, view: GalleryView) -> None:
    """Show how many rows there are, and links that carry the selection to other pages."""
    if view.search:
        limit = f" (at most {SEARCH_ROWS})" if cards else ""
        st.markdown(f"the **{cards:,}** nearest of **{count:,}** rows{limit}")
    else:
        st.markdown(f"**{count:,}** rows" + (f" of **{cards:,}** media" if view.grouped else ""))
    if condition:
        st.page_link(MAP, label="On the map", icon=":material/scatter_plot:", query_params={"map_where": condition})
        st.page_link(THRESHOLDS, label="Filter", icon=":material/tune:", query_params={"keep_where": condition})
        st.page_link(REVIEW, label="Review", icon=":material/checklist:", query_params={"queue_where": condition})
    show_export(condition, count)


def show_pagination(pages: int) -> int:
    """Show the page buttons and return the number of the page."""
    page_number = st.session_state.get("page") or 1
    st.button("Previous", on_click=turn_page, args=(-1,), disabled=page_number <= 1, shortcut="Left", key="previous")
    page_number = int(st.pagination(pages, key="page", bind="query-params"))
    st.button("Next", on_click=turn_page, args=(1,), disabled=page_number >= pages, shortcut="Right", key="next")
    return page_number


def card_numbers(view: GalleryView) -> tuple[str, ...]:
    """The columns to show on a card."""
    if view.search:
        return ("nearness", *CARD_NUMBERS[:1])
    is_extra = view.sort in MEASUREMENTS and view.sort not in CARD_NUMBERS
    return (view.sort, *CARD_NUMBERS) if view.sort and is_extra else CARD_NUMBERS


with st.sidebar:
    selection = show_filters()

with st.container(horizontal=True, vertical_alignment="center"):
    st.title("Browse", width="content")
    counts_container = st.container(horizontal=True, key="count", vertical_alignment="center")
gallery_search = show_search()
try:
    condition = selection.condition(database)
    version = database.freshness(condition)
    count = audit.ask("count", count_rows, condition, version=version)
except QueryError as error:
    show_condition_error(error)
    st.stop()
matches = count_matches(condition, gallery_search) if gallery_search else 0
with st.container(horizontal=True, vertical_alignment="bottom"):
    layout = st.segmented_control(
        "Gallery", LAYOUTS, default=LAYOUTS[0], key="look", bind="query-params", required=True
    )
    sort, descending = show_order()
    size = st.selectbox(
        "Per page", PAGE_SIZES, index=1, key="size", bind="query-params", on_change=go_to_first_page, width=100
    )
    grouped = audit.ask("several captions", has_several_captions) and st.toggle(
        "One card per medium", True, key="grouped", bind="query-params", on_change=go_to_first_page
    )

view = GalleryView(selection, sort, descending, size, grouped, gallery_search)
cards = matches if gallery_search else audit.ask("cards", count_cards, condition, grouped, version=version)
with counts_container:
    show_counts(condition, count, cards, view)
if not count or not cards:
    show_empty_state("No row meets these filters", "Widen a range, or clear the filters in the sidebar.")
    st.stop()

body, footer = st.container(), st.container(horizontal=True, horizontal_alignment="center", vertical_alignment="center")
with footer:
    first = (show_pagination(count_pages(cards, size)) - 1) * size
with body:
    if layout == LAYOUTS[0]:
        resend_pictures()
        show_compact_gallery(audit, condition, view, first, card_numbers(view)[:1])
    else:
        page_cards = list_cards(database, condition, view, size, first)
        show_gallery(database, page_cards, view=view, first=first, numbers=card_numbers(view))

"""Browse: a gallery of the rows that meet every filter of the sidebar; each filter is a parameter of the URL.

A search orders the rows by their similarity to a text or to a row (*more like this*). The compact gallery selects and
marks many rows at once.
"""

from functools import partial
from typing import Any

import streamlit as st

from auditor.query.row_queries import count_matching_rows, has_several_captions
from auditor.query.rules import Rules
from auditor.query.sandbox import QueryError
from auditor.query.search_index import SIDES
from auditor.schema import MEASUREMENTS
from auditor.workers.encoder_client import SearchError
from dashboard import records
from dashboard.audit_source import open_first_audit
from dashboard.display_text import show_choice, show_condition_error, show_empty_state
from dashboard.filters import show_filters
from dashboard.gallery import show_compact_gallery, show_gallery
from dashboard.review_cards import CARD_NUMBERS, resend_pictures
from dashboard.url_state import (
    CORPUS_ORDER,
    DUPLICATES,
    MAP,
    PAGE_SIZES,
    REVIEW,
    SORT,
    SORT_ORDERS,
    THRESHOLDS,
    GallerySearch,
    GalleryView,
    go_to_first_page,
)

audit = open_first_audit()
database = audit.database
LAYOUTS = ("compact", "cards", DUPLICATES)


def turn_page(pages: int) -> None:
    st.session_state["page"] = st.session_state.get("page", 1) + pages


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
        over = show_choice("Over", SIDES, "over")
        like = st.query_params.get("like", "")  # a text typed later removes it
        if like:
            st.button("Stop looking for more like this", on_click=clear_example, icon=":material/close:")
    return GallerySearch("" if like else text, like, over)


def count_matches(condition: str | None, gallery_search: GallerySearch) -> int:
    """The number of rows that a search finds; stops the page with the reason if it fails."""
    try:
        with st.spinner("Searching …"):
            return len(records.search_rows(database, condition, gallery_search))
    except SearchError as error:
        hint = "Search by example still works: the button ≈ (more like this) of any card."
        show_empty_state("This search is not possible", f"{error}\n{hint}", icon=":material/error:")
        st.stop()


def show_export(condition: str | None, count: int) -> None:
    with st.popover("Export", icon=":material/download:", disabled=not count):
        st.markdown(f"The selection, **{count:,}** rows")
        make_parquet = partial(records.make_rows_file, database, condition)
        make_npy = partial(records.make_subset_file, database, Rules(where=condition))
        st.download_button("All columns (Parquet)", make_parquet, "selection.parquet", on_click="ignore")
        st.download_button("Usable rows (DataComp .npy)", make_npy, "selection.npy", on_click="ignore")
        st.caption(f"The Parquet file holds at most {records.EXPORT_ROWS:,} rows; `auditor filter` has no limit.")


def show_order() -> tuple[str | None, bool]:
    options: Any = {
        "bind": "query-params",
        "on_change": go_to_first_page,
        "disabled": bool(gallery_search) or layout == DUPLICATES,
    }
    columns = [CORPUS_ORDER, *database.columns]
    sort = st.selectbox("Sort by", columns, index=columns.index(SORT), key="sort", width=180, **options)
    order = st.selectbox("Order", SORT_ORDERS, key="order", width=130, **options)
    return None if sort == CORPUS_ORDER else sort, order == SORT_ORDERS[0]


def show_counts(condition: str | None, count: int, cards: int, view: GalleryView) -> None:
    if view.search:
        limit = f" (at most {records.SEARCH_ROWS})" if cards else ""
        st.markdown(f"the **{cards:,}** nearest of **{count:,}** rows{limit}")
    elif view.duplicates:
        st.markdown(f"**{cards:,}** groups of duplicates among **{count:,}** rows")
    else:
        st.markdown(f"**{count:,}** rows" + (f" of **{cards:,}** media" if view.grouped else ""))
    if condition:
        query = GalleryView(view.selection).query()
        query = {name if name in view.selection.facets else f"map_{name}": value for name, value in query.items()}
        st.page_link(MAP, label="On the map", icon=":material/scatter_plot:", query_params=query)
        st.page_link(THRESHOLDS, label="Filter", icon=":material/tune:", query_params={"keep_where": condition})
        st.page_link(REVIEW, label="Review", icon=":material/checklist:", query_params={"queue_where": condition})
    show_export(condition, count)


def show_pagination(pages: int) -> int:
    page_number = st.session_state.get("page") or 1
    st.button("Previous", on_click=turn_page, args=(-1,), disabled=page_number <= 1, shortcut="Left", key="previous")
    page_number = int(st.pagination(pages, key="page", bind="query-params"))
    st.button("Next", on_click=turn_page, args=(1,), disabled=page_number >= pages, shortcut="Right", key="next")
    return page_number


def card_numbers(view: GalleryView) -> tuple[str, ...]:
    if view.search:
        return ("nearness", *CARD_NUMBERS[:1])
    is_extra = view.sort in MEASUREMENTS and view.sort not in CARD_NUMBERS
    return (view.sort, *CARD_NUMBERS) if view.sort and is_extra else CARD_NUMBERS


with st.sidebar:
    selection = show_filters(audit)

with st.container(horizontal=True, vertical_alignment="center"):
    st.title("Browse", width="content")
    counts_container = st.container(horizontal=True, key="count", vertical_alignment="center")
gallery_search = show_search()
try:
    condition = selection.condition(database)
    version = database.freshness(condition)
    count = audit.ask("count", count_matching_rows, condition, version=version)
except QueryError as error:
    show_condition_error(error)
    st.stop()
matches = count_matches(condition, gallery_search) if gallery_search else 0
with st.container(horizontal=True, vertical_alignment="bottom"):
    layout = show_choice("Gallery", LAYOUTS, "look")
    sort, descending = show_order()
    options: Any = {"bind": "query-params", "on_change": go_to_first_page}
    size = st.selectbox("Per page", PAGE_SIZES, index=1, key="size", width=80, **options)
    several = audit.ask("several captions", has_several_captions)
    grouped = several and layout != DUPLICATES and st.toggle("One card per medium", True, key="grouped", **options)

duplicates = layout == DUPLICATES and not gallery_search
view = GalleryView(selection, sort, descending, size, grouped, duplicates, gallery_search)
cards = matches
if not gallery_search:
    cards = audit.ask("cards", records.count_cards, condition, grouped, duplicates, version=version)
with counts_container:
    show_counts(condition, count, cards, view)
if not count or not cards:
    show_empty_state("No row meets these filters", "Widen a range, or clear the filters in the sidebar.")
    st.stop()

body, footer = st.container(), st.container(horizontal=True, horizontal_alignment="center", vertical_alignment="center")
with footer:
    first = (show_pagination(records.count_pages(cards, size)) - 1) * size
with body:
    if layout != "cards":
        resend_pictures()
        show_compact_gallery(audit, condition, view, first, card_numbers(view)[:1])
    else:
        page_cards = records.list_cards(database, condition, view, size, first)
        show_gallery(database, page_cards, view=view, first=first, numbers=card_numbers(view))

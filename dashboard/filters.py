"""The filters of the sidebar on the Browse and Map pages: facets with counts, words, marks, ranges and SQL.

Each filter is a parameter of the URL. The counts of a facet reflect all other filters.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import streamlit as st

from auditor.query.corpus_groups import EXTRA, UNUSABLE, FacetValue, count_facets, list_facets
from auditor.query.sandbox import QueryError
from auditor.schema import HEADLINES
from dashboard.audit_source import OpenAudit
from dashboard.display_text import column_label
from dashboard.row_selection import RowSelection, find_slider_bounds
from dashboard.url_state import ANY, REVIEWS, go_to_first_page, select_facets

FACETS_KEY = "facets"
OPEN_FACETS = (
    "status",
    "kind",
    "flag",
    "language",
    "looks_like",
    "caption_source",
)  # others are folded until a value is chosen

_facets_component = st.components.v2.component(
    "auditor_facets",
    css=Path(__file__).with_name("facets.css").read_text(encoding="utf-8"),
    js=Path(__file__).with_name("facets.js").read_text(encoding="utf-8"),
)


def show_filters(audit: OpenAudit, prefix: str = "") -> RowSelection:
    """Show all filters; the parameters of those that are Streamlit's own widgets start with `prefix`.

    Streamlit removes the parameters of a page's widgets when it leaves the page, so no two pages may share them.
    """
    options: Any = {"bind": "query-params", "on_change": go_to_first_page}
    text = st.text_input("In the caption", key=prefix + "text", placeholder="words to look for", **options)
    facets = st.container()
    review = st.selectbox("Review", REVIEWS, key=prefix + "review", **options)
    ranges = {}
    with st.expander("Ranges", expanded=any(prefix + column in st.query_params for column in HEADLINES)):
        for column in HEADLINES:
            low, high, step = audit.ask("bounds", find_slider_bounds, column)
            ends = st.slider(column_label(column), low, high, (low, high), step, key=prefix + column, **options)
            if ends != (low, high):  # a range that is fully open keeps rows without a value
                ranges[column] = ends
    options |= {"placeholder": "width < 200 OR topic = 3", "help": "Any expression over the columns of `samples`."}
    where = st.text_input("SQL condition", key=prefix + "where", **options)
    st.button(
        "Clear filters", on_click=clear_filters, args=(audit, prefix), icon=":material/filter_alt_off:", width="stretch"
    )
    chosen = select_facets({name: st.query_params.get_all(name) for name in st.query_params})
    selection = RowSelection(chosen, None if review == ANY else review, text, where, ranges)
    with facets:
        show_facets(audit, selection)
    return selection


def clear_filters(audit: OpenAudit, prefix: str) -> None:
    ranges = {column: audit.ask("bounds", find_slider_bounds, column)[:2] for column in HEADLINES}
    for name, value in {"review": ANY, "text": "", "where": "", **ranges}.items():
        st.session_state.pop(prefix + name, None)
        st.session_state[prefix + name] = value
    for facet in list_facets(audit.database):
        st.query_params.pop(facet, None)
    go_to_first_page()


def show_facets(audit: OpenAudit, selection: RowSelection) -> None:
    """Show the values of every facet; nothing if the SQL condition is wrong, because the page says so."""
    try:
        every = selection.condition(audit.database)
        conditions = {
            facet: selection.condition(audit.database, without=facet) if selection.facets.get(facet) else every
            for facet in list_facets(audit.database)
        } | {"flag": every}
        counts = audit.ask("facets", count_facets, conditions, version=audit.database.freshness(every))
    except QueryError:
        return
    facets = [make_facet(facet, values, selection.facets.get(facet, ())) for facet, values in counts.items()]
    data = {"facets": [facet for facet in facets if facet["chosen"] or len(facet["values"]) > 1]}
    _facets_component(key=FACETS_KEY, data=data, on_clicked_change=toggle_value)


def make_facet(facet: str, values: Sequence[FacetValue], chosen: Sequence[str]) -> dict[str, Any]:
    """A facet in the form that the browser gets; chosen values are there even if no row has them."""
    listed = {value.value for value in values}
    rows = {UNUSABLE: sum(value.rows for value in values if value.value != "ok")}
    return {
        "name": facet,
        "label": "Flag" if facet == "flag" else column_label(facet.removeprefix(EXTRA)),
        "values": [
            *map(asdict, values),
            *({"value": v, "label": v, "rows": rows.get(v, 0)} for v in chosen if v not in listed),
        ],
        "chosen": list(chosen),
        "open": bool(chosen) or facet in OPEN_FACETS,
    }


def toggle_value() -> None:
    clicked: Mapping[str, str] = (st.session_state.get(FACETS_KEY) or {}).get("clicked") or {}
    facet, value = str(clicked.get("facet")), str(clicked.get("value"))
    values = list(select_facets({facet: st.query_params.get_all(facet)}).get(facet, ()))
    st.query_params[facet] = [v for v in values if v != value] if value in values else [*values, value]
    go_to_first_page()

"""Map: the content of the corpus, and the pictures of a selection beside it.

A lasso or a box on the map is a condition for Browse, Thresholds and `auditor filter`. With the rules of the Thresholds
page in the URL, points can be colored by whether they are kept.
"""

import json
import shlex
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import streamlit as st

from auditor.errors import AuditorError
from auditor.keep.subset_drift import sample_kept_points
from auditor.query.distributions import find_value_range
from auditor.query.map_queries import (
    PLACES,
    Shape,
    build_shapes_condition,
    compute_map_density,
    decode_shapes,
    encode_shapes,
    has_map,
    list_topic_labels,
    sample_points,
    simplify_lasso,
)
from auditor.query.row_queries import count_matching_rows, fetch_rows
from auditor.query.rules import Rules
from auditor.query.sandbox import QueryError, quote_literal
from auditor.schema import COLUMNS
from dashboard.audit_source import open_first_audit
from dashboard.display_text import show_choice, show_condition_error, show_empty_state
from dashboard.filters import show_filters
from dashboard.gallery import show_compact_gallery
from dashboard.map_chart import draw_map
from dashboard.records import make_uids_file
from dashboard.review_cards import resend_pictures
from dashboard.row_selection import RowSelection
from dashboard.url_state import BROWSE, KEPT, THRESHOLDS, GalleryView

FIRST_COLORS = ("p_mismatch", "topic", "kind", "similarity", "mismatch")
CARDS = 24  # beside the map

audit = open_first_audit()
database = audit.database


def list_color_columns() -> list[str]:
    """Columns to color by, without those whose values hardly repeat."""
    excluded = {*FIRST_COLORS, "key", "media_path", *(name for name, column in COLUMNS.items() if column.unique)}
    return [*FIRST_COLORS, *(column for column in database.columns if column not in excluded)]


def read_linked_rules() -> Rules | None:
    """The rules that a link from the Thresholds page carries."""
    with suppress(ValueError, TypeError, AuditorError):
        return Rules.of(json.loads(st.query_params["rules"])) if "rules" in st.query_params else None
    return None


def read_drawn_shapes(event: Any) -> list[Shape]:
    selection = event.selection if event else {}
    drawings = [*(selection.get("box") or []), *(selection.get("lasso") or [])]
    shapes = [simplify_lasso(list(zip(drawing["x"], drawing["y"], strict=True))) for drawing in drawings]
    return [shape for shape in shapes if len(shape) >= 2]


def clear_selection() -> None:
    st.query_params.pop("shape", None)
    st.session_state["maps"] = st.session_state.get("maps", 0) + 1  # a new chart without a selection


def show_pictures(condition: str | None, pictured: RowSelection, selected: bool) -> None:
    """Show the rows of the selection, or of the whole map, with links that take them to other pages."""
    count = audit.ask("count", count_matching_rows, condition, version=database.freshness(condition))
    with st.container(horizontal=True, vertical_alignment="center", key="selected", gap="small"):
        st.markdown(
            f"**{count:,}** rows" + (" selected" if selected else f", {len(rows):,} drawn" if is_sample else "")
        )
        query = GalleryView(pictured).query()
        st.page_link(BROWSE, label="Browse them", icon=":material/photo_library:", query_params=query)
        if selected:
            with st.popover("Filter", icon=":material/tune:"):
                show_uses(str(condition))
            st.button("Clear", on_click=clear_selection, icon=":material/close:", type="tertiary")
    with st.container(key="map-pictures"):
        resend_pictures()
        show_compact_gallery(audit, condition, GalleryView(pictured, size=CARDS, grouped=False), browsing=False)


def show_uses(condition: str) -> None:
    keep, remove = {"keep_where": condition}, {"keep_where": f"NOT coalesce({condition}, FALSE)"}
    st.page_link(THRESHOLDS, label="Keep only them", icon=":material/tune:", query_params=keep)
    st.page_link(THRESHOLDS, label="Remove them", icon=":material/tune:", query_params=remove)
    st.download_button("Their uids", partial(make_uids_file, database, condition), "selected.txt", on_click="ignore")
    command = ["auditor", "filter", database.path, "--where", condition, "--out", "kept.npy"]
    st.code(shlex.join(command), language="bash", wrap_lines=True)


def find_clicked_condition(event: Any) -> str:
    clicked_points = (event.selection.get("points") or []) if event else []
    order = str(clicked_points[0].get("customdata") or "") if len(clicked_points) == 1 else ""
    rows = fetch_rows(database, f"uid_order = {order}", "", 1).to_pylist() if order.isdecimal() else []
    return f"uid = {quote_literal(rows[0]['uid'])}" if rows else ""


if not audit.ask("has map", has_map):
    st.title("Map")
    show_empty_state("This audit has no map", "Score it again:", f"auditor score {database.path}")
    st.stop()
with st.sidebar:
    selection = show_filters(audit, "map_")
left, right = st.columns([5, 3])
with left, st.container(horizontal=True, vertical_alignment="bottom"):
    st.title("Map", width="content")
    over = show_choice("Map of", PLACES, "over")
    rules = read_linked_rules()
    colors = [*([KEPT] if rules else []), *list_color_columns()]
    color_column = st.selectbox("Color by", colors, key="colour", bind="query-params", width=260)
try:
    condition = selection.condition(database)
    version = database.freshness(condition)
    if rules and color_column == KEPT:
        rows = audit.ask("kept points", sample_kept_points, over, rules, condition, version=database.reviews_version)
    else:
        rows = audit.ask("points", sample_points, over, color_column, condition, version=database.reviews_version)
    placed = f"({condition or 'TRUE'}) AND {PLACES[over][0]} IS NOT NULL"
    total = audit.ask("count", count_matching_rows, placed, version=version)
except QueryError as error:
    show_condition_error(error)
    st.stop()
is_sample = total > len(rows)
cells = audit.ask("map density", compute_map_density, over, condition, version=version) if is_sample else None
shapes = decode_shapes(st.query_params.get("shape", ""))
chart = draw_map(
    rows,
    color_column,
    audit.ask("topic labels", list_topic_labels, over, condition, version=version),
    shapes,
    cells,
    sides=[audit.ask("side", find_value_range, column) for column in PLACES[over]],
    dark=st.context.theme.type == "dark",
)
with left, st.container(key="map"):
    event = st.plotly_chart(
        chart,
        key=f"map-{over}-{st.session_state.get('maps', 0)}",
        height="stretch",
        on_select="rerun",
        selection_mode=("points", "box", "lasso"),
        config={"displaylogo": False, "scrollZoom": True, "modeBarButtonsToRemove": ["toImage"]},
    )
if drawn_shapes := read_drawn_shapes(event):
    shapes = drawn_shapes
    st.query_params["shape"] = encode_shapes(shapes)
inside = build_shapes_condition(shapes, *PLACES[over]) if shapes else find_clicked_condition(event)
wheres = [f"({part})" for part in (selection.where, inside or f"{PLACES[over][0]} IS NOT NULL") if part.strip()]
pictured = replace(selection, where=" AND ".join(wheres))
with right:
    show_pictures(pictured.condition(database), pictured, bool(inside))

"""Map: the content of the corpus. A lasso or a box on it is a condition for Browse, Thresholds and `auditor filter`."""

import shlex
from functools import partial
from typing import Any

import streamlit as st

from auditor.query.distributions import compute_density, find_value_range
from auditor.query.map_queries import (
    PLACES,
    Shape,
    build_shapes_condition,
    decode_shapes,
    encode_shapes,
    has_map,
    list_topic_labels,
    sample_points,
    simplify_lasso,
)
from auditor.query.row_queries import count_matching_rows, fetch_rows, read_page
from auditor.query.sandbox import QueryError
from auditor.schema import COLUMNS
from dashboard.audit_source import open_first_audit
from dashboard.display_text import show_choice, show_condition_error, show_empty_state
from dashboard.gallery import show_gallery
from dashboard.map_chart import draw_map
from dashboard.records import make_uids_file
from dashboard.url_state import BROWSE, THRESHOLDS

FIRST_COLORS = ("p_mismatch", "topic", "kind", "similarity", "mismatch")
CARDS = 8  # below the map

audit = open_first_audit()
database = audit.database


def list_color_columns() -> list[str]:
    """Columns to color by, without those whose values hardly repeat."""
    excluded = {*FIRST_COLORS, "key", "media_path", *(name for name, column in COLUMNS.items() if column.unique)}
    return [*FIRST_COLORS, *(column for column in database.columns if column not in excluded)]


def read_drawn_shapes(event: Any) -> list[Shape]:
    selection = event.selection if event else {}
    drawings = [*(selection.get("box") or []), *(selection.get("lasso") or [])]
    shapes = [simplify_lasso(list(zip(drawing["x"], drawing["y"], strict=True))) for drawing in drawings]
    return [shape for shape in shapes if len(shape) >= 2]


def clear_selection() -> None:
    st.query_params.pop("shape", None)
    st.session_state["maps"] = st.session_state.get("maps", 0) + 1  # a new chart without a selection


def show_selection(shapes: list[Shape], where: str) -> None:
    inside = build_shapes_condition(shapes, *PLACES[over])
    condition = f"({inside}) AND ({where})" if where.strip() else inside
    count = audit.ask("count", count_matching_rows, condition, version=database.freshness(condition))
    st.subheader("Selected")
    with st.container(horizontal=True, vertical_alignment="center", key="selected"):
        st.markdown(f"**{count:,}** rows")
        st.page_link(BROWSE, label="Browse them", icon=":material/photo_library:", query_params={"where": condition})
        keep, remove = {"keep_where": condition}, {"keep_where": f"NOT coalesce({condition}, FALSE)"}
        st.page_link(THRESHOLDS, label="Keep only them", icon=":material/tune:", query_params=keep)
        st.page_link(THRESHOLDS, label="Remove them", icon=":material/tune:", query_params=remove)
        make_file = partial(make_uids_file, database, condition)
        st.download_button("Their uids", make_file, "selected.txt", on_click="ignore", disabled=not count)
        st.button("Clear", on_click=clear_selection, icon=":material/close:")
    with st.expander("As a command"):
        command = ["auditor", "filter", database.path, "--where", condition, "--out", "kept.npy"]
        st.code(shlex.join(command), language="bash", wrap_lines=True)
    rows = read_page(database, condition, "p_mismatch", True, CARDS).to_pylist()
    show_gallery(database, [[row] for row in rows], columns=4)


def show_clicked_row(event: Any) -> None:
    clicked_points = (event.selection.get("points") or []) if event else []
    order = str(clicked_points[0].get("customdata") or "") if len(clicked_points) == 1 else ""
    if order.isdecimal():
        rows = fetch_rows(database, f"uid_order = {order}", "", 1).to_pylist()
        show_gallery(database, [[row] for row in rows], columns=4)


st.title("Map")
if not audit.ask("has map", has_map):
    show_empty_state("This audit has no map", "Score it again:", f"auditor score {database.path}")
    st.stop()
with st.container(horizontal=True, vertical_alignment="bottom"):
    over = show_choice("Map of", PLACES, "over")
    color_column = st.selectbox("Color by", list_color_columns(), key="colour", bind="query-params", width=280)
    where = st.text_input("SQL condition", key="map_where", bind="query-params", placeholder="kind = 'video'")
try:
    version = database.freshness(where or None)
    rows = audit.ask("points", sample_points, over, color_column, where, version=database.reviews_version)
    placed = f"({where or 'TRUE'}) AND {PLACES[over][0]} IS NOT NULL"
    total = audit.ask("count", count_matching_rows, placed, version=version)
except QueryError as error:
    show_condition_error(error)
    st.stop()
is_sample = total > len(rows)
cells = audit.ask("density", compute_density, *PLACES[over], where or None, 90, version=version) if is_sample else None
shapes = decode_shapes(st.query_params.get("shape", ""))
chart = draw_map(
    rows,
    color_column,
    audit.ask("topic labels", list_topic_labels, over, where, version=version),
    shapes,
    cells,
    sides=[audit.ask("side", find_value_range, column) for column in PLACES[over]],
    dark=st.context.theme.type == "dark",
)
event = st.plotly_chart(
    chart,
    key=f"map-{over}-{st.session_state.get('maps', 0)}",
    on_select="rerun",
    selection_mode=("points", "box", "lasso"),
    config={"displaylogo": False, "scrollZoom": True, "modeBarButtonsToRemove": ["toImage"]},
)
drawn = f"**{len(rows):,}** of **{total:,}** rows are drawn" if is_sample else f"**{total:,}** rows"
st.caption(
    f"{drawn}. The name of a topic is its most typical caption. Draw a lasso or a box to select rows, or click one."
)
if drawn_shapes := read_drawn_shapes(event):
    shapes = drawn_shapes
    st.query_params["shape"] = encode_shapes(shapes)
if shapes:
    show_selection(shapes, where)
else:
    show_clicked_row(event)

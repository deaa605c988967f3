"""Map: what is in the corpus. A lasso or a box on it is a condition for Browse, Thresholds and `auditor filter`."""

import shlex
from typing import Any

import streamlit as st

from auditor.query.distributions import density, value_range
from auditor.query.map_sample import PLACES, has_map, points, topic_labels
from auditor.query.map_selection import Shape, decoded, encoded, shapes_sql, simplified
from auditor.query.row_queries import count as count_rows
from auditor.query.row_queries import fetch, page
from auditor.query.sandbox import QueryError
from auditor.schema import COLUMNS
from dashboard.audit_source import source
from dashboard.display_text import empty
from dashboard.gallery import gallery
from dashboard.map_chart import map_chart
from dashboard.records import uids_file
from dashboard.url_state import BROWSE, THRESHOLDS

FIRST = ("p_mismatch", "topic", "kind", "similarity", "mismatch")
SHOWN = 8  # cards under the map

found = source()
database = found.database


def colours() -> list[str]:
    """Columns to colour by; those of which hardly a value repeats tell nothing."""
    named = [column for column in database.columns if not (column in COLUMNS and COLUMNS[column].unique)]
    return [*FIRST, *(column for column in named if column not in FIRST and column not in ("key", "media_path"))]


def drawn(event: Any) -> list[Shape]:
    """What was drawn by hand on the map since the last selection was cleared."""
    chosen = event.selection if event else {}
    boxes = [list(zip(box["x"], box["y"], strict=True)) for box in chosen.get("box") or []]
    lassos = [list(zip(one["x"], one["y"], strict=True)) for one in chosen.get("lasso") or []]
    return [shape for one in (*boxes, *lassos) if len(shape := simplified(one)) >= 2]


def clear() -> None:
    st.query_params.pop("shape", None)
    st.session_state["maps"] = st.session_state.get("maps", 0) + 1  # a new chart, on which nothing is selected


def selected(shapes: list[Shape], where: str) -> None:
    """The rows of a selection: how many, where to go with them, the first of them."""
    inside = shapes_sql(shapes, *PLACES[over])
    condition = f"({inside}) AND ({where})" if where.strip() else inside
    count = found.ask("count", count_rows, condition)
    st.subheader("Selected")
    with st.container(horizontal=True, vertical_alignment="center", key="selected"):
        st.markdown(f"**{count:,}** rows")
        st.page_link(BROWSE, label="Browse them", icon=":material/photo_library:", query_params={"where": condition})
        keep, remove = {"keep_where": condition}, {"keep_where": f"NOT coalesce({condition}, FALSE)"}
        st.page_link(THRESHOLDS, label="Keep only them", icon=":material/tune:", query_params=keep)
        st.page_link(THRESHOLDS, label="Remove them", icon=":material/tune:", query_params=remove)
        st.download_button(
            "Their uids", lambda: uids_file(database, condition), "selected.txt", on_click="ignore", disabled=not count
        )
        st.button("Clear", on_click=clear, icon=":material/close:")
    with st.expander("As a condition"):
        command = ["auditor", "filter", database.path, "--where", condition, "--out", "kept.npy"]
        st.code(shlex.join(command), language="bash", wrap_lines=True)
    rows = page(database, condition, "p_mismatch", True, SHOWN).to_pylist()
    gallery(database, [[row] for row in rows], columns=4)


def clicked(event: Any) -> None:
    """The row of a point that was clicked."""
    chosen = (event.selection.get("points") or []) if event else []
    order = str(chosen[0].get("customdata") or "") if len(chosen) == 1 else ""
    if order.isdecimal():
        gallery(database, [[row] for row in fetch(database, f"uid_order = {order}", "", 1).to_pylist()], columns=4)


st.title("Map")
if not found.ask("has map", has_map):
    empty(
        "This audit has no map",
        "It was scored before there were maps. Score it again:",
        f"auditor score {database.path}",
    )
    st.stop()
with st.container(horizontal=True, vertical_alignment="bottom"):
    over = st.segmented_control("Of", list(PLACES), default="media", key="over", bind="query-params", required=True)
    colour = st.selectbox("Coloured by", colours(), key="colour", bind="query-params", width=280)
    where = st.text_input("Of the rows where", key="map_where", bind="query-params", placeholder="kind = 'video'")
over = over or "media"
try:
    rows = found.ask("points", points, over, colour, where)
    total = found.ask("count", count_rows, f"({where or 'TRUE'}) AND {PLACES[over][0]} IS NOT NULL")
except QueryError as error:
    empty("The SQL condition cannot be used", str(error), icon=":material/error:")
    st.stop()
crowd = found.ask("density", density, *PLACES[over], where or None, 90) if total > len(rows) else None
shapes = decoded(st.query_params.get("shape", ""))
chart = map_chart(
    rows,
    colour,
    found.ask("topic labels", topic_labels, over, where),
    shapes,
    crowd,
    sides=[found.ask("side", value_range, column) for column in PLACES[over]],
    dark=st.context.theme.type == "dark",
)
event = st.plotly_chart(
    chart,
    key=f"map-{over}-{st.session_state.get('maps', 0)}",
    on_select="rerun",
    selection_mode=("points", "box", "lasso"),
    config={"displaylogo": False, "scrollZoom": True, "modeBarButtonsToRemove": ["toImage"]},
)
shown = f"**{len(rows):,}** of **{total:,}** rows are drawn" if total > len(rows) else f"**{total:,}** rows"
st.caption(
    f"{shown}; topics carry their most typical caption. Draw a lasso or a box to select, click a point to see it."
)
if new := drawn(event):
    shapes = new
    st.query_params["shape"] = encoded(shapes)
if shapes:
    selected(shapes, where)
else:
    clicked(event)

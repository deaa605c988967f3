"""Cards of rows in columns: the medium, the caption as it is, a few numbers, and the way to the row's own page."""

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from auditor.query.database import AuditDatabase
from auditor.schema import HEADLINES
from dashboard.media import SMALL, Shown, thumbnails
from dashboard.state import SAMPLE, View, sample_query
from dashboard.words import flag_badges, number, short, shortened

USUAL = HEADLINES[:2]


def gallery(
    database: AuditDatabase,
    rows: Sequence[Mapping[str, Any]],
    *,
    columns: int = 4,
    view: View | None = None,
    first: int = 0,
    shown: Sequence[str] = USUAL,
) -> None:
    """All rows, `columns` beside each other. With a view, each card knows its place in it."""
    media = thumbnails(SMALL).show(database, rows, play=True)
    for start in range(0, len(rows), columns):
        for place, column in enumerate(st.columns(columns), start):
            if place < len(rows):
                with (
                    column,
                    st.container(border=True, height="stretch", key=f"card-{first}-{place}-{rows[place]['uid']}"),
                ):
                    card(
                        rows[place],
                        media[place],
                        sample_query(rows[place], view, first + place if view else None),
                        shown,
                    )


def card(row: Mapping[str, Any], medium: Shown, query: Mapping[str, str], shown: Sequence[str]) -> None:
    show_medium(medium, row)
    st.text(shortened(row.get("caption")) or "(no caption)")
    scores = [f"{short(column)} **{number(row[column])}**" for column in shown if row.get(column) is not None]
    if scores:
        st.caption(" · ".join(scores))
    flag_badges(row)
    st.page_link(SAMPLE, label="Open", icon=":material/open_in_full:", query_params=dict(query))


def show_medium(medium: Shown, row: Mapping[str, Any]) -> None:
    if medium.video is not None:
        st.video(medium.video, format=medium.form)
    elif medium.jpeg is not None:
        st.image(medium.jpeg, width="stretch", alt=shortened(row.get("caption"), 120) or "no caption")
    else:
        with st.container(border=True):
            st.markdown(":material/broken_image: not shown")
            st.text(shortened(medium.problem, 160))

"""Cards in columns: the medium, a caption as it is, a few numbers, marks, and the way to the row's own page."""

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from auditor.query.database import AuditDatabase
from auditor.schema import HEADLINES, MARKS
from dashboard.display_text import MARK_ICONS, flag_badges, number, short, shortened
from dashboard.media_preview import SMALL, Shown, played, thumbnails
from dashboard.records import others_say
from dashboard.url_state import BROWSE, SAMPLE, View, first_page, identity, look_for_more_like, reviewer, sample_query

USUAL = HEADLINES[:2]
Row = Mapping[str, Any]


def gallery(
    database: AuditDatabase,
    cards: Sequence[Sequence[Row]],
    *,
    columns: int = 4,
    view: View | None = None,
    first: int = 0,
    shown: Sequence[str] = USUAL,
) -> None:
    """All cards, `columns` beside each other; a card holds the rows of a medium, its foremost first.

    With a view, each card knows its place in it.
    """
    media = thumbnails(SMALL).show(database, [rows[0] for rows in cards], play=True)
    for start in range(0, len(cards), columns):
        for place, column in enumerate(st.columns(columns), start):
            if place < len(cards):
                row = cards[place][0]
                key = f"card-{first}-{place}-{row['uid']}"
                with column, st.container(border=True, height="stretch", key=key):
                    query = sample_query(row, view, first + place if view else None)
                    card(database, cards[place], media[place], query, shown)


def card(
    database: AuditDatabase, rows: Sequence[Row], medium: Shown, query: Mapping[str, str], shown: Sequence[str]
) -> None:
    row = rows[0]
    show_medium(medium, row)
    with st.container(key=f"words-{row['uid']}-{row['caption_index']}"):
        st.text(shortened(row.get("caption")) or "(no caption)")
    scores = [f"{short(column)} **{number(row[column])}**" for column in shown if row.get(column) is not None]
    st.caption(" · ".join(scores) or "not measured")
    flag_badges(row, steady=True)
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute", gap=None):
        several = f"{len(rows)} captions" if len(rows) > 1 else None
        label = f"Open · {len(rows)}" if several else "Open"
        st.page_link(SAMPLE, label=label, help=several, query_params=dict(query))
        if row.get("status") == "ok":
            more_like(row, browsing="from" in query)
            marking(database, row)


def more_like(row: Row, *, browsing: bool) -> None:
    """The way to rows like this one: on the Browse page, which a link cannot lead to from itself, a button."""

    def search() -> None:
        look_for_more_like(row)
        first_page()

    if browsing:
        st.button("≈", key=f"like-{identity(row)}", help="More like this", on_click=search, type="tertiary")
    else:
        st.page_link(BROWSE, label="≈", help="More like this", query_params={"like": identity(row)})


def marking(database: AuditDatabase, row: Row) -> None:
    """A mark without leaving the gallery."""
    key = f"quick-{row['uid']}-{row['caption_index']}"
    st.segmented_control(
        "Mark",
        list(MARKS),
        default=row["review"] if row.get("review") in MARKS else None,
        format_func=MARK_ICONS.__getitem__,
        key=key,
        label_visibility="collapsed",
        on_change=keep_mark,
        args=(database, row, key),
    )


def keep_mark(database: AuditDatabase, row: Row, key: str) -> None:
    """The callback of a card's marks; a mark that is clicked again stays as it is."""
    if mark := st.session_state.get(key):
        mark_row(database, row, mark)


def mark_row(database: AuditDatabase, row: Row, mark: str, note: str = "") -> None:
    """Keep what the reviewer says, and tell where others said something else: both marks stay."""
    database.mark(row["uid"], mark, caption_index=row["caption_index"] or 0, reviewer=reviewer(), note=note)
    others = others_say(database, row, reviewer(), mark)
    st.toast(f"marked as {mark}" + (f"; {len(others)} said something else, all marks are kept" if others else ""))


def show_medium(medium: Shown, row: Row) -> None:
    if medium.video is not None:
        start, end = played(row)
        st.video(medium.video, format=medium.form, start_time=start, end_time=end)
    elif medium.jpeg is not None:
        st.image(medium.jpeg, width="stretch", alt=shortened(row.get("caption"), 120) or "no caption")
    else:
        with st.container(border=True, key=f"absent-{row['uid']}-{row['caption_index']}"):
            st.markdown(":material/broken_image: not shown")
            st.text(shortened(medium.problem, 160))

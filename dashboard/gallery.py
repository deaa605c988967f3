"""Galleries of rows: cards with the medium, the caption and marks, or a compact grid to mark many rows at once."""

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from auditor.query.database import AuditDatabase
from auditor.review.review_queues import fetch_reviewer_marks
from auditor.schema import MARKS
from dashboard.audit_source import OpenAudit
from dashboard.display_text import MARK_ICONS, format_number, short_label, shorten_text, show_flag_badges
from dashboard.media_preview import SMALL, MediumPreview, playback_seconds, thumbnail_cache
from dashboard.records import list_cards, list_other_marks
from dashboard.review_cards import CARD_NUMBERS, make_review_cards, show_review_cards
from dashboard.url_state import (
    BROWSE,
    SAMPLE,
    GalleryView,
    current_reviewer,
    format_row_id,
    go_to_first_page,
    sample_query,
    set_example_row,
)

INLINE_VIDEO = 24 * 2**20  # bytes of a video that a card plays; the Sample page plays all
Row = Mapping[str, Any]


def show_gallery(
    database: AuditDatabase,
    cards: Sequence[Sequence[Row]],
    *,
    columns: int = 4,
    view: GalleryView | None = None,
    first: int = 0,
    numbers: Sequence[str] = CARD_NUMBERS,
) -> None:
    """Show cards in columns. A card holds the rows of one medium; the first row gives its caption and numbers.

    With a view, the link of each card carries the view and its position there, counted from `first`.
    """
    previews = thumbnail_cache(SMALL).show(database, [rows[0] for rows in cards], play=INLINE_VIDEO)
    marks = fetch_reviewer_marks(database, current_reviewer())
    for start in range(0, len(cards), columns):
        for position, column in enumerate(st.columns(columns), start):
            if position < len(cards):
                row = cards[position][0]
                key = f"card-{first}-{position}-{row['uid']}"
                with column, st.container(border=True, height="stretch", key=key):
                    query = sample_query(row, view, first + position if view else None)
                    show_card(database, cards[position], previews[position], query, numbers, marks)


def show_card(
    database: AuditDatabase,
    rows: Sequence[Row],
    preview: MediumPreview,
    query: dict[str, str],
    numbers: Sequence[str],
    marks: Mapping[tuple[str, int], str],
) -> None:
    row = rows[0]
    show_preview(preview, row)
    with st.container(key=f"words-{row['uid']}-{row['caption_index']}"):
        st.text(shorten_text(row.get("caption")) or "(no caption)")
    scores = [f"{short_label(c)} **{format_number(row[c])}**" for c in numbers if row.get(c) is not None]
    st.caption(" · ".join(scores) or "not measured")
    show_flag_badges(row, keep_line=True)
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute", gap=None):
        several = f"{len(rows)} captions" if len(rows) > 1 else None
        label = f"Open · {len(rows)}" if several else "Open"
        st.page_link(SAMPLE, label=label, help=several, query_params=query)
        if row.get("status") == "ok":
            show_similar_link(row, browsing="from" in query)
            show_mark_buttons(database, row, marks.get((row["uid"], row["caption_index"] or 0)))


def show_similar_link(row: Row, *, browsing: bool) -> None:
    """Show the link to similar rows. On the Browse page it is a button, because a page cannot link to itself."""
    row_id, hint = format_row_id(row), "More like this"
    if browsing:
        st.button("≈", key=f"like-{row_id}", help=hint, on_click=set_example_row, args=(row,), type="tertiary")
    else:
        st.page_link(BROWSE, label="≈", help=hint, query_params={"like": row_id})


def show_mark_buttons(database: AuditDatabase, row: Row, own_mark: str | None) -> None:
    """Show the buttons with the reviewer's own mark: a click on the mark of another reviewer would remove it."""
    key = f"quick-{row['uid']}-{row['caption_index']}-{current_reviewer()}"
    st.segmented_control(
        "Mark",
        list(MARKS),
        default=own_mark,
        required=True,
        format_func=MARK_ICONS.__getitem__,
        key=key,
        label_visibility="collapsed",
        on_change=save_card_mark,
        args=(database, row, key),
    )


def save_card_mark(database: AuditDatabase, row: Row, key: str) -> None:
    """The callback of a card's mark buttons."""
    if mark := st.session_state.get(key):
        mark_row(database, row, mark)


def mark_row(database: AuditDatabase, row: Row, mark: str, note: str = "") -> None:
    """Save the reviewer's mark, and say so if others disagree: all marks are kept."""
    reviewer = current_reviewer()
    database.mark(row["uid"], mark, caption_index=row["caption_index"] or 0, reviewer=reviewer, note=note)
    disagreeing = list_other_marks(database, row, reviewer, mark)
    note_on_others = f"; {len(disagreeing)} said something else, all marks are kept" if disagreeing else ""
    st.toast(f"marked as {mark}{note_on_others}")


def show_preview(preview: MediumPreview, row: Row) -> None:
    if preview.video is not None:
        start, end = playback_seconds(row)
        st.video(preview.video, format=preview.mime_type, start_time=start, end_time=end)
    elif preview.jpeg is not None:
        st.image(preview.jpeg, width="stretch", alt=shorten_text(row.get("caption"), 120) or "no caption")
    else:
        with st.container(border=True, key=f"absent-{row['uid']}-{row['caption_index']}"):
            st.markdown(":material/broken_image: not shown")
            st.text(shorten_text(preview.problem, 160))


@st.fragment
def show_compact_gallery(
    audit: OpenAudit,
    condition: str | None,
    view: GalleryView,
    first: int = 0,
    numbers: Sequence[str] = CARD_NUMBERS[:1],
    *,
    browsing: bool = True,
) -> None:
    """Show one page of the gallery as a grid; a mark reruns this part of the page, not the whole page.

    *More like this* opens the Browse page unless this is the Browse page.
    """
    reviewer = current_reviewer()
    key = f"{audit.identity} {condition} {view} {first}"
    if st.session_state.get("compact", ("", []))[0] != key:  # marked rows stay until the user turns the page
        st.session_state["compact"] = (key, list_cards(audit.database, condition, view, view.size, first))
    cards: list[list[dict[str, Any]]] = st.session_state["compact"][1]
    pictured = cards if view.duplicates else [card[:1] for card in cards]
    rows = {format_row_id(row): row for card in pictured for row in card}
    positions = {format_row_id(row): place for place, card in enumerate(pictured) for row in card}
    marks = fetch_reviewer_marks(audit.database, reviewer)
    items = make_review_cards(audit.database, list(rows.values()), thumbnail_cache(SMALL), marks, numbers, play=0)
    for item in items:
        card = cards[positions[item["id"]]]
        item["captions"] = 1 if view.duplicates else len(card)
        if view.duplicates and item["id"] == format_row_id(card[0]):
            item["heading"] = f"{len(card) - 1} {'repeat' if len(card) > 2 else 'repeats'} the first"
    result = show_review_cards(audit.database, f"{key} {reviewer}", items, grid=True, on_like=go_to_first_page)
    if result.open in rows:
        query = sample_query(rows[result.open], view, first + positions[result.open])
        st.switch_page(SAMPLE, query_params=query)
    if result.like in rows and not browsing:
        st.switch_page(BROWSE, query_params={"like": result.like})
    if result.like in rows:
        st.query_params["like"] = result.like
        st.rerun()

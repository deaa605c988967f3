"""The compact gallery: a picture, one line, a score; cards are selected and marked together, opened, or searched by."""

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from auditor.review.review_queues import marks_by
from dashboard.audit_source import Source
from dashboard.media_preview import SMALL, thumbnails
from dashboard.records import cards as page_of_cards
from dashboard.review_cards import cards, deck
from dashboard.url_state import SAMPLE, View, first_page, identity, look_for_more_like, reviewer, sample_query


@st.fragment
def compact(found: Source, condition: str | None, view: View, first: int, numbers: Sequence[str]) -> None:
    """A page of the gallery; a mark runs this part of the page again, not the whole."""
    key = f"{found.identity} {condition} {view} {first}"
    if st.session_state.get("compact", ("", []))[0] != key:  # marked rows stay until the page is turned
        st.session_state["compact"] = (key, page_of_cards(found.database, condition, view, view.size, first))
    shown: list[list[dict[str, Any]]] = st.session_state["compact"][1]
    rows = [card[0] for card in shown]
    items = cards(found.database, rows, thumbnails(SMALL), marks_by(found.database, reviewer()), numbers, play=False)
    for item, card in zip(items, shown, strict=True):
        item["captions"] = len(card)
    result = deck(found.database, f"{key} {reviewer()}", items, many=True, on_like=first_page)
    if place := place_of(rows, result.open):
        st.switch_page(SAMPLE, query_params=sample_query(rows[place - 1], view, first + place - 1))
    if place := place_of(rows, result.like):
        look_for_more_like(rows[place - 1])
        st.rerun()


def place_of(rows: Sequence[Mapping[str, Any]], asked: str | None) -> int:
    """The number of the card that was clicked, from 1; 0 where none was."""
    ids = [identity(row) for row in rows]
    return ids.index(asked) + 1 if asked in ids else 0

"""Cards to mark in the browser (review_cards.js): one at a time with the next ones loaded, or many in a grid.

The browser shows the effect of a decision at once and sends it to the audit. It numbers its decisions and sends each
one until a run of the page has acknowledged it, so none is lost and none counts twice.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import streamlit as st

from auditor.audit_folder.edit_records import LONGEST, EditError
from auditor.query.database import AuditDatabase
from auditor.query.reviews import WITHDRAWN, Review, make_review
from auditor.query.row_queries import read_row
from auditor.review.caption_edits import edit_row
from auditor.review.review_queues import fetch_reviewer_marks
from auditor.schema import HEADLINES, MARKS
from dashboard.display_text import format_number, short_label
from dashboard.media_preview import MediumPreview, ThumbnailCache
from dashboard.url_state import current_reviewer, format_row_id

Row = Mapping[str, Any]
CARD_NUMBERS = HEADLINES[:2]  # below a picture
INLINE_BYTES = 3 * 2**20  # the browser gets videos up to this size with the card, and one frame of larger ones


def read_script(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


_cards_component = st.components.v2.component(
    "auditor_review_cards",
    css=read_script("review_cards.css"),
    js=f"{read_script('caption_editor.js')}\n{read_script('review_cards.js')}",
)


class CardEdit(NamedTuple):
    """A caption that was edited on a card, and the text of the reviewer's earlier edit."""

    key: tuple[str, int]
    own_text: str | None


def component_key(grid: bool) -> str:
    return f"review-cards-{'grid' if grid else 'single'}"


def split_identity(identity: str) -> tuple[str, int]:
    uid, _, index = identity.rpartition("-")
    return uid, int(index)


def make_review_cards(
    database: AuditDatabase,
    rows: Sequence[Row],
    cache: ThumbnailCache,
    marks: Mapping[tuple[str, int], str],
    numbers: Sequence[str],
    *,
    play: int = INLINE_BYTES,
) -> list[dict[str, Any]]:
    """Rows in the form that the browser gets. A video of more than `play` bytes is one frame."""
    edits = [database.read_row_edits().find(row) for row in rows]
    return [
        {
            "id": format_row_id(row),
            "caption": row.get("caption"),  # marks are about the audited caption
            "edit": {"text": row_edits[0].new_caption, "by": row_edits[0].reviewer} if row_edits else None,
            "line": " · ".join(f"{short_label(c)} {format_number(row[c])}" for c in numbers if row.get(c) is not None),
            "mark": marks.get((row["uid"], row.get("caption_index") or 0)),
            "encoded": row.get("status") == "ok",  # only encoded rows can be searched by
            **picture_fields(preview),
        }
        for row, row_edits, preview in zip(rows, edits, cache.show(database, rows, play=play), strict=True)
    ]


def picture_fields(preview: MediumPreview) -> dict[str, Any]:
    data = preview.video or preview.jpeg
    if data is None:
        return {"problem": preview.problem or "not shown"}
    mime_type = preview.mime_type if preview.video else "image/jpeg"
    return {"src": f"data:{mime_type};base64,{base64.b64encode(data).decode()}", "video": preview.video is not None}


def show_review_cards(
    database: AuditDatabase,
    token: str,
    items: Sequence[Mapping[str, Any]],
    *,
    grid: bool = False,
    decided: Sequence[str] = (),
    total: int = 0,
    remaining: int = 0,
    on_like: Callable[[], None] = lambda: None,
    on_focus: Callable[[str], None] | None = None,
) -> Any:
    """Show cards. The browser starts over when `token`, the name of their source, changes.

    `on_focus` gets the id of a card without `details` that stays on the screen.
    """
    loaded_ids = st.session_state.get("loaded_cards") or set()
    data = {
        "token": token,
        "grid": grid,
        "explain": on_focus is not None,
        "decided": list(decided),
        "total": total,
        "remaining": remaining,
        "items": [without_picture(item) if item["id"] in loaded_ids else item for item in items],
        "acknowledged": st.session_state.setdefault("acknowledged_decisions", {}),
        "longest": LONGEST,
    }
    return _cards_component(
        key=component_key(grid),
        data=data,
        on_decisions_change=lambda: receive_decisions(database, grid),
        on_open_change=lambda: None,
        on_like_change=on_like,
        on_focus_change=lambda: (
            on_focus(st.session_state[component_key(grid)].get("focus") or "") if on_focus else None
        ),
    )


def resend_pictures() -> None:
    """Send every picture again. A full run of a page calls this, because its browser may have started over."""
    st.session_state["loaded_cards"] = set()


def without_picture(item: Mapping[str, Any]) -> dict[str, Any]:
    return {**{name: value for name, value in item.items() if name != "src"}, "loaded": True}


def receive_decisions(database: AuditDatabase, grid: bool) -> None:
    message = (st.session_state.get(component_key(grid)) or {}).get("decisions") or {}
    st.session_state["loaded_cards"] = set(message.get("loaded") or [])
    acknowledged = st.session_state.setdefault("acknowledged_decisions", {})
    nonce = str(message.get("nonce"))
    decisions = [decision for decision in message.get("list", []) if decision["n"] > acknowledged.get(nonce, 0)]
    if decisions:
        save_decisions(database, decisions, current_reviewer())
        acknowledged[nonce] = max(decision["n"] for decision in decisions)


def save_decisions(database: AuditDatabase, decisions: Sequence[Mapping[str, Any]], reviewer: str) -> None:
    """Write marks and edits into the audit; an undo restores what was there before, or withdraws it."""
    history: list[list[tuple[tuple[str, int], str | None]] | CardEdit] = st.session_state.setdefault("undoable", [])
    skipped: set[str] = st.session_state.setdefault("skipped", set())
    marks = dict[tuple[str, int], str | None](fetch_reviewer_marks(database, reviewer))
    reviews: list[Review] = []
    for decision in decisions:
        keys = [split_identity(identity) for identity in decision["ids"]]
        if decision["mark"] in MARKS:
            history.append([(key, marks.get(key)) for key in keys])
            changes = [(key, decision["mark"]) for key in keys]
        elif decision["mark"] == "edit" and isinstance(decision.get("text"), str):
            history.append(edit_card(database, keys[0], decision["text"], reviewer))
            continue
        elif decision["mark"] == "undo" and keys and history:
            last = history.pop()
            if isinstance(last, CardEdit):
                edit_card(database, last.key, last.own_text, reviewer)
                continue
            changes = [(key, previous or WITHDRAWN) for key, previous in last]
        else:
            skipped.update(decision["ids"])
            continue
        marks |= dict(changes)
        reviews += [make_review(*key, mark, reviewer, "") for key, mark in changes]
    if reviews:
        database.keep_reviews(reviews)


def edit_card(database: AuditDatabase, key: tuple[str, int], text: str | None, reviewer: str) -> "CardEdit | list[Any]":
    """Store the edit of a card and return what undoes it; a text that cannot be stored is reported below the cards."""
    row = read_row(database, *key)
    edits = database.read_row_edits().find(row) if row else []
    own_text = next((edit.new_caption for edit in edits if edit.reviewer == reviewer), None)
    try:
        if row is not None:
            edit_row(database, row, text, reviewer)
            return CardEdit(key, own_text)
    except EditError as error:
        st.session_state["edit_problem"] = str(error)
    return []

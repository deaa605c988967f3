"""Cards to decide on in the browser itself (deck.js): one at a time with the next ones loaded, or many in a grid.

A decision shows its effect at once and travels to the audit behind it. Decisions come in order, numbered, again and
again until a run of the page has seen them, so none is lost and none is counted twice.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from auditor.query.database import AuditDatabase
from auditor.query.reviews import WITHDRAWN, Review, new_review
from auditor.review.review_queues import marks_by
from auditor.schema import HEADLINES, MARKS
from dashboard.display_text import number, short
from dashboard.media_preview import Shown, ThumbnailCache
from dashboard.url_state import identity, reviewer

Row = Mapping[str, Any]
KEY = "deck"
COMPACT = HEADLINES[:2]  # numbers under a picture
TRAVELS = 3 * 2**20  # bytes of a video that go to the browser with its card; of larger ones a frame

_deck = st.components.v2.component(
    "auditor_deck",
    css=Path(__file__).with_name("deck.css").read_text(encoding="utf-8"),
    js=Path(__file__).with_name("deck.js").read_text(encoding="utf-8"),
)


def parts(identity: str) -> tuple[str, int]:
    uid, _, index = identity.rpartition("-")
    return uid, int(index)


def cards(
    database: AuditDatabase,
    rows: Sequence[Row],
    cache: ThumbnailCache,
    marks: Mapping[tuple[str, int], str],
    shown: Sequence[str],
    *,
    play: bool = True,
) -> list[dict[str, Any]]:
    """Rows as the browser gets them; `shown` are the numbers under a picture. Without `play`, videos are a frame."""
    media = cache.show(database, rows, play=play)
    stills = iter(cache.show(database, [row for row, one in zip(rows, media, strict=True) if too_large(one)]))
    return [
        {
            "id": identity(row),
            "caption": row.get("caption"),
            "line": " · ".join(f"{short(c)} {number(row[c])}" for c in shown if row.get(c) is not None),
            "mark": marks.get((row["uid"], row.get("caption_index") or 0)),
            "encoded": row.get("status") == "ok",  # others can be like it
            **pictured(next(stills) if too_large(one) else one),
        }
        for row, one in zip(rows, media, strict=True)
    ]


def too_large(shown: Shown) -> bool:
    return shown.video is not None and len(shown.video) > TRAVELS


def pictured(shown: Shown) -> dict[str, Any]:
    data, form = (shown.video, shown.form) if shown.video is not None else (shown.jpeg, "image/jpeg")
    if data is None:
        return {"problem": shown.problem or "not shown"}
    return {"src": f"data:{form};base64,{base64.b64encode(data).decode()}", "video": shown.video is not None}


def deck(
    database: AuditDatabase,
    token: str,
    items: Sequence[Mapping[str, Any]],
    *,
    many: bool = False,
    done: Sequence[str] = (),
    total: int = 0,
    left: int = 0,
    on_like: Callable[[], None] = lambda: None,
) -> Any:
    """Show cards; `token` names what they are of: where it changes, the browser starts again."""
    have = st.session_state.get("deck_has") or set()
    data = {
        "token": token,
        "items": [brief(item) if item["id"] in have else item for item in items],
        "many": many,
        "decided": list(done),
        "done": len(done),
        "total": total,
        "left": left,
        "seen": st.session_state.setdefault("decisions_seen", {}),
    }
    return _deck(
        key=f"{KEY}-{'many' if many else 'one'}",
        data=data,
        on_decisions_change=lambda: take(database, many),
        on_open_change=lambda: None,
        on_like_change=on_like,
    )


def send_all() -> None:
    """Called by a page that runs as a whole: its browser may have started again, so every picture travels again."""
    st.session_state["deck_has"] = set()


def brief(item: Mapping[str, Any]) -> dict[str, Any]:
    """A card whose picture the browser has."""
    return {**{name: value for name, value in item.items() if name != "src"}, "kept": True}


def take(database: AuditDatabase, many: bool) -> None:
    """Keep the decisions that have not been seen yet."""
    sent = (st.session_state.get(f"{KEY}-{'many' if many else 'one'}") or {}).get("decisions") or {}
    st.session_state["deck_has"] = set(sent.get("have") or [])
    seen = st.session_state.setdefault("decisions_seen", {})
    nonce = str(sent.get("nonce"))
    fresh = [decision for decision in sent.get("list", []) if decision["n"] > seen.get(nonce, 0)]
    if fresh:
        keep_decisions(database, fresh, reviewer())
        seen[nonce] = max(decision["n"] for decision in fresh)


def keep_decisions(database: AuditDatabase, decisions: Sequence[Mapping[str, Any]], name: str) -> None:
    """Marks into the audit; what is undone gets the mark that it had before, or none."""
    history: list[list[tuple[tuple[str, int], str | None]]] = st.session_state.setdefault("undoable", [])
    skipped: set[str] = st.session_state.setdefault("skipped", set())
    known = dict[tuple[str, int], str | None](marks_by(database, name))
    made: list[Review] = []
    for decision in decisions:
        ids = [parts(one) for one in decision["ids"]]
        if decision["mark"] in MARKS:
            history.append([(key, known.get(key)) for key in ids])
            changes = [(key, decision["mark"]) for key in ids]
        elif decision["mark"] == "undo" and ids and history:
            changes = [(key, before or WITHDRAWN) for key, before in history.pop()]
        else:
            skipped.update(decision["ids"])
            continue
        known |= dict(changes)
        made += [new_review(*key, mark, name, "") for key, mark in changes]
    if made:
        database.keep_reviews(made)

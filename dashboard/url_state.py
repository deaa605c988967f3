"""What is looked at, in the URL: widgets are bound to query parameters, links carry them from page to page.

The Browse page's parameters are its widgets' keys. A sample carries them in one parameter, `from`, and its place among
them in `at`, so that previous and next go through the same selection, in the same order.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlencode

import streamlit as st

from auditor.query.database import AuditDatabase
from auditor.query.row_queries import row, worst
from auditor.query.search_index import SIDES
from auditor.schema import FLAGS, HEADLINES, MARKS, STATUSES
from dashboard.row_selection import DIVIDED, Bounds, Selection

BROWSE, SAMPLE, THRESHOLDS = "screens/browse_page.py", "screens/sample_page.py", "screens/thresholds_page.py"
FAULTS, MAP, REVIEW = "screens/faults_page.py", "screens/map_page.py", "screens/review_page.py"
ANY = "any"
KINDS = (ANY, "image", "video")
STATES = (ANY, "not ok", *STATUSES)
REVIEWS = (ANY, "reviewed", "none", *MARKS, DIVIDED)
CORPUS_ORDER = "corpus order"
SORT = "p_mismatch"
ORDERS = ("descending", "ascending")
SIZES = (12, 24, 48, 96)
SIZE = 24


def identity(row: Mapping[str, Any]) -> str:
    """A row in a URL and in the browser: uid-caption_index."""
    return f"{row['uid']}-{row.get('caption_index') or 0}"


@dataclass(frozen=True)
class Wanted:
    """What is searched for: a text, or rows like one (its uid and caption_index); over media or captions."""

    text: str = ""
    like: str = ""  # uid-caption_index
    over: str = "media"

    def __bool__(self) -> bool:
        return bool(self.text.strip() or self.like)

    @property
    def row(self) -> tuple[str, int]:
        uid, _, index = self.like.rpartition("-")
        return (uid, int(index)) if index.isdecimal() and index.isascii() and len(index) < 9 else (self.like, 0)

    def query(self) -> dict[str, list[str]]:
        over = [] if self.over == "media" else [self.over]
        return {"search": [self.text] * bool(self.text), "like": [self.like] * bool(self.like), "over": over}


@dataclass(frozen=True)
class View:
    """A selection, its order, how many cards stand on a page, and whether a medium's captions share a card.

    Where something is searched for, the order is that of the search.
    """

    selection: Selection
    sort: str | None = SORT
    descending: bool = True
    size: int = SIZE
    grouped: bool = True
    wanted: Wanted = Wanted()

    def query(self, at: int = 0) -> dict[str, list[str]]:
        """As parameters of the Browse page, on the page of the row at a place; what is as usual is left out."""
        chosen = self.selection
        page = at // self.size + 1
        found = {
            "kind": [chosen.kind] if chosen.kind else [],
            "status": [chosen.status] if chosen.status else [],
            "flag": list(chosen.flags),
            "review": [{"any": "reviewed"}.get(chosen.review, chosen.review)] if chosen.review else [],
            "text": [chosen.text] if chosen.text else [],
            "where": [chosen.where] if chosen.where else [],
            "sort": [] if self.sort == SORT else [self.sort or CORPUS_ORDER],
            "order": [] if self.descending else ["ascending"],
            "size": [] if self.size == SIZE else [str(self.size)],
            "grouped": [] if self.grouped else ["false"],
            "page": [] if page == 1 else [str(page)],
            **self.wanted.query(),
            **{column: [f"{low:.9g}", f"{high:.9g}"] for column, (low, high) in chosen.ranges.items()},
        }
        return {name: values for name, values in found.items() if values}

    def encoded(self) -> str:
        return urlencode(self.query(), doseq=True)


def view_of(given: Mapping[str, list[str]]) -> View:
    """The view that parameters of the Browse page describe; what makes no sense is passed over."""

    def one(name: str, allowed: tuple[str, ...] | None = None) -> str | None:
        value = (given.get(name) or [""])[-1]
        return value if value and value != ANY and (allowed is None or value in allowed) else None

    review = one("review", REVIEWS)
    return View(
        Selection(
            kind=one("kind", KINDS),
            status=one("status", STATES),
            flags=tuple(flag for flag in given.get("flag", []) if flag in FLAGS),
            review=ANY if review == "reviewed" else review,
            text=one("text") or "",
            where=one("where") or "",
            ranges={column: ends for column in HEADLINES if (ends := numbers(given.get(column, [])))},
        ),
        sort=None if one("sort") == CORPUS_ORDER else one("sort") or SORT,
        descending=one("order", ORDERS) != "ascending",
        size=int(one("size", tuple(str(size) for size in SIZES)) or SIZE),
        grouped=one("grouped") != "false",
        wanted=Wanted(one("search") or "", one("like") or "", one("over", tuple(SIDES)) or "media"),
    )


def parse_view(encoded: str) -> View:
    return view_of(parse_qs(encoded))


def numbers(values: list[str]) -> tuple[float, float] | None:
    try:
        low, high = (float(value) for value in values)
    except ValueError:
        return None
    return low, high


def narrowed(ends: tuple[float, float], limits: Bounds) -> tuple[float, float] | None:
    """The ends of a range slider; None where it stands open, so that rows without a value are not lost."""
    return None if ends == (limits.low, limits.high) else ends


def first_page() -> None:
    """The callback of whatever changes which rows the gallery shows."""
    st.session_state["page"] = 1


def look_for_more_like(row: Mapping[str, Any]) -> None:
    """On the Browse page, whose filters stay."""
    st.query_params["like"] = identity(row)


def sample_query(row: Mapping[str, Any], view: View | None = None, at: int | None = None) -> dict[str, str]:
    """Parameters of a sample's page."""
    query = {
        "uid": str(row["uid"]),
        "caption": str(row.get("caption_index") or 0),
        "shard": str(row.get("shard") or ""),
    }
    if view is not None and at is not None:
        query |= {"from": view.encoded(), "at": str(at)}
    return query


def reviewer() -> str:
    """Who is looking. A session without a name gets one of its own, so that two people never share their marks."""
    given = str(st.session_state.get("reviewer") or "").strip()
    return given or str(st.session_state.setdefault("unnamed", f"unnamed-{secrets.token_hex(2)}"))


def wanted_row(database: AuditDatabase) -> dict[str, Any] | None:
    """The row that the URL names, or the most suspicious where it names none."""
    uid, shard = st.query_params.get("uid"), st.query_params.get("shard") or None
    caption = st.query_params.get("caption", "0")
    if not uid:
        return next(iter(worst(database, n=1).to_pylist()), None)
    index = int(caption) if caption.isdecimal() and caption.isascii() and len(caption) < 9 else 0
    return row(database, uid, index, shard) or (row(database, uid, index) if shard else None)

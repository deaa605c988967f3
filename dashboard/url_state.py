"""Keeps the state of a page in its URL: widgets are bound to query parameters, and links carry them between pages.

The parameters of the Browse page are the keys of its widgets. A sample carries all of them in one parameter, `from`,
and its position among the rows in `at`, so that Previous and Next follow the same selection in the same order.
"""

import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlencode

import streamlit as st

from auditor.query.corpus_groups import EXTRA, FACETS
from auditor.query.database import AuditDatabase
from auditor.query.row_queries import find_worst_rows, read_row
from auditor.query.search_index import SIDES
from auditor.schema import HEADLINES, HIGH_IS_SUSPICIOUS, MARKS
from dashboard.row_selection import DISAGREEMENT, RowSelection

BROWSE, SAMPLE, THRESHOLDS = "screens/browse_page.py", "screens/sample_page.py", "screens/thresholds_page.py"
FAULTS, MAP, REVIEW = "screens/faults_page.py", "screens/map_page.py", "screens/review_page.py"
REVIEWER_COOKIE = "auditor-reviewer"
ANY = "any"
KEPT = "kept"  # color of the map by linked rules
REVIEWS = (ANY, "reviewed", "none", *MARKS, DISAGREEMENT)
CORPUS_ORDER = "corpus order"
DUPLICATES = "duplicates"  # a gallery
SORT = "p_mismatch"
SORT_ORDERS = ("descending", "ascending")
PAGE_SIZES = (12, 24, 48, 96)
PAGE_SIZE = 24


def format_row_id(row: Mapping[str, Any]) -> str:
    """The name of a row in a URL and in the browser: uid-caption_index."""
    return f"{row['uid']}-{row.get('caption_index') or 0}"


def parse_index(text: str, longest: int = 8) -> int | None:
    """A number without a sign from a URL, or None."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= longest else None


@dataclass(frozen=True)
class GallerySearch:
    """A search for a text or for rows similar to one, over media or captions."""

    text: str = ""
    like: str = ""  # uid-caption_index
    over: str = "media"

    def __bool__(self) -> bool:
        return bool(self.text.strip() or self.like)

    @property
    def example(self) -> tuple[str, int]:
        uid, _, index_text = self.like.rpartition("-")
        index = parse_index(index_text)
        return (self.like, 0) if index is None else (uid, index)


@dataclass(frozen=True)
class GalleryView:
    """A selection of rows, its order, the cards on a page, and whether the captions of a medium share a card.

    A search brings its own order. Groups of duplicates are in the order of their size.
    """

    selection: RowSelection
    sort: str | None = SORT
    descending: bool = True
    size: int = PAGE_SIZE
    grouped: bool = True
    duplicates: bool = False  # a card is a group of duplicates
    search: GallerySearch = GallerySearch()

    def query(self, position: int = 0) -> dict[str, str | list[str]]:
        """Parameters of the Browse page, opened at the page of the row at a position; without default values."""
        selection, search = self.selection, self.search
        page = position // self.size + 1
        parameters: dict[str, str | list[str] | None] = {
            **{facet: list(values) for facet, values in selection.facets.items()},
            "review": selection.review,
            "text": selection.text,
            "where": selection.where,
            "sort": None if self.sort == SORT else self.sort or CORPUS_ORDER,
            "order": None if self.descending else "ascending",
            "size": None if self.size == PAGE_SIZE else str(self.size),
            "grouped": None if self.grouped else "false",
            "look": DUPLICATES if self.duplicates else None,
            "page": None if page == 1 else str(page),
            "search": search.text,
            "like": search.like,
            "over": None if search.over == "media" else search.over,
            **{column: format_range(ends) for column, ends in selection.ranges.items()},
        }
        return {name: value for name, value in parameters.items() if value}

    def to_url(self) -> str:
        return urlencode(self.query(), doseq=True)


def parse_view(encoded: str) -> GalleryView:
    """The view that the URL parameters of the Browse page describe; invalid values are ignored."""
    parameters = parse_qs(encoded)

    def last_value(name: str, allowed: tuple[str, ...] | None = None) -> str | None:
        value = (parameters.get(name) or [""])[-1]
        return value if value and value != ANY and (allowed is None or value in allowed) else None

    return GalleryView(
        RowSelection(
            facets=select_facets(parameters),
            review=last_value("review", REVIEWS),
            text=last_value("text") or "",
            where=last_value("where") or "",
            ranges={column: ends for column in HEADLINES if (ends := parse_range(parameters.get(column, [])))},
        ),
        sort=None if last_value("sort") == CORPUS_ORDER else last_value("sort") or SORT,
        descending=last_value("order", SORT_ORDERS) != "ascending",
        size=int(last_value("size", tuple(str(size) for size in PAGE_SIZES)) or PAGE_SIZE),
        grouped=last_value("grouped") != "false",
        duplicates=last_value("look") == DUPLICATES,
        search=GallerySearch(
            last_value("search") or "", last_value("like") or "", last_value("over", tuple(SIDES)) or "media"
        ),
    )


def select_facets(parameters: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """The values of facets among URL parameters; values that no row has are kept and match none."""
    names = sorted(name for name in parameters if name in FACETS or name.startswith(EXTRA))
    values = {name: tuple(value for value in parameters[name] if value and value != ANY) for name in names}
    return {name: chosen for name, chosen in values.items() if chosen}


def parse_range(values: list[str]) -> tuple[float, float] | None:
    try:
        low, high = (float(value) for value in values)
    except ValueError:
        return None
    return low, high


def format_range(ends: Iterable[float]) -> list[str]:
    """All digits: a rounded end could leave out the row that has the smallest or largest value."""
    return [repr(float(end)) for end in ends]


def go_to_first_page() -> None:
    """The callback of every widget that changes the rows of the gallery."""
    st.session_state["page"] = 1


def set_example_row(row: Mapping[str, Any]) -> None:
    """The callback that searches the Browse page for rows similar to this one; its filters stay."""
    st.query_params["like"] = format_row_id(row)
    go_to_first_page()


def rows_query(where: str, sort: str = "") -> dict[str, str | list[str]]:
    """Parameters of the Browse page for the rows that meet a condition, the suspicious end of a column first."""
    return GalleryView(RowSelection(where=where), sort or None, not sort or sort in HIGH_IS_SUSPICIOUS).query()


def sample_query(
    row: Mapping[str, Any], view: GalleryView | None = None, position: int | None = None
) -> dict[str, str]:
    index, shard = row.get("caption_index") or 0, row.get("shard") or ""
    query = {"uid": str(row["uid"]), "caption": str(index), "shard": str(shard)}
    if view is not None and position is not None:
        query |= {"from": view.to_url(), "at": str(position)}
    return query


def current_reviewer() -> str:
    """The name of the reviewer. A browser without one gets its own, so that two people never share their marks."""
    if name := str(st.session_state.get("reviewer") or "").strip():
        return name
    cookie = str(st.context.cookies.get(REVIEWER_COOKIE, ""))
    own_name = cookie if re.fullmatch(r"unnamed-[0-9a-f]{8}", cookie) else f"unnamed-{secrets.token_hex(4)}"
    return str(st.session_state.setdefault("unnamed", own_name))


def remember_reviewer() -> None:
    """Keep the generated name of a reviewer in a cookie for a year: a reopened page goes on with the same marks."""
    name = current_reviewer()
    if name == st.session_state.get("unnamed") and st.context.cookies.get(REVIEWER_COOKIE) != name:
        script = f"document.cookie = '{REVIEWER_COOKIE}={name}; path=/; max-age=31536000; SameSite=Strict'"
        st.html(f"<script>{script}</script>", unsafe_allow_javascript=True)


def find_requested_row(database: AuditDatabase) -> dict[str, Any] | None:
    uid, shard = st.query_params.get("uid"), st.query_params.get("shard") or None
    if not uid:
        return next(iter(find_worst_rows(database, n=1).to_pylist()), None)
    index = parse_index(st.query_params.get("caption", "0")) or 0
    return read_row(database, uid, index, shard) or (read_row(database, uid, index) if shard else None)

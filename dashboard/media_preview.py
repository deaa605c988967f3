"""Media of an audit's rows as a browser can show them: JPEGs made where decoding can be killed, videos as they are.

Only rows of the audit are shown: a page asks by row, never by path. Thumbnails are kept up to a number of bytes.
"""

import math
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import streamlit as st

from auditor.corpus.sample import Kind, Problem, Span, span_of
from auditor.errors import AuditorError
from auditor.query.database import AuditDatabase
from auditor.query.row_queries import media
from auditor.report.thumbnails import ThumbnailError, Thumbnails

Row = Mapping[str, Any]
SMALL, REVIEW, LARGE, STRIP = 360, 800, 1200, 160  # pixels
KEPT_BYTES = 200 * 2**20
INLINE_VIDEO = 24 * 2**20  # a gallery plays videos up to this size, the page of a sample all
READERS = 8  # at once: remote corpora answer slowly, not rarely
CODECS = (b"avc1", b"avc3", b"av01", b"vp09", b"hvc1", b"hev1")


@dataclass(frozen=True, slots=True)
class Shown:
    """A JPEG, or why there is none; `video` are the bytes of a clip that browsers play.

    `lasting` is False where trying again may help: the store could not be read.
    """

    jpeg: bytes | None = None
    problem: str | None = None
    video: bytes | None = None
    form: str = ""
    lasting: bool = True


NOT_SHOWN = Shown(problem="not shown", lasting=False)


def playable(data: bytes) -> str | None:
    """The MIME type of a clip that browsers play; None for other containers and codecs."""
    if data[4:8] == b"ftyp":
        return "video/mp4" if any(codec in data for codec in CODECS) else None
    if data[:4] == b"\x1a\x45\xdf\xa3":
        return "video/webm" if b"webm" in data[:64] else None
    return None


def place(row: Row) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in ("media_path", "media_offset", "media_size", "kind", "start", "end"))


def played(row: Row) -> tuple[int, int | None]:
    """What a player shows of a timed caption: the whole seconds around its span; Streamlit's knows no others."""
    span = span_of(row)
    return (math.floor(max(span.start, 0.0)), math.ceil(span.end)) if span else (0, None)


class ThumbnailCache:
    """Thumbnails of one size, made by two decoders that stay ready; safe for many sessions."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._kept: OrderedDict[tuple[Any, ...], Shown] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        self._decoding = threading.Lock()
        self._decoder: Thumbnails | None = None

    def show(self, database: AuditDatabase, rows: Sequence[Row], *, play: bool = False) -> list[Shown]:
        """One for each row, in order."""
        keys = [(database.path, database.moved_to, play, *place(row)) for row in rows]
        with self._lock:
            missing = {key: row for key, row in zip(keys, rows, strict=True) if key not in self._kept}
        made = dict(zip(missing, self._make(database, list(missing.values()), play), strict=True))
        with self._lock:
            found = [made.get(key) or self._kept.get(key) or NOT_SHOWN for key in keys]
            for key, shown in zip(keys, found, strict=True):
                if shown.lasting:
                    self._keep(key, shown)
        return found

    def _keep(self, key: tuple[Any, ...], shown: Shown) -> None:
        old = self._kept.pop(key, None)
        self._kept[key] = shown
        self._bytes += size_of(shown) - (size_of(old) if old else 0)
        while self._bytes > KEPT_BYTES and len(self._kept) > 1:
            _, gone = self._kept.popitem(last=False)
            self._bytes -= size_of(gone)

    def _make(self, database: AuditDatabase, rows: Sequence[Row], play: bool) -> list[Shown]:
        with ThreadPoolExecutor(READERS) as readers:
            read = list(readers.map(lambda row: read_row(database, row, play), rows))
        tasks: list[tuple[int, bytes, Kind]] = [
            (i, data, rows[i]["kind"] or "image") for i, data in enumerate(read) if isinstance(data, bytes)
        ]
        with self._decoding:
            self._decoder = self._decoder or Thumbnails(self.size, workers=2)
            spans = {i: span for i, row in enumerate(rows) if (span := span_of(row))}
            for i, made in self._decoder.map(tasks, spans) if tasks else ():
                read[i] = Shown(problem=made.message) if isinstance(made, Problem) else Shown(jpeg=made)
        return [shown if isinstance(shown, Shown) else NOT_SHOWN for shown in read]


def size_of(shown: Shown) -> int:
    return len(shown.jpeg or b"") + len(shown.video or b"") + 200


def read_row(database: AuditDatabase, row: Row, play: bool) -> bytes | Shown:
    """The bytes to decode, or what can be said without decoding."""
    if not row.get("media_path"):
        return Shown(problem="there is no medium")
    if row.get("status") in {"corrupt", "timeout", "too_large"}:
        return Shown(problem=row.get("error_message") or row["status"])
    try:
        data = media(database, row)
    except (AuditorError, OSError) as error:
        return Shown(problem=str(error), lasting=False)
    form = playable(data) if play and row.get("kind") == "video" and len(data) <= INLINE_VIDEO else None
    return Shown(video=data, form=form) if form else data


@st.cache_resource(show_spinner=False)
def thumbnails(size: int) -> ThumbnailCache:
    return ThumbnailCache(size)


@st.cache_resource(show_spinner=False)
def _strips(frames: int) -> tuple[Thumbnails, threading.Lock]:
    return Thumbnails(STRIP, frames=frames), threading.Lock()


@st.cache_data(max_entries=64, show_spinner=False)
def _strip(
    path: str, moved_to: str | None, where: tuple[Any, ...], frames: int, _data: bytes, _span: Span | None
) -> list[tuple[float | None, bytes]]:
    decoder, lock = _strips(frames)
    with lock:
        return decoder.frames(_data, "video", _span)


def frame_strip(database: AuditDatabase, row: Row, data: bytes, frames: int) -> list[tuple[float | None, bytes]]:
    """JPEGs of the frames that were encoded, each with its time; none where they cannot be decoded."""
    try:
        return _strip(database.path, database.moved_to, place(row), frames, data, span_of(row))
    except ThumbnailError:
        return []


def original(database: AuditDatabase, row: Row) -> bytes | None:
    """The bytes of a row's medium, or None where they cannot be had."""
    try:
        return media(database, row) if row.get("media_path") else None
    except (AuditorError, OSError):
        return None

"""Media of rows in a form that browsers can show: JPEGs decoded in a killable process, and videos as they are.

Pages ask for rows of the audit, never for paths. The thumbnail cache has a limit in bytes.
"""

import math
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import streamlit as st

from auditor.corpus.read_medium import MediaPlaces
from auditor.corpus.sample import Kind, Problem, Span, get_row_span
from auditor.errors import AuditorError
from auditor.query.database import AuditDatabase
from auditor.query.row_queries import read_row_media
from auditor.report.thumbnails import ThumbnailError, Thumbnails

Row = Mapping[str, Any]
SMALL, REVIEW, LARGE, STRIP = 360, 800, 1200, 160  # pixels
CACHE_BYTES = 200 * 2**20
READERS = 8  # threads, because a remote corpus answers slowly
CODECS = (b"avc1", b"avc3", b"av01", b"vp09", b"hvc1", b"hev1")


@dataclass(frozen=True, slots=True)
class MediumPreview:
    """A JPEG, or the bytes of a clip that browsers play, or the reason why there is neither.

    `cacheable` is False if another attempt may help, because the store could not be read.
    """

    jpeg: bytes | None = None
    problem: str | None = None
    video: bytes | None = None
    mime_type: str = ""
    cacheable: bool = True

    @property
    def size(self) -> int:
        """Bytes in the cache."""
        return len(self.jpeg or b"") + len(self.video or b"") + 200


NOT_SHOWN = MediumPreview(problem="not shown", cacheable=False)


def video_mime_type(data: bytes) -> str | None:
    """The MIME type of a clip, or None if browsers do not play its container or codec."""
    if data[4:8] == b"ftyp" and any(codec in data for codec in CODECS):
        return "video/mp4"
    return "video/webm" if data[:4] == b"\x1a\x45\xdf\xa3" and b"webm" in data[:64] else None


def medium_location(row: Row) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in ("media_path", "media_offset", "media_size", "kind", "start", "end"))


def playback_seconds(row: Row) -> tuple[int, int | None]:
    """The whole seconds around the span of a timed caption: Streamlit's player takes no fractions."""
    span = get_row_span(row)
    return (math.floor(max(span.start, 0.0)), math.ceil(span.end)) if span else (0, None)


class ThumbnailCache:
    """Thumbnails of one size, made by two decoders that stay open; safe for many sessions."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._previews: OrderedDict[tuple[Any, ...], MediumPreview] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        self._decoding = threading.Lock()
        self._decoder: Thumbnails | None = None

    def show(self, database: AuditDatabase, rows: Sequence[Row], *, play: int = 0) -> list[MediumPreview]:
        """A preview for each row, in order. Videos of up to `play` bytes come as they are, others as one frame."""
        keys = [(database.path, database.places, play, *medium_location(row)) for row in rows]
        with self._lock:
            missing = {key: row for key, row in zip(keys, rows, strict=True) if key not in self._previews}
        new = dict(zip(missing, self._make(database, list(missing.values()), play), strict=True))
        with self._lock:
            previews = [new.get(key) or self._previews.get(key) or NOT_SHOWN for key in keys]
            for key, preview in zip(keys, previews, strict=True):
                if preview.cacheable:
                    self._store(key, preview)
        return previews

    def _store(self, key: tuple[Any, ...], preview: MediumPreview) -> None:
        if old := self._previews.pop(key, None):
            self._bytes -= old.size
        self._previews[key] = preview
        self._bytes += preview.size
        while self._bytes > CACHE_BYTES and len(self._previews) > 1:
            self._bytes -= self._previews.popitem(last=False)[1].size

    def _make(self, database: AuditDatabase, rows: Sequence[Row], play: int) -> list[MediumPreview]:
        with ThreadPoolExecutor(READERS) as readers:
            results = list(readers.map(lambda row: read_preview(database, row, play), rows))
        tasks: list[tuple[int, bytes, Kind, Span | None]] = [
            (i, data, row["kind"] or "image", get_row_span(row))
            for i, (row, data) in enumerate(zip(rows, results, strict=True))
            if isinstance(data, bytes)
        ]
        with self._decoding:
            self._decoder = self._decoder or Thumbnails(self.size, workers=2)
            for i, jpeg in self._decoder.map(tasks) if tasks else ():
                results[i] = MediumPreview(problem=jpeg.message) if isinstance(jpeg, Problem) else MediumPreview(jpeg)
        return [result if isinstance(result, MediumPreview) else NOT_SHOWN for result in results]


def read_preview(database: AuditDatabase, row: Row, play: int) -> bytes | MediumPreview:
    """The bytes to decode, or a preview that needs no decoding."""
    if not row.get("media_path"):
        return MediumPreview(problem="there is no medium")
    if row.get("status") in {"corrupt", "timeout", "too_large"}:
        return MediumPreview(problem=row.get("error_message") or row["status"])
    try:
        data = read_row_media(database, row)
    except (AuditorError, OSError) as error:
        return MediumPreview(problem=str(error), cacheable=False)
    mime_type = video_mime_type(data) if row.get("kind") == "video" and len(data) <= play else None
    return MediumPreview(video=data, mime_type=mime_type) if mime_type else data


@st.cache_resource(show_spinner=False)
def thumbnail_cache(size: int) -> ThumbnailCache:
    return ThumbnailCache(size)


@st.cache_resource(show_spinner=False)
def _strip_decoder(frames: int) -> tuple[Thumbnails, threading.Lock]:
    return Thumbnails(STRIP, frames=frames), threading.Lock()


@st.cache_data(max_entries=64, show_spinner=False)
def _decode_strip(
    path: str, places: MediaPlaces, location: tuple[Any, ...], frames: int, _data: bytes, _span: Span | None
) -> list[tuple[float | None, bytes]]:
    decoder, lock = _strip_decoder(frames)
    with lock:
        return decoder.frames(_data, "video", _span)


def make_frame_strip(database: AuditDatabase, row: Row, data: bytes, frames: int) -> list[tuple[float | None, bytes]]:
    """JPEGs of the frames that were encoded, each with its time; empty if they cannot be decoded."""
    try:
        return _decode_strip(database.path, database.places, medium_location(row), frames, data, get_row_span(row))
    except ThumbnailError:
        return []


def read_original(database: AuditDatabase, row: Row) -> bytes | None:
    """The bytes of a row's medium, or None if they cannot be read."""
    try:
        return read_row_media(database, row) if row.get("media_path") else None
    except (AuditorError, OSError):
        return None

"""The record of one sample as the corpus describes it, before any medium is decoded."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from auditor.schema import Status

Kind = Literal["image", "video"]


@dataclass(frozen=True, slots=True)
class Media:
    """The place of the bytes of a medium: a file or a byte range of one. `path` may be an fsspec URL.

    The path of a cell of a Parquet table is `table.parquet#column=image&row=17`, with offset 0.
    """

    path: str
    offset: int
    size: int
    kind: Kind


@dataclass(frozen=True, slots=True)
class Span:
    """The seconds of a video that a caption describes; NaN if the corpus gives no readable time."""

    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Problem:
    """The reason why a sample cannot be scored: `status` and `error_message` of its rows."""

    status: Status
    message: str


@dataclass(frozen=True, slots=True)
class Sample:
    """One medium and its captions. `problem` is a defect found without decoding (no caption, a repeated key, ...)."""

    shard: str
    key: str
    captions: tuple[str, ...]
    media: Media | None
    uid: str | None = None  # the corpus's own, 32 hex digits
    occurrence: int = 0  # 1, 2, ... for the repetitions of a key
    problem: Problem | None = None
    spans: tuple[Span | None, ...] = ()  # one per caption, if any has one; None: the whole medium
    encoding: str | None = None  # of its captions, if not a Unicode encoding
    carried: tuple[str | None, ...] = ()  # JSON of the carried input columns: per caption, or one for all
    uids: tuple[str | None, ...] = ()  # the corpus's own uid of each caption, if it has more than one
    sources: tuple[str | None, ...] = ()  # of each caption, if the corpus has several sources


def get_row_span(row: Mapping[str, Any]) -> Span | None:
    """Return the span that the caption of a usable row describes, or None for the whole medium."""
    start, end = row.get("start"), row.get("end")
    return None if start is None or end is None or row.get("status", "ok") != "ok" else Span(start, end)


def split_by_span(sample: Sample) -> list[Sample]:
    """Return one sample per span of a video with the captions of that span, or the sample itself if it has no spans."""
    texts: dict[Span | None, list[str]] = {}
    for text, span in zip(sample.captions, sample.spans, strict=False):
        texts.setdefault(span, []).append(text)
    parts = []
    for span, captions in texts.items():
        key = sample.key if span is None else f"{sample.key}@{span.start:.10g}-{span.end:.10g}"
        spans = (span,) * len(captions)
        parts.append(replace(sample, key=key, captions=tuple(captions), uid=None, uids=(), sources=(), spans=spans))
    return parts or [sample]

"""The record that travels: what a corpus says of one sample, before anything is decoded."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from auditor.schema import Status

Kind = Literal["image", "video"]


@dataclass(frozen=True, slots=True)
class Media:
    """Where the bytes of a medium are: a file, or a stretch of one. `path` may be an fsspec URL.

    A cell of a Parquet table is `table.parquet#column=image&row=17` with offset 0.
    """

    path: str
    offset: int
    size: int
    kind: Kind


@dataclass(frozen=True, slots=True)
class Span:
    """The seconds of a video that a caption is about; NaN where the corpus gives what is no time."""

    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a sample cannot be scored: becomes `status` and `error_message` of its rows."""

    status: Status
    message: str


@dataclass(frozen=True, slots=True)
class Sample:
    """One medium and its captions. `problem` is what reading alone found wrong (no caption, a key seen before, ...)."""

    shard: str
    key: str
    captions: tuple[str, ...]
    media: Media | None
    uid: str | None = None  # the corpus's own, 32 hex digits
    occurrence: int = 0  # 1, 2, ... for the repetitions of a key
    problem: Problem | None = None
    spans: tuple[Span | None, ...] = ()  # one for each caption, where any has one; None: of the whole medium
    encoding: str | None = None  # that its captions were read in, where it is none of Unicode's
    carried: tuple[str | None, ...] = ()  # JSON of the input's columns that are carried: for each caption, or for all
    uids: tuple[str | None, ...] = ()  # the corpus's own of each caption, where it has more than one


def span_of(row: Mapping[str, Any]) -> Span | None:
    """What the caption of a usable row of an audit is about; None: the whole medium."""
    start, end = row.get("start"), row.get("end")
    return None if start is None or end is None or row.get("status", "ok") != "ok" else Span(start, end)


def by_span(sample: Sample) -> list[Sample]:
    """A sample for each span of a video, with the captions of that span; itself where captions have none."""
    if not sample.spans:
        return [sample]
    spans = dict.fromkeys(sample.spans)
    found = []
    for span in spans:
        captions = tuple(text for text, own in zip(sample.captions, sample.spans, strict=True) if own == span)
        key = sample.key if span is None else f"{sample.key}@{span.start:.10g}-{span.end:.10g}"
        found.append(replace(sample, key=key, captions=captions, uid=None, uids=(), spans=(span,) * len(captions)))
    return found

"""The record that travels: what a corpus says of one sample, before anything is decoded."""

from dataclasses import dataclass
from typing import Literal

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

"""From samples to rows: a sample with five captions is five rows, one with none is one, and each has a uid."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from auditor.facts.captions import caption_hash
from auditor.sample import Kind, Media, Problem, Sample
from auditor.store import arrow_schema


@dataclass(frozen=True, slots=True)
class Shape:
    """What decoding found out about a medium."""

    width: int
    height: int
    duration: float | None
    frames: int
    times: tuple[float, ...] | None = None  # seconds of the encoded frames; None for an image
    decoder: str | None = None  # the library that gave the frames of a video

    @property
    def kind(self) -> Kind:
        return "image" if self.times is None else "video"


@dataclass(frozen=True, slots=True)
class Swept:
    """A sample after decoding: its shape, or the problem that kept it from being encoded."""

    sample: Sample
    digest: str | None
    outcome: Shape | Problem


def digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def row_uid(swept: Swept, caption_index: int, caption: str | None) -> str:
    """128 bits as hex: the corpus's own for a first caption, else from where and what the row is."""
    sample = swept.sample
    if sample.uid and caption_index == 0 and sample.occurrence == 0:
        return sample.uid.lower()
    parts = (sample.uid, sample.shard, sample.key, sample.occurrence, caption_index, swept.digest, caption)
    return digest("\0".join("" if part is None else str(part) for part in parts).encode(errors="replace"))


def facts(swept: Sequence[Swept]) -> pa.Table:
    """The rows of some samples, in order: one per caption, at least one per sample."""
    return pa.Table.from_pylist([row for one in swept for row in _rows(one)], schema=arrow_schema.FACTS)


def row_counts(swept: Sequence[Swept]) -> list[int]:
    return [max(1, len(one.sample.captions)) for one in swept]


def _rows(one: Swept) -> list[dict[str, object]]:
    sample = one.sample
    shared = {**_origin(sample.media), **_result(one.outcome), "media_digest": one.digest}
    captions: Sequence[str | None] = sample.captions or (None,)
    return [
        {
            "uid": row_uid(one, index, caption),
            "key": sample.key,
            "caption_index": index,
            "shard": sample.shard,
            "caption": caption,
            "caption_hash": None if caption is None else caption_hash(caption),
            **shared,
        }
        for index, caption in enumerate(captions)
    ]


def _origin(media: Media | None) -> dict[str, object]:
    if media is None:
        return {"kind": None}
    return {
        "kind": media.kind,
        "media_path": media.path,
        "media_offset": media.offset,
        "media_size": media.size,
    }


def _result(outcome: Shape | Problem) -> dict[str, object]:
    if isinstance(outcome, Problem):
        return {"status": outcome.status, "error_message": outcome.message}
    return {
        "status": "ok",
        "kind": outcome.kind,  # what it turned out to be, whatever its name says
        "width": outcome.width,
        "height": outcome.height,
        "duration": outcome.duration,
        "frames": outcome.frames,
        "decoder": outcome.decoder,
    }

"""From samples to rows: a sample with five captions is five rows, one with none is one, and each has a uid.

A row with a span of time has a status of its own: the video may be sound and the span not.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa

from auditor.audit_folder import arrow_schema
from auditor.corpus.sample import Kind, Media, Problem, Sample, Span
from auditor.sweep.caption_facts import caption_facts
from auditor.workers.decoder_process import LOST, Seen
from auditor.workers.pixel_facts import PixelFacts
from model.video.video_facts import VideoFacts

Tokens = tuple[int, bool]  # how many the text tower saw, and whether there were more


@dataclass(frozen=True, slots=True)
class Shape:
    """What decoding found out about a medium."""

    width: int
    height: int
    duration: float | None
    frames: int
    times: tuple[float, ...] | None = None  # seconds of the encoded frames; None for an image
    decoder: str | None = None  # the library that gave the frames of a video
    facts: VideoFacts | None = None  # what moves in a video
    seen: Seen | None = None  # which frames are of which caption, where captions have spans
    measured: PixelFacts | None = None
    note: str | None = None  # what is not whole about it

    @property
    def kind(self) -> Kind:
        return "image" if self.times is None else "video"


@dataclass(frozen=True, slots=True)
class Swept:
    """A sample after decoding: its shape, or the problem that kept it from being encoded."""

    sample: Sample
    digest: str | None
    outcome: Shape | Problem
    frames: int = 0  # that were decoded, whatever became of the medium in the end
    tokens: tuple[Tokens, ...] = ()  # of each caption of what was decoded

    def frames_of(self, caption_index: int) -> Sequence[int] | Problem:
        """Which of its frames a caption is about."""
        if isinstance(self.outcome, Problem):
            return self.outcome
        if self.outcome.seen is None:
            return range(self.outcome.frames)
        found = self.outcome.seen.of_span[caption_index]
        if isinstance(found, str):
            return Problem("corrupt" if found == LOST else "bad_span", found)
        return found


def digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def row_uid(swept: Swept, caption_index: int, caption: str | None) -> str:
    """128 bits as hex: the corpus's own for this or for the first caption, else from where and what the row is."""
    sample = swept.sample
    own = sample.uids[caption_index] if caption_index < len(sample.uids) else None
    if own and sample.occurrence == 0:
        return own.lower()
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
    timed = isinstance(one.outcome, Problem) or one.outcome.seen is not None  # an image has no spans
    return [
        {
            "uid": row_uid(one, index, caption),
            "key": sample.key,
            "caption_index": index,
            "shard": sample.shard,
            "caption": caption,
            "carried": _carried(sample, index),
            **({} if caption is None else caption_facts(caption)),
            **(_token_facts(one.tokens[index]) if one.tokens else {}),
            **shared,
            **(_span(one, index) if timed and sample.spans else {}),
        }
        for index, caption in enumerate(captions)
    ]


def _span(one: Swept, caption_index: int) -> dict[str, object]:
    """What is different in the row of a caption with a span: its times, its frames and the cuts in it."""
    span = one.sample.spans[caption_index]
    times = {} if span is None else {"start": _finite(span.start), "end": _finite(span.end)}
    found = one.frames_of(caption_index)
    if isinstance(found, Problem):
        return {**times, "status": found.status, "error_message": found.message, "frames": None}
    facts = one.outcome.facts if isinstance(one.outcome, Shape) else None
    return {**times, "frames": len(found), **(_cuts(facts, span) if facts else {})}


def _finite(time: float) -> float | None:
    return time if math.isfinite(time) else None


def _carried(sample: Sample, index: int) -> str | None:
    """One for each caption where the input has a row for each, else the same for all."""
    return sample.carried[min(index, len(sample.carried) - 1)] if sample.carried else None


def _token_facts(tokens: Tokens) -> dict[str, object]:
    return {"tokens": tokens[0], "truncated_caption": tokens[1]}


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
        "error_message": outcome.note,
        "kind": outcome.kind,  # what it turned out to be, whatever its name says
        "width": outcome.width,
        "height": outcome.height,
        "duration": outcome.duration,
        "frames": outcome.frames,
        "decoder": outcome.decoder,
        "aspect": outcome.width / max(1, outcome.height),
        **(asdict(outcome.measured) if outcome.measured else {}),
        **(_motion(outcome.facts) if outcome.facts else {}),
    }


def _motion(facts: VideoFacts) -> dict[str, object]:
    """The facts of motion as columns."""
    always = ("frame_rate", "constant_rate", "audio")
    known: dict[str, object] = {name: getattr(facts, name) for name in always}
    found = facts.motion
    if found is None:
        return known
    names = ("motion", "motion_peak", "frozen_share", "slideshow_share", "black_share", "letterbox")
    measured = {name: getattr(found, name) for name in names}
    return {**known, **measured, "still_picture": found.still, **_cuts(facts, None)}


def _cuts(facts: VideoFacts, span: Span | None) -> dict[str, object]:
    """Cuts in a span, or in all of the video."""
    if facts.motion is None or facts.motion.cuts is None:
        return {}
    inside = [cut for cut in facts.motion.cuts if span is None or span.start < cut < span.end]
    return {"cuts": len(inside), "cut_times": " ".join(f"{cut:.2f}" for cut in inside)}

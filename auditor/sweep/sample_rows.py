"""Turns decoded samples into rows: one row per caption, at least one per sample, each with a uid.

A row with a time span has a status of its own: the video may be sound and the span not.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import asdict

import pyarrow as pa

from auditor.audit_folder import arrow_schema
from auditor.corpus.sample import Media, Problem, Sample, Span
from auditor.sweep.caption_facts import describe_caption
from auditor.sweep.sweep_events import DecodedSample, TokenCount
from model.video.video_facts import VideoFacts

MOTION_COLUMNS = ("motion", "motion_peak", "frozen_share", "slideshow_share", "black_share", "letterbox")


def digest(data: bytes | memoryview) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def compute_row_uid(decoded: DecodedSample, caption_index: int, caption: str | None) -> str:
    """Return 128 bits as hex: the corpus's own uid if it has one for the row, else a hash of position and content."""
    sample = decoded.sample
    own_uid = sample.uids[caption_index] if caption_index < len(sample.uids) else None
    if own_uid and sample.occurrence == 0:
        return own_uid.lower()
    if sample.uid and caption_index == 0 and sample.occurrence == 0:
        return sample.uid.lower()
    parts = (sample.uid, sample.shard, sample.key, sample.occurrence, caption_index, decoded.digest, caption)
    return digest("\0".join("" if part is None else str(part) for part in parts).encode(errors="replace"))


def build_fact_table(samples: Sequence[DecodedSample]) -> pa.Table:
    """Return the rows of samples, in order, without vectors."""
    return pa.Table.from_pylist([row for decoded in samples for row in _build_rows(decoded)], schema=arrow_schema.FACTS)


def count_rows(samples: Sequence[DecodedSample]) -> list[int]:
    return [max(1, len(decoded.sample.captions)) for decoded in samples]


def _build_rows(decoded: DecodedSample) -> list[dict[str, object]]:
    sample = decoded.sample
    shared = {**_locate_medium(sample.media), **_describe_medium(decoded), "media_digest": decoded.digest}
    captions: Sequence[str | None] = sample.captions or (None,)
    has_spans = isinstance(decoded.medium, Problem) or decoded.medium.span_frames is not None  # an image has none
    return [
        {
            "uid": compute_row_uid(decoded, index, caption),
            "key": sample.key,
            "caption_index": index,
            "shard": sample.shard,
            "caption": caption,
            "carried": _select_carried(sample, index),
            **({} if caption is None else describe_caption(caption)),
            **(_describe_tokens(decoded.token_counts[index]) if decoded.token_counts else {}),
            **shared,
            **(_describe_span(decoded, index) if has_spans and sample.spans else {}),
        }
        for index, caption in enumerate(captions)
    ]


def _describe_span(decoded: DecodedSample, caption_index: int) -> dict[str, object]:
    """Return the columns in which a caption with a span differs from its medium: times, frames, cuts, status."""
    span = decoded.sample.spans[caption_index]
    times = {} if span is None else {"start": _none_unless_finite(span.start), "end": _none_unless_finite(span.end)}
    frames = decoded.frames_of_caption(caption_index)
    if isinstance(frames, Problem):
        return {**times, "status": frames.status, "error_message": frames.message, "frames": None}
    video_facts = None if isinstance(decoded.medium, Problem) else decoded.medium.video_facts
    return {**times, "frames": len(frames), **(_describe_cuts(video_facts, span) if video_facts else {})}


def _none_unless_finite(time: float) -> float | None:
    return time if math.isfinite(time) else None


def _select_carried(sample: Sample, index: int) -> str | None:
    """Return the carried columns of a caption; if the input has one row per sample, all captions share them."""
    return sample.carried[min(index, len(sample.carried) - 1)] if sample.carried else None


def _describe_tokens(count: TokenCount) -> dict[str, object]:
    return {"tokens": count[0], "truncated_caption": count[1]}


def _locate_medium(media: Media | None) -> dict[str, object]:
    if media is None:
        return {"kind": None}
    return {
        "kind": media.kind,
        "media_path": media.path,
        "media_offset": media.offset,
        "media_size": media.size,
    }


def _describe_medium(decoded: DecodedSample) -> dict[str, object]:
    medium = decoded.medium
    if isinstance(medium, Problem):
        return {"status": medium.status, "error_message": medium.message}
    return {
        "status": "ok",
        "error_message": medium.note,
        "kind": medium.kind,  # the content decides, not the file name
        "width": medium.width,
        "height": medium.height,
        "duration": medium.duration,
        "frames": decoded.frames,
        "decoder": medium.decoder,
        "aspect": medium.width / max(1, medium.height),
        **(asdict(medium.pixel_facts) if medium.pixel_facts else {}),
        **(_describe_video(medium.video_facts) if medium.video_facts else {}),
    }


def _describe_video(facts: VideoFacts) -> dict[str, object]:
    columns: dict[str, object] = {name: getattr(facts, name) for name in ("frame_rate", "constant_rate", "audio")}
    motion = facts.motion
    if motion is None:
        return columns
    measured = {name: getattr(motion, name) for name in MOTION_COLUMNS}
    return {**columns, **measured, "still_picture": motion.still, **_describe_cuts(facts, None)}


def _describe_cuts(facts: VideoFacts, span: Span | None) -> dict[str, object]:
    """Return the cuts in a span, or in the whole video."""
    if facts.motion is None or facts.motion.cuts is None:
        return {}
    cuts = [cut for cut in facts.motion.cuts if span is None or span.start < cut < span.end]
    return {"cuts": len(cuts), "cut_times": " ".join(f"{cut:.2f}" for cut in cuts)}

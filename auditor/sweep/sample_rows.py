"""Turns decoded samples into rows: one row per caption, at least one per sample, each with a uid.

A row with a time span has a status of its own: the video may be sound and the span not.
"""

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from auditor.audit_folder import arrow_schema
from auditor.corpus.corpus_files import digest
from auditor.corpus.sample import Media, Problem, Span
from auditor.sweep.caption_facts import describe_captions
from auditor.sweep.caption_tokens import CUT_OFF, CaptionTexts
from auditor.sweep.sweep_events import DecodedSample
from model.video.video_facts import VideoFacts

MOTION_COLUMNS = ("motion", "motion_peak", "frozen_share", "slideshow_share", "black_share", "letterbox")


def compute_row_uid(decoded: DecodedSample, caption_index: int, caption: str | None) -> str:
    """128 bits as hex: the corpus's own uid if it has one for the row, else a hash of position and content."""
    sample = decoded.sample
    own_uid = sample.uids[caption_index] if caption_index < len(sample.uids) else None
    own_uid = own_uid or (sample.uid if caption_index == 0 else None)
    if own_uid and sample.occurrence == 0:
        return own_uid.lower()
    parts = (sample.uid, sample.shard, sample.key, sample.occurrence, caption_index, decoded.digest, caption)
    return digest("\0".join("" if part is None else str(part) for part in parts).encode(errors="replace"))


def build_fact_table(samples: Sequence[DecodedSample]) -> pa.Table:
    rows = [row for decoded in samples for row in _build_rows(decoded)]
    facts = describe_captions([row["caption"] for row in rows])
    described = zip(rows, zip(*facts.values(), strict=True), strict=True)
    table = [{**row, **dict(zip(facts, values, strict=True))} for row, values in described]
    return pa.Table.from_pylist(table, schema=arrow_schema.FACTS)


def count_rows(samples: Sequence[DecodedSample]) -> list[int]:
    return [max(1, len(decoded.sample.captions)) for decoded in samples]


def _build_rows(decoded: DecodedSample) -> list[dict[str, Any]]:
    """A row for each caption, without the facts of its text."""
    sample, carried, sources = decoded.sample, decoded.sample.carried, decoded.sample.sources
    shared = {**_locate_medium(sample.media), **_describe_medium(decoded), "media_digest": decoded.digest}
    has_spans = isinstance(decoded.medium, Problem) or decoded.medium.span_frames is not None  # an image has none
    rows = []
    for index, caption in enumerate(sample.captions or (None,)):
        row = {
            "uid": compute_row_uid(decoded, index, caption),
            "key": sample.key,
            "caption_index": index,
            "shard": sample.shard,
            "caption": caption,
            "caption_source": sources[index] if index < len(sources) else None,
            # if the input has one row per sample, all captions share its carried columns
            "carried": carried[min(index, len(carried) - 1)] if carried else None,
            **shared,
        }
        if decoded.texts:
            row |= _describe_texts(decoded.texts.captions[index], row["error_message"])
        rows.append(row | (_describe_span(decoded, index) if has_spans and sample.spans else {}))
    return rows


def _describe_texts(texts: CaptionTexts, message: object) -> dict[str, object]:
    """The columns about the tokens and the parts of a caption."""
    columns = {name: getattr(texts, name) for name in ("tokens", "truncated_caption", "parts", "part_ends")}
    notes = (message, CUT_OFF if texts.parts > 1 and texts.truncated_caption else None)
    return {**columns, "error_message": "; ".join(str(note) for note in notes if note) or None}


def _describe_span(decoded: DecodedSample, caption_index: int) -> dict[str, object]:
    """The columns in which a caption with a span differs from its medium: times, frames, cuts, status."""
    span = decoded.sample.spans[caption_index]
    ends = {} if span is None else {"start": span.start, "end": span.end}
    times = {name: time if math.isfinite(time) else None for name, time in ends.items()}
    frames = decoded.frames_of_caption(caption_index)
    if isinstance(frames, Problem):
        return {**times, "status": frames.status, "error_message": frames.message, "frames": None}
    video_facts = None if isinstance(decoded.medium, Problem) else decoded.medium.video_facts
    return {**times, "frames": len(frames), **(_describe_cuts(video_facts, span) if video_facts else {})}


def _locate_medium(media: Media | None) -> dict[str, object]:
    if media is None:
        return {"kind": None}
    location = {"media_path": media.path, "media_offset": media.offset, "media_size": media.size}
    return {"kind": media.kind, **location}


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
        **(medium.pixel_facts._asdict() if medium.pixel_facts else {}),
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
    """The cuts in a span, or in the whole video."""
    if facts.motion is None or facts.motion.cuts is None:
        return {}
    cuts = [cut for cut in facts.motion.cuts if span is None or span.start < cut < span.end]
    return {"cuts": len(cuts), "cut_times": " ".join(f"{cut:.2f}" for cut in cuts)}

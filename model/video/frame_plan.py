"""Which frames of a video to take: the centres of equal parts of it, or of each span that a caption is about.

Spans that overlap share frames, and each frame is decoded once. Around spans, frames stand on one grid for the whole
video, so that neighbours share them too.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from model.video.frame_index import FrameIndex

GRID = 2.0  # seconds between frames around spans
SLACK = 0.5  # seconds that a span may reach beyond the end: captions are rounded


@dataclass(frozen=True, slots=True)
class SpanPlan:
    """Frames by their number in the video. A span has its frames, or the reason why it has none."""

    frames: list[int]  # all of them, ascending
    of_span: list[list[int] | str]  # positions in `frames`
    around: list[int]  # positions in `frames` of the grid


Span = tuple[float, float] | None  # None: the whole video


def centres(total: int, count: int) -> list[int]:
    """Indices at the centres of `count` equal segments of `total` frames; all of them where there are fewer."""
    return list(range(total)) if total <= count else [(2 * j + 1) * total // (2 * count) for j in range(count)]


def bad_span(start: float, end: float, duration: float) -> str | None:
    """Why nothing can be seen of a span; None where something can."""
    if not (math.isfinite(start) and math.isfinite(end)):
        return "its start or end is not a time"
    if end <= start:
        return f"the span is {'empty' if end == start else 'reversed'}: {start:g} to {end:g} s"
    if start < -SLACK or start >= duration or end > duration + max(SLACK, 0.5 * (end - start)):
        return f"the span {start:g} to {end:g} s is outside the video of {duration:.2f} s"
    return None


def span_frames(index: FrameIndex, start: float, end: float, count: int) -> list[int]:
    """At most `count` frames at the centres of equal parts of a span; at least the one shown in its middle."""
    low, high = max(start, 0.0), min(end, index.duration)
    times = [low + (2 * j + 1) * (high - low) / (2 * count) for j in range(count)]
    return sorted({index.at(time) for time in times})


def one_span(index: FrameIndex, span: Span, count: int) -> list[int]:
    return span_frames(index, *span, count) if span else centres(len(index), count)


def grid_frames(index: FrameIndex, spans: Sequence[tuple[float, float]], context: float) -> list[int]:
    """Frames every `GRID` seconds of the video, where a span is no further than `context` seconds."""
    if context <= 0:
        return []
    near: set[int] = set()
    for start, end in spans:
        first = math.ceil(max(start - context, 0.0) / GRID)
        last = math.floor(min(end + context, index.duration) / GRID)
        near.update(range(first, last + 1))
    return sorted({index.at(step * GRID) for step in near if step * GRID < index.duration})


def plan_spans(index: FrameIndex, spans: Sequence[Span], count: int, context: float) -> SpanPlan:
    """`count` frames of each span, and the grid around them."""
    if not len(index):
        return SpanPlan([], ["no frame could be decoded"] * len(spans), [])
    reasons = [bad_span(*span, index.duration) if span else None for span in spans]
    good = [span for span, reason in zip(spans, reasons, strict=True) if span and reason is None]
    chosen = [reason or one_span(index, span, count) for span, reason in zip(spans, reasons, strict=True)]
    around = grid_frames(index, good, context)
    numbers = sorted({number for one in chosen if not isinstance(one, str) for number in one} | set(around))
    place = {number: position for position, number in enumerate(numbers)}
    return SpanPlan(
        numbers,
        [one if isinstance(one, str) else [place[number] for number in one] for one in chosen],
        [place[number] for number in around],
    )

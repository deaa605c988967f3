"""Choose the frames to decode: the centers of equal segments of a video, or of each time span that has a caption.

Overlapping spans share frames, and each frame is decoded once. The frames around spans lie on one grid for the whole
video, so neighboring spans share those as well.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from model.video.frame_index import FrameIndex

GRID_SECONDS = 2.0  # between frames around spans
SLACK_SECONDS = 0.5  # that a span may start before the video: caption times are rounded


@dataclass(frozen=True, slots=True)
class SpanPlan:
    """Frame numbers to decode. Each span has positions of its frames, or the reason why it has none."""

    frames: list[int]  # all frame numbers, ascending
    span_positions: list[list[int] | str]  # positions in `frames`
    grid_positions: list[int]  # positions in `frames` of the grid around the spans


Span = tuple[float, float] | None  # start and end in seconds; None: the whole video


def segment_centers(total: int, count: int) -> list[int]:
    """Indices at the centers of `count` equal segments of `total` frames; all indices if there are fewer frames."""
    return list(range(total)) if total <= count else [(2 * j + 1) * total // (2 * count) for j in range(count)]


def sample_seconds(total: int, rate: float, count: int) -> list[int]:
    """One index for each second of `total` frames; if there are more than `count`, these evenly from first to last.

    The rate is truncated to a whole number, as in the authors' released program.
    """
    seconds = range(0, total, max(1, int(rate + 1e-3)))
    last = len(seconds) - 1
    return list(seconds) if last < count else [seconds[j * last // max(1, count - 1)] for j in range(count)]


def explain_bad_span(start: float, end: float, duration: float) -> str | None:
    if not (math.isfinite(start) and math.isfinite(end)):
        return "its start or end is not a time"
    if end <= start:
        return f"the span is {'empty' if end == start else 'reversed'}: {start:g} to {end:g} s"
    if start < -SLACK_SECONDS or start >= duration:  # one that only ends outside is cut at the end of the video
        return f"the span {start:g} to {end:g} s is outside the video of {duration:.2f} s"
    return None


def choose_frames(index: FrameIndex, span: Span, count: int) -> list[int]:
    """At most `count` frames at the centers of equal segments of a span, and at least one."""
    if span is None:
        return segment_centers(len(index), count)
    low, high = max(span[0], 0.0), min(span[1], index.duration)
    times = [low + (2 * j + 1) * (high - low) / (2 * count) for j in range(count)]
    return sorted({index.number_at(time) for time in times})


def choose_grid_frames(index: FrameIndex, spans: Sequence[tuple[float, float]], context: float) -> list[int]:
    """Frames on the grid of the video that lie in a span or at most `context` seconds from one."""
    if context <= 0:
        return []
    steps: set[int] = set()
    for start, end in spans:
        first = math.ceil(max(start - context, 0.0) / GRID_SECONDS)
        last = math.floor(min(end + context, index.duration) / GRID_SECONDS)
        steps.update(range(first, last + 1))
    return sorted({index.number_at(step * GRID_SECONDS) for step in steps if step * GRID_SECONDS < index.duration})


def plan_spans(index: FrameIndex, spans: Sequence[Span], count: int, context: float) -> SpanPlan:
    if not len(index):
        return SpanPlan([], ["no frame could be decoded"] * len(spans), [])
    reasons = [explain_bad_span(*span, index.duration) if span else None for span in spans]
    good_spans = [span for span, reason in zip(spans, reasons, strict=True) if span and reason is None]
    choices = [reason or choose_frames(index, span, count) for span, reason in zip(spans, reasons, strict=True)]
    grid = choose_grid_frames(index, good_spans, context)
    numbers = sorted({number for choice in choices if not isinstance(choice, str) for number in choice} | set(grid))
    positions = {number: position for position, number in enumerate(numbers)}
    return SpanPlan(
        numbers,
        [choice if isinstance(choice, str) else [positions[number] for number in choice] for choice in choices],
        [positions[number] for number in grid],
    )

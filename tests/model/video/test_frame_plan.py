"""Frames chosen for spans: overlapping spans share frames, and a span without frames has a reason."""

import math

import numpy as np
import pytest

from model.pixels import DecodeLimits
from model.video.frame_index import FrameIndex, build_frame_index
from model.video.frame_plan import explain_bad_span, plan_spans, sample_seconds, segment_centers
from model.video.video_decode import SpanRequest, decode_frames, open_span_video
from tests.support.clips import make_numbered_clip, read_number


def even(frames: int, rate: int = 25) -> FrameIndex:
    return build_frame_index([(number, 1, number % 12 == 0) for number in range(frames)], rate, 1 / rate)


def test_the_index_finds_the_frame_at_a_time() -> None:
    index = even(100)
    assert (len(index), index.duration, index.rate, index.constant) == (100, 4.0, 25.0, True)
    assert [index.number_at(time) for time in (-1, 0, 0.039, 0.04, 3.99, 9)] == [0, 0, 0, 1, 99, 99]
    assert index.keys[index.key_before(35)] == 24 and index.keys[index.key_before(36)] == 36


def test_a_variable_rate_is_detected() -> None:
    uneven = build_frame_index([(pts, 1, True) for pts in (0, 1, 2, 3, 6, 7, 8)], 25, 1 / 25)
    assert not uneven.constant and uneven.times[4] == pytest.approx(0.24)
    without_times = build_frame_index([(None, 1, True)] * 5, 10, 1 / 25)
    assert without_times.times == [0, 0.1, 0.2, 0.3, 0.4] and without_times.constant


@pytest.mark.parametrize(
    ("start", "end", "says"),
    [
        (1, 1, "empty"),
        (3, 2, "reversed"),
        (math.nan, 2, "not a time"),
        (1, math.inf, "not a time"),
        (10, 12, "outside"),
        (-5, -2, "outside"),
    ],
)
def test_bad_spans_have_a_reason(start: float, end: float, says: str) -> None:
    assert says in (explain_bad_span(start, end, 10.0) or "")


def test_a_span_that_ends_after_the_video_is_cut_at_its_end() -> None:
    assert explain_bad_span(8, 30, 10.0) is explain_bad_span(9.9, 11, 10.0) is explain_bad_span(-0.2, 1, 10.0) is None
    index = even(250)  # ten seconds
    cut, whole = plan_spans(index, [(8, 30)], 4, 0).frames, plan_spans(index, [(8, 10)], 4, 0).frames
    assert cut == whole and index.times[whole[-1]] < 10


def test_spans_share_frames_and_the_grid() -> None:
    index = even(25 * 60)
    plan = plan_spans(index, [(10, 14), (12, 16), (50, 49), (10, 14)], 4, 6.0)
    assert [index.times[plan.frames[place]] for place in plan.span_positions[0]] == [10.48, 11.48, 12.48, 13.48]
    assert plan.span_positions[0] == plan.span_positions[3] and isinstance(plan.span_positions[2], str)
    assert set(plan.span_positions[0]) & set(plan.span_positions[1])  # 12.5 and 13.5 are in both
    assert [index.times[plan.frames[place]] for place in plan.grid_positions] == [4, 6, 8, 10, 12, 14, 16, 18, 20, 22]
    assert plan.frames == sorted(set(plan.frames))
    assert plan_spans(index, [(0.0, 0.02)], 12, 0).frames == [0]  # shorter than a frame


def test_frames_of_spans_are_those_of_the_video() -> None:
    data = make_numbered_clip("h264", "mp4", 100)
    spans = [(0.4, 2.0), (1.2, 2.8), (9.0, 10.0)]
    with open_span_video(data, SpanRequest(spans, 5, context=2.0), DecodeLimits()) as video:
        found = {number: read_number(image) for number, image in video.decode_images()}
        assert list(found) == video.plan.frames and list(found.values()) == video.plan.frames
        assert video.times() == pytest.approx([number / 25 for number in found])
        assert "outside" in str(video.plan.span_positions[2]) and video.size == (96, 64)
    with open_span_video(data, SpanRequest(spans, 5, context=2.0, skip=4), DecodeLimits()) as rest:
        assert [number for number, _ in rest.decode_images()] == video.plan.frames[4:]


def test_a_span_of_everything_is_the_whole_clip() -> None:
    data = make_numbered_clip("h264", "mp4", 100)
    with open_span_video(data, SpanRequest([(0.0, 4.0)], 7), DecodeLimits()) as video:
        assert [number for number, _ in video.decode_images()] == segment_centers(100, 7)
    assert [read_number(image) for image in decode_frames(data, 7).images] == segment_centers(100, 7)


def test_frames_a_second_apart_are_those_of_the_released_program() -> None:
    assert sample_seconds(75, 25.0, 12) == [0, 25, 50]  # padded to twelve
    assert sample_seconds(76, 25.0, 12) == [0, 25, 50, 75]
    assert sample_seconds(150, 29.97, 12) == [0, 29, 58, 87, 116, 145]  # the rate is cut to 29
    assert sample_seconds(7, 0.5, 3) == [0, 3, 6] and sample_seconds(1, 25.0, 12) == [0]
    for total, count in ((1000, 12), (500, 20), (520, 20), (333, 1), (330, 2)):
        seconds = np.arange(0, total, 10)
        chosen = seconds[np.linspace(0, len(seconds) - 1, count, dtype=int)] if len(seconds) > count else seconds
        assert sample_seconds(total, 10.4, count) == chosen.tolist()

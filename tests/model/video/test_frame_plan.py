"""Which frames are taken of spans: shared where spans overlap, with a reason where there are none."""

import math

import pytest

from model.pixels import Limits
from model.video.frame_index import FrameIndex, index_of
from model.video.frame_plan import bad_span, centres, plan_spans
from model.video.video_decode import Wanted, decode_frames, span_video
from tests.support.clips import numbered_clip, read_number


def even(frames: int, rate: int = 25) -> FrameIndex:
    return index_of([(number, 1, number % 12 == 0) for number in range(frames)], rate, 1 / rate)


def test_an_index_knows_what_is_shown_when() -> None:
    index = even(100)
    assert (len(index), index.duration, index.rate, index.constant) == (100, 4.0, 25.0, True)
    assert [index.at(time) for time in (-1, 0, 0.039, 0.04, 3.99, 9)] == [0, 0, 0, 1, 99, 99]
    assert index.keys[index.key_before(35)] == 24 and index.keys[index.key_before(36)] == 36


def test_a_changing_rate_is_told() -> None:
    uneven = index_of([(pts, 1, True) for pts in (0, 1, 2, 3, 6, 7, 8)], 25, 1 / 25)
    assert not uneven.constant and uneven.times[4] == pytest.approx(0.24)
    without_times = index_of([(None, 1, True)] * 5, 10, 1 / 25)
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
        (8, 30, "outside"),
    ],
)
def test_bad_spans_have_a_reason(start: float, end: float, says: str) -> None:
    assert says in (bad_span(start, end, 10.0) or "")


def test_rounding_at_the_end_is_no_fault() -> None:
    assert bad_span(0, 10.4, 10.0) is bad_span(9, 11, 10.0) is bad_span(-0.2, 1, 10.0) is None


def test_spans_share_frames_and_the_grid() -> None:
    index = even(25 * 60)
    plan = plan_spans(index, [(10, 14), (12, 16), (50, 49), (10, 14)], 4, 6.0)
    assert [index.times[plan.frames[place]] for place in plan.of_span[0]] == [10.48, 11.48, 12.48, 13.48]
    assert plan.of_span[0] == plan.of_span[3] and isinstance(plan.of_span[2], str)
    assert set(plan.of_span[0]) & set(plan.of_span[1])  # 12.5 and 13.5 are in both
    assert [index.times[plan.frames[place]] for place in plan.around] == [4, 6, 8, 10, 12, 14, 16, 18, 20, 22]
    assert plan.frames == sorted(set(plan.frames))
    assert plan_spans(index, [(0.0, 0.02)], 12, 0).frames == [0]  # shorter than a frame


def test_frames_of_spans_are_those_of_the_video() -> None:
    data = numbered_clip("h264", "mp4", 100)
    spans = [(0.4, 2.0), (1.2, 2.8), (9.0, 10.0)]
    with span_video(data, Wanted(spans, 5, context=2.0), Limits()) as video:
        found = {number: read_number(image) for number, image in video.pictures()}
        assert list(found) == video.plan.frames and list(found.values()) == video.plan.frames
        assert video.times() == pytest.approx([number / 25 for number in found])
        assert "outside" in str(video.plan.of_span[2]) and video.size == (96, 64)
    with span_video(data, Wanted(spans, 5, context=2.0, skip=4), Limits()) as rest:
        assert [number for number, _ in rest.pictures()] == video.plan.frames[4:]


def test_a_span_of_everything_is_the_whole_clip() -> None:
    data = numbered_clip("h264", "mp4", 100)
    with span_video(data, Wanted([(0.0, 4.0)], 7), Limits()) as video:
        assert [number for number, _ in video.pictures()] == centres(100, 7)
    assert [read_number(image) for image in decode_frames(data, 7).images] == centres(100, 7)

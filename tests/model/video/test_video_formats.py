"""Truncated videos are detected, whole ones are not, and ffmpeg opens each in the format of its first bytes."""

import pytest

from model.video.video_decode import decode_frames
from model.video.video_formats import count_missing_bytes, describe_truncation, detect_container_format
from tests.support.clips import CODECS, make_clip

WITH_LENGTH = ("mp4", "mov", "mkv", "webm", "avi", "m4v", "3gp")  # containers that state their length


@pytest.fixture(scope="module")
def clips() -> dict[str, bytes]:
    return {form: make_clip(form, frames=24) for form in CODECS}


@pytest.mark.parametrize("form", CODECS)
def test_a_whole_video_is_not_truncated(clips: dict[str, bytes], form: str) -> None:
    assert describe_truncation(clips[form]) is None
    assert len(decode_frames(clips[form], 4).images) == 4


@pytest.mark.parametrize("form", WITH_LENGTH)
@pytest.mark.parametrize("share", [0.3, 0.5, 0.9, 0.99])
def test_missing_bytes_are_counted(clips: dict[str, bytes], form: str, share: float) -> None:
    whole = clips[form]
    part = whole[: int(len(whole) * share)]
    said = describe_truncation(part)
    assert said is not None and said.startswith("truncated: ")
    if form in ("mkv", "webm", "avi"):  # one chunk contains everything
        assert count_missing_bytes(part) == len(whole) - len(part)


def test_half_of_what_still_plays_gives_frames(clips: dict[str, bytes]) -> None:
    faststart = make_clip("mp4", frames=48, options={"movflags": "faststart"})
    for whole in (clips["mkv"], faststart):
        half = whole[: len(whole) * 3 // 4]
        assert decode_frames(half, 4).images and "truncated: 75%" in (describe_truncation(half) or "")


@pytest.mark.parametrize(
    "data", [b"", b"\x1aE\xdf\xa3", b"\x1aE\xdf\xa3\xff" * 9, b"\0\0\0\1ftyp", b"\0\0\0\x08ftypmoov" * 3]
)
def test_damaged_headers_raise_no_error(data: bytes) -> None:
    assert count_missing_bytes(data) >= 0


def test_formats_by_their_first_bytes(clips: dict[str, bytes]) -> None:
    found = {form: detect_container_format(data[:189]) for form, data in clips.items()}
    assert found == {
        **dict.fromkeys(("mp4", "mov", "m4v", "3gp"), "mov"),
        **dict.fromkeys(("mkv", "webm"), "matroska"),
        "avi": "avi",
        "mpg": "mpeg",
        "ts": "mpegts",
    }
    assert detect_container_format(b"#EXTM3U\n#EXT-X-TARGETDURATION:10") is None

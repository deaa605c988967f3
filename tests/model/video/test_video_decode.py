"""Decoded video frames: the right ones, upright, from every container, with decord and with PyAV."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from model.pixels import DecodeError, DecodeLimits, Pixels, PixelSpec
from model.video.frame_plan import segment_centers
from model.video.video_decode import decode_frames
from model.video.video_formats import is_video
from tests.support.clips import CODECS, make_clip

BOTH = pytest.mark.parametrize("distrust_pyav", [False, True], ids=["pyav", "decord"])


def levels(images: list[Pixels]) -> list[int]:
    """The index of each frame, from its gray level at the bottom right."""
    return [round(float(image[-8:, -8:].mean()) / 5) for image in images]


@BOTH
def test_frames_a_second_apart(distrust_pyav: bool) -> None:
    data = make_clip(rate=12)
    frames = decode_frames(data, 12, each_second=True, distrust_pyav=distrust_pyav)
    assert frames.decoder == ("decord" if distrust_pyav else "pyav")
    assert levels(frames.images) == [0, 12, 24, 36] and frames.times == pytest.approx([0, 1, 2, 3], abs=0.01)
    assert levels(decode_frames(data, 3, each_second=True, distrust_pyav=distrust_pyav).images) == [0, 12, 36]


def test_centers_of_equal_segments() -> None:
    assert segment_centers(48, 12) == [2, 6, 10, 14, 18, 22, 26, 30, 34, 38, 42, 46]
    assert segment_centers(250, 4) == [31, 93, 156, 218]
    assert segment_centers(100, 1) == [50]
    assert segment_centers(5, 12) == [0, 1, 2, 3, 4]
    for total in range(1, 200):
        chosen = segment_centers(total, 12)
        assert len(set(chosen)) == len(chosen) == min(12, total) and chosen[0] >= 0 and chosen[-1] < total


@BOTH
@pytest.mark.parametrize("form", CODECS)
def test_every_container(form: str, distrust_pyav: bool) -> None:
    found = decode_frames(make_clip(form), 6, distrust_pyav=distrust_pyav)
    assert levels(found.images) == pytest.approx(segment_centers(48, 6), abs=1)
    assert found.times == pytest.approx([i / 24 for i in segment_centers(48, 6)], abs=0.05)
    assert (found.width, found.height) == (64, 48)
    assert found.duration == pytest.approx(2.0, abs=0.1)


def test_decord_and_pyav_agree() -> None:
    data = make_clip(frames=50)
    ours, second = decode_frames(data, 7), decode_frames(data, 7, distrust_pyav=True)
    assert (ours.decoder, second.decoder) == ("pyav", "decord")
    for one, other in zip(ours.images, second.images, strict=True):
        np.testing.assert_array_equal(one, other)
    assert ours.times == pytest.approx(second.times, abs=1e-4)
    assert ours.duration == pytest.approx(second.duration, abs=1e-4)


@BOTH
@pytest.mark.parametrize(("rotation", "corner"), [(0, (0, 0)), (90, (1, 0)), (180, (1, 1)), (270, (0, 1))])
def test_rotation(rotation: int, corner: tuple[int, int], distrust_pyav: bool) -> None:
    found = decode_frames(make_clip(frames=6, rotation=rotation), 2, distrust_pyav=distrust_pyav)
    assert (found.width, found.height) == ((64, 48) if rotation % 180 == 0 else (48, 64))
    height, width = found.images[0].shape[:2]
    assert (width, height) == (found.width, found.height)
    quarters = {
        (y, x): float(found.images[0][y * height // 2 :, x * width // 2 :][: height // 2, : width // 2].mean())
        for y in (0, 1)
        for x in (0, 1)
    }
    assert max(quarters, key=quarters.__getitem__) == corner


@BOTH
def test_rotation_of_real_clips(shared: Path, distrust_pyav: bool) -> None:
    hostile = shared / "data" / "hostile"
    for name, size in (("0", (568, 320)), ("270", (320, 568))):
        data = (hostile / f"odd__decord__tests__test_data__video_{name}.mov").read_bytes()
        found = decode_frames(data, 12, distrust_pyav=distrust_pyav)
        assert (found.width, found.height) == size and len(found.images) == 3


@BOTH
def test_pixels_that_are_not_square(distrust_pyav: bool) -> None:
    wide = decode_frames(make_clip(aspect=Fraction(3, 2)), 2, distrust_pyav=distrust_pyav)
    assert (wide.width, wide.height) == (96, 48) and wide.images[0].shape == (48, 96, 3)


@BOTH
def test_short_videos_give_the_frames_there_are(distrust_pyav: bool) -> None:
    for frames in (1, 2, 5):
        found = decode_frames(make_clip(frames=frames), 12, distrust_pyav=distrust_pyav)
        assert levels(found.images) == pytest.approx(list(range(frames)), abs=1)


def test_frames_are_fitted() -> None:
    found = decode_frames(make_clip(), 4, spec=PixelSpec(size=(32, 32)))
    assert [image.shape for image in found.images] == [(32, 32, 3)] * 4
    assert (found.width, found.height) == (64, 48)


def test_truncated_videos() -> None:
    for data in (make_clip("mp4"), make_clip("mov")):  # the index at the end is missing
        with pytest.raises(DecodeError) as caught:
            decode_frames(data[: len(data) // 2], 4)
        assert caught.value.status == "corrupt"
        assert "decord" in str(caught.value) and "pyav" in str(caught.value) and "/proc" not in str(caught.value)
    for form, options in (("mp4", {"movflags": "faststart"}), ("mkv", {}), ("avi", {})):
        data = make_clip(form, options=options)
        found = decode_frames(data[: len(data) * 3 // 4], 4)  # the existing part can be shown
        assert 1 <= len(found.images) <= 4
        assert max(levels(found.images)) < 47
        with pytest.raises(DecodeError):
            decode_frames(data[:600], 4)


def test_a_damaged_middle_gets_a_second_opinion(shared: Path) -> None:
    data = (shared / "data" / "hostile" / "odd__decord__tests__test_data__corrupted.mp4").read_bytes()
    assert len(decode_frames(data, 12).images) == 12


def test_limits() -> None:
    data = make_clip(frames=3)
    for limits in (DecodeLimits(max_pixels=64 * 48 - 1), DecodeLimits(max_bytes=100)):
        with pytest.raises(DecodeError) as caught:
            decode_frames(data, 4, limits)
        assert caught.value.status == "too_large"
    assert decode_frames(data, 4, DecodeLimits(max_pixels=64 * 48)).width == 64


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"#EXTM3U\n#EXTINF:10,\nfile:///etc/passwd\n",
        b"ffconcat version 1.0\nfile /etc/passwd\n",
        b"\0\0\0\x18ftypheic\0\0\0\0mif1heic",
        b"RIFF\x24\0\0\0WEBPVP8 ",
        b"<html>404</html>",
    ],
)
def test_playlists_and_stills_never_reach_ffmpeg(data: bytes) -> None:
    assert not is_video(data)
    with pytest.raises(DecodeError) as caught:
        decode_frames(data, 4)
    assert caught.value.status == "corrupt"

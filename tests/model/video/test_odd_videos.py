"""Videos that few players write: changing size, 10 bits, HDR, a header of four hours with three frames."""

import io
import struct
from contextlib import suppress
from fractions import Fraction
from typing import Any

import av
import numpy as np
import pytest

from model.pixels import DecodeError, Pixels, PixelSpec
from model.video.video_decode import decode_frames

SPEC = PixelSpec(size=(32, 32))


def make_gray_frames(count: int, width: int = 64, height: int = 48) -> list[Pixels]:
    """Frame i is gray of level 5 i."""
    return [np.full((height, width, 3), 5 * number, np.uint8) for number in range(count)]


def encode(
    frames: list[Pixels],
    form: str = "mp4",
    codec: str = "libx264",
    pixels: str = "yuv420p",
    times: list[int] | None = None,
    transfer: int | None = None,
) -> bytes:
    """`times` are milliseconds; `transfer` 16 is PQ and 18 is HLG, with the primaries of BT.2020."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=form) as container:
        stream: Any = container.add_stream(codec, rate=24, options={"x265-params": "log-level=none"})
        stream.height, stream.width, stream.pix_fmt = *frames[0].shape[:2], pixels
        if transfer:
            context = stream.codec_context
            context.color_primaries, context.color_trc, context.colorspace = 9, transfer, 9
        if times:
            stream.time_base = stream.codec_context.time_base = Fraction(1, 1000)
        for number, frame in enumerate(frames):
            picture = av.VideoFrame.from_ndarray(frame, format="rgb24")
            picture.pts = times[number] if times else number
            container.mux(stream.encode(picture))
        container.mux(stream.encode(None))
    return buffer.getvalue()


def read_levels(data: bytes, count: int = 12) -> list[int]:
    frames = decode_frames(data, count, spec=SPEC)
    assert {image.shape for image in frames.images} == {(32, 32, 3)}
    return [round(float(image.mean()) / 5) for image in frames.images]


@pytest.mark.parametrize("codec", ["libx264", "mpeg2video"])
def test_a_change_of_size_keeps_every_frame(codec: str) -> None:
    parts = [encode(make_gray_frames(24, *size), "mpegts", codec) for size in ((64, 48), (320, 240))]
    assert read_levels(b"".join(parts)) == pytest.approx([2, 6, 10, 14, 18, 22] * 2, abs=1)


@pytest.mark.parametrize("transfer", [None, 16, 18])
@pytest.mark.parametrize(("codec", "pixels"), [("libx264", "yuv422p10le"), ("libx265", "yuv420p10le")])
def test_ten_bits_and_hdr(codec: str, pixels: str, transfer: int | None) -> None:
    """The levels of HDR are not mapped to those of a screen: a dim picture stays a picture."""
    data = encode(make_gray_frames(24), codec=codec, pixels=pixels, transfer=transfer)
    assert read_levels(data) == pytest.approx(range(1, 24, 2), abs=1)


def test_three_frames_in_four_hours() -> None:
    frames = decode_frames(encode(make_gray_frames(3), "matroska", times=[0, 7_200_000, 14_400_000]), 12, spec=SPEC)
    assert len(frames.images) == 3 and frames.times == pytest.approx([0, 7200, 14400], abs=0.1)


def test_a_header_that_claims_four_hours() -> None:
    data = bytearray(encode(make_gray_frames(3)))
    for box in (b"mvhd", b"mdhd"):
        start = data.index(box)
        scale = struct.unpack(">I", data[start + 16 : start + 20])[0]
        data[start + 20 : start + 24] = struct.pack(">I", min(2**32 - 1, scale * 4 * 3600))
    frames = decode_frames(bytes(data), 12, spec=SPEC)
    assert len(frames.images) == 3 and frames.times[-1] < 1


@pytest.mark.parametrize(("box", "offset"), [(b"stsz", 12), (b"stsc", 8), (b"stco", 8), (b"stts", 12)])
def test_tables_that_claim_two_billion_entries(box: bytes, offset: int) -> None:
    data = bytearray(encode(make_gray_frames(3)))
    start = data.index(box) + offset
    data[start : start + 4] = struct.pack(">I", 2**31 - 1)
    with suppress(DecodeError):
        assert len(decode_frames(bytes(data), 12, spec=SPEC).images) <= 3

"""Small videos and photos made in code, for tests of decoding."""

import io
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import av
import numpy as np
from PIL import Image

CODECS = {"mp4": "libx264", "mov": "libx264", "mkv": "libx264", "webm": "libvpx-vp9", "avi": "mpeg4"}
CODECS |= {"m4v": "mpeg4", "mpg": "mpeg1video", "3gp": "mpeg4", "ts": "mpeg2video"}
MUXERS = {"mkv": "matroska", "m4v": "mp4", "mpg": "mpeg", "ts": "mpegts"}


def make_clip(
    form: str = "mp4",
    frames: int = 48,
    size: tuple[int, int] = (64, 48),
    *,
    rate: int = 24,
    rotation: int = 0,
    aspect: Fraction | None = None,
    options: dict[str, str] | None = None,
) -> bytes:
    """A clip whose frame i is gray of level 5 i, with a white top left quarter. `rotation` is counterclockwise."""
    with tempfile.NamedTemporaryFile() as file:  # not a buffer: faststart reads its own file
        write_clip(file.name, form, frames, size, rate, rotation, aspect, options or {})
        return file.read()


def write_clip(
    path: str,
    form: str,
    frames: int,
    size: tuple[int, int],
    rate: int,
    rotation: int,
    aspect: Fraction | None,
    options: dict[str, str],
) -> None:
    with av.open(path, "w", format=MUXERS.get(form, form), options=options) as container:
        stream: Any = container.add_stream(CODECS[form], rate=rate)
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        stream.gop_size, stream.max_b_frames = 12, 2
        if aspect:
            stream.codec_context.sample_aspect_ratio = aspect
        if rotation:
            stream.set_display_rotation(rotation)
        for i in range(frames):
            level = np.full((size[1], size[0], 3), 5 * i, dtype=np.uint8)
            level[: size[1] // 2, : size[0] // 2] = 255
            container.mux(stream.encode(av.VideoFrame.from_ndarray(level, format="rgb24")))
        container.mux(stream.encode(None))


def make_photo(
    width: int = 80, height: int = 60, form: str = "JPEG", color: tuple[int, int, int] = (200, 30, 90)
) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), color).save(buffer, form)
    return buffer.getvalue()


@dataclass(frozen=True, slots=True)
class Encoder:
    """PyAV's settings for a codec, and the containers that commonly hold it."""

    name: str
    forms: tuple[str, ...]
    options: dict[str, str] = field(default_factory=dict)
    pixels: str = "yuv420p"


ENCODERS = {
    "h264": Encoder("libx264", ("mp4", "mov", "mkv", "avi", "ts", "flv"), {"x264-params": "log-level=none"}),
    "h264-open": Encoder("libx264", ("mp4", "mkv"), {"x264-params": "bframes=5:keyint=20:open-gop=1:log-level=none"}),
    "hevc": Encoder("libx265", ("mp4", "mkv", "ts"), {"x265-params": "keyint=20:log-level=none"}),  # open by default
    "vp8": Encoder("libvpx", ("webm", "avi"), {"deadline": "realtime", "cpu-used": "8"}),
    "vp9": Encoder("libvpx-vp9", ("webm", "mp4"), {"deadline": "realtime", "cpu-used": "8", "lag-in-frames": "10"}),
    "av1": Encoder("libsvtav1", ("mp4", "webm"), {"preset": "12", "svtav1-params": "keyint=20"}),
    "mpeg4": Encoder("mpeg4", ("mp4", "avi", "3gp"), {"bf": "2"}),
    "mpeg2": Encoder("mpeg2video", ("ts", "mpg", "mkv"), {"bf": "2"}),
    "mjpeg": Encoder("mjpeg", ("avi", "mov"), {}, "yuvj420p"),
    "prores": Encoder("prores_ks", ("mov", "mkv"), {}, "yuv422p10le"),
}
BITS = 7


def make_numbered_clip(codec: str, form: str, frames: int, *, gop: int = 12, rate: int = 25) -> bytes:
    """A clip with moving colors whose frames show their number, modulo 128, as black and white squares."""
    encoder = ENCODERS[codec]
    with tempfile.NamedTemporaryFile(suffix=f".{form}") as file:
        with av.open(file.name, "w", format=MUXERS.get(form, form)) as container:
            stream: Any = container.add_stream(encoder.name, rate=rate, options=encoder.options)
            stream.width, stream.height, stream.pix_fmt, stream.gop_size = 96, 64, encoder.pixels, gop
            for number in range(frames):
                container.mux(stream.encode(av.VideoFrame.from_ndarray(draw_number(number), format="rgb24")))
            container.mux(stream.encode(None))
        os.sched_setscheduler(
            0, os.SCHED_OTHER, os.sched_param(0)
        )  # SVT-AV1 makes its caller a real-time thread if it may
        return file.read()


def draw_number(number: int) -> Any:
    down, across = np.mgrid[0:64, 0:96]
    picture = np.stack([across * 2 + number * 3, down * 3 + number * 5, np.full_like(down, number * 2)], axis=2) % 256
    for bit in range(BITS):
        picture[:12, bit * 12 : bit * 12 + 12] = 255 * (number >> bit & 1)
    return picture.astype(np.uint8)


def read_number(image: Any) -> int:
    return sum(int(image[2:10, bit * 12 + 2 : bit * 12 + 10].mean() > 127) << bit for bit in range(BITS))


def encode_clip(
    pictures: Iterable[Any], *, rate: int = 25, form: str = "mp4", codec: str = "libx264", **options: str
) -> bytes:
    """Encode pictures as a video, by default in good quality."""
    settings = options or ({"crf": "12", "preset": "veryfast"} if codec == "libx264" else {})
    with tempfile.NamedTemporaryFile(suffix=f".{form}") as file:
        with av.open(file.name, "w") as container:
            stream: Any = container.add_stream(codec, rate=rate, options=settings)
            stream.pix_fmt = "yuv420p"
            for number, picture in enumerate(pictures):
                if not number:
                    stream.height, stream.width = picture.shape[:2]
                container.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")))
            container.mux(stream.encode(None))
        return file.read()


def concatenate_clips(parts: Iterable[bytes], *, form: str = "mp4") -> bytes:
    """Concatenate clips of one encoder by copying packets."""
    with tempfile.NamedTemporaryFile(suffix=f".{form}") as file:
        with av.open(file.name, "w", format=MUXERS.get(form, form)) as whole:
            out: Any = None
            start = Fraction(0)
            for part in parts:
                with av.open(io.BytesIO(part)) as source:
                    stream = source.streams.video[0]
                    out = out or whole.add_stream_from_template(stream)
                    end = start
                    for packet in source.demux(stream):
                        if packet.size and packet.pts is not None and packet.dts is not None:
                            offset = round(start / packet.time_base)
                            end = max(end, start + (packet.pts + (packet.duration or 0)) * packet.time_base)
                            packet.stream, packet.pts, packet.dts = out, packet.pts + offset, packet.dts + offset
                            whole.mux(packet)
                    start = end
        return file.read()

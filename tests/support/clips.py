"""Small videos and photos made in code, for tests of decoding."""

import io
import tempfile
from fractions import Fraction
from typing import Any

import av
import numpy as np
from PIL import Image

CODECS = {"mp4": "libx264", "mov": "libx264", "mkv": "libx264", "webm": "libvpx-vp9", "avi": "mpeg4"}
CODECS |= {"m4v": "mpeg4", "mpg": "mpeg1video", "3gp": "mpeg4", "ts": "mpeg2video"}
MUXERS = {"mkv": "matroska", "m4v": "mp4", "mpg": "mpeg", "ts": "mpegts"}


def clip(
    form: str = "mp4",
    frames: int = 48,
    size: tuple[int, int] = (64, 48),
    *,
    rate: int = 24,
    rotation: int = 0,
    aspect: Fraction | None = None,
    options: dict[str, str] | None = None,
) -> bytes:
    """Frame i is grey of level 5 i, but for a white quarter at its top left; `rotation` is counter-clockwise."""
    with tempfile.NamedTemporaryFile() as file:  # not a buffer: faststart reads its own file again
        write(file.name, form, frames, size, rate, rotation, aspect, options or {})
        return file.read()


def write(
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


def photo(width: int = 80, height: int = 60, form: str = "JPEG", colour: tuple[int, int, int] = (200, 30, 90)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(buffer, form)
    return buffer.getvalue()

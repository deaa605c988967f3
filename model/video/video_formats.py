"""Which bytes are a video, and what its container says before a frame is decoded.

Only containers named in `is_video` are tried: ffmpeg would also follow playlists, and so open other files and addresses
that an untrusted file names.
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from model.pixels import DecodeError, Limits, check_size

ISO_BOXES = (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot")
MATROSKA = b"\x1aE\xdf\xa3"
# First bytes -> what ffmpeg calls the format: Matroska and WebM, MPEG programme and elementary streams, ASF, Ogg, FLV
MAGIC = {
    MATROSKA: "matroska",
    b"\0\0\1\xba": "mpeg",
    b"\0\0\1\xb3": "mpegvideo",
    b"\x30\x26\xb2\x75": "asf",
    b"OggS": "ogg",
    b"FLV": "flv",
}
STILL_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"mif1", b"msf1", b"avif", b"avis")


@dataclass(frozen=True, slots=True)
class Header:
    """What a container says before a frame is decoded."""

    width: int
    height: int
    pixel_aspect: Fraction  # width to height of one pixel: 1 but for DV, DVD and the like
    codec: str
    audio: bool


def is_video(data: bytes) -> bool:
    """Whether the first bytes are those of MP4, MOV, 3GP, MKV, WebM, AVI, MPEG, TS, ASF, FLV or Ogg."""
    return container_format(data) is not None


def container_format(start: bytes) -> str | None:
    """The format as ffmpeg calls it, of the first 189 bytes of a file; None of what is no video."""
    if start[4:8] in ISO_BOXES:
        return "mov" if start[8:12] not in STILL_BRANDS else None
    if start[:4] == b"RIFF":
        return "avi" if start[8:12] == b"AVI " else None
    if start[:1] == b"\x47":
        return "mpegts" if start[188:189] == b"\x47" else None
    return next((name for magic, name in MAGIC.items() if start.startswith(magic)), None)


def open_container(path: str) -> Any:
    """A file opened as what its first bytes say: ffmpeg, left to guess, may take it for a format that names others."""
    import av

    with open(path, "rb") as file:
        form = container_format(file.read(189))
    if form is None:
        raise DecodeError("corrupt", "not a video of a known format")
    return av.open(path, format=form)


def has_timestamps(start: bytes) -> bool:
    """Whether the container gives each frame its time and its key frames can be sought: MP4, MOV, Matroska, WebM."""
    return start[4:8] in ISO_BOXES or start.startswith(MATROSKA)


@contextlib.contextmanager
def as_path(data: bytes) -> Iterator[str]:
    """The bytes under a path, in memory where the system can: decord would copy a buffer three times over."""
    if sys.platform == "linux":
        with open(os.memfd_create("video"), "wb") as file:
            file.write(data)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            yield file.name


def read_header(path: str, limits: Limits) -> Header:
    """Size and shape of pixels, by PyAV; a header it cannot read is left for the decoders to judge."""
    try:
        with open_container(path) as container:
            stream = container.streams.video[0]
            header = Header(
                stream.width,
                stream.height,
                Fraction(stream.sample_aspect_ratio or 1),
                stream.codec_context.codec.canonical_name,
                bool(container.streams.audio),
            )
    except MemoryError as error:
        raise DecodeError("too_large", "the video does not fit in memory") from error
    except Exception:  # both decoders wrap ffmpeg, whose errors come as many types: they will say why
        return Header(0, 0, Fraction(1), "", audio=False)
    if header.width * header.height > limits.max_pixels:
        check_size((header.width, header.height), limits)
    return header

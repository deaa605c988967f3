"""Detect video formats, read container headers, and detect truncated files, all before a frame is decoded.

Only the containers named in `is_video` are opened. ffmpeg would also follow playlists, and so open files and addresses
that an untrusted file names. MP4, MOV, Matroska, WebM and AVI state their length, so a truncated file that still plays
is detected.
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from model.pixels import DecodeError, DecodeLimits, check_pixel_count

ISO_BOXES = (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot")
MATROSKA = b"\x1aE\xdf\xa3"
# First bytes -> ffmpeg's format name: Matroska and WebM, MPEG program and elementary streams, ASF, Ogg, FLV
MAGIC = {
    MATROSKA: "matroska",
    b"\0\0\1\xba": "mpeg",
    b"\0\0\1\xb3": "mpegvideo",
    b"\x30\x26\xb2\x75": "asf",
    b"OggS": "ogg",
    b"FLV": "flv",
}
SEGMENT = b"\x18\x53\x80\x67"  # Matroska element
MAX_BOXES = 10_000
STILL_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"mif1", b"msf1", b"avif", b"avis")


@dataclass(frozen=True, slots=True)
class VideoHeader:
    """Properties of a video from its container."""

    width: int
    height: int
    pixel_aspect: Fraction  # width / height of one pixel; not 1 in formats like DV and DVD
    codec: str
    audio: bool


def is_video(data: bytes) -> bool:
    """Whether the first bytes are those of MP4, MOV, 3GP, MKV, WebM, AVI, MPEG, TS, ASF, FLV or Ogg."""
    return detect_container_format(data) is not None


def detect_container_format(start: bytes) -> str | None:
    """ffmpeg's name of the format, from the first 189 bytes of a file, or None if it is not a video."""
    if start[4:8] in ISO_BOXES:
        return "mov" if start[8:12] not in STILL_BRANDS else None
    if start[:4] == b"RIFF":
        return "avi" if start[8:12] == b"AVI " else None
    if start[:1] == b"\x47":
        return "mpegts" if start[188:189] == b"\x47" else None
    return next((name for magic, name in MAGIC.items() if start.startswith(magic)), None)


def open_container(path: str) -> Any:
    """Open a file in the format of its first bytes: ffmpeg's own guess may be a format that refers to other files."""
    import av

    with open(path, "rb") as file:
        format_name = detect_container_format(file.read(189))
    if format_name is None:
        raise DecodeError("corrupt", "not a video of a known format")
    return av.open(path, format=format_name)


def has_timestamps(start: bytes) -> bool:
    """Whether the container stores a timestamp per frame and supports seeking: MP4, MOV, Matroska, WebM."""
    return start[4:8] in ISO_BOXES or start.startswith(MATROSKA)


@contextlib.contextmanager
def open_as_path(data: bytes) -> Iterator[str]:
    """Give the bytes a path, in memory on Linux: decord would copy a buffer three times."""
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


def read_video_header(path: str, limits: DecodeLimits) -> VideoHeader:
    """Read the header with PyAV. If PyAV fails, the header is empty and the decoders decide about the file."""
    try:
        with open_container(path) as container:
            stream = container.streams.video[0]
            header = VideoHeader(
                stream.width,
                stream.height,
                Fraction(stream.sample_aspect_ratio or 1),
                stream.codec_context.codec.canonical_name,
                bool(container.streams.audio),
            )
    except MemoryError as error:
        raise DecodeError("too_large", "the video does not fit in memory") from error
    except Exception:  # ffmpeg's errors come as many types; the decoders will report the reason
        return VideoHeader(0, 0, Fraction(1), "", audio=False)
    if header.width * header.height > limits.max_pixels:
        check_pixel_count((header.width, header.height), limits)
    return header


def describe_truncation(data: bytes) -> str | None:
    """How much of a file is missing, in words, or None if it has the length that its container states."""
    missing = count_missing_bytes(data)
    if missing <= 0:
        return None
    return f"truncated: {len(data) / (len(data) + missing):.0%} of the file is there, {missing:,} bytes are missing"


def count_missing_bytes(data: bytes) -> int:
    if data[4:8] in ISO_BOXES:
        return max(0, find_iso_end(data) - len(data))
    if data.startswith(MATROSKA):
        return max(0, find_matroska_end(data) - len(data))
    if data[:4] == b"RIFF":
        size = int.from_bytes(data[4:8], "little")
        return max(0, size + 8 - len(data)) if size < 0xFFFF_0000 else 0  # some writers leave all bits set
    return 0


def find_iso_end(data: bytes) -> int:
    """Offset of the end of the last box that begins in the file."""
    offset = 0
    for _ in range(MAX_BOXES):
        header = data[offset : offset + 16]
        if len(header) < 8:
            break
        size = int.from_bytes(header[:4], "big")
        if size == 1 and len(header) == 16:
            size = int.from_bytes(header[8:], "big")
        if size < 8:  # 0: the box extends to the end of the file; else damage
            return len(data)
        if not header[4:8].isalnum():  # not a box: padding or appended data
            return offset
        offset += size
    return offset


def find_matroska_end(data: bytes) -> int:
    """Offset of the end of the segment, or 0 if its size is unknown, as in a live stream."""
    size, offset = read_vint(data, 4)
    if size is None:
        return 0
    offset += size
    if data[offset : offset + 4] != SEGMENT:
        return 0
    size, offset = read_vint(data, offset + 4)
    return offset + size if size is not None else 0


def read_vint(data: bytes, offset: int) -> tuple[int | None, int]:
    """An EBML size (None if unknown: all bits are set) and the offset after it."""
    first = data[offset] if offset < len(data) else 0
    if not first:
        return None, offset + 1
    length = 9 - first.bit_length()
    value = int.from_bytes(data[offset : offset + length], "big") & ((1 << 7 * length) - 1)
    return (None if value == (1 << 7 * length) - 1 else value), offset + length

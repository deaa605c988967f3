"""Bytes of a video to a few frames, without torch: those at the centres of equal segments, as a player shows them.

decord first, where it seeks exactly; PyAV for the rest, and as a second opinion before a file is called corrupt. Frames
are shrunk one at a time, so memory does not grow with the length of the video. Only containers named in `is_video` are
tried: ffmpeg would also follow playlists, and so open other files and addresses that an untrusted file names.
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from PIL import Image

from model.pixels import DecodeError, Limits, Pixels, PixelSpec, check_size, fit_to

ISO_BOXES = (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot")
# Matroska and WebM, MPEG programme and elementary streams, ASF, Ogg, FLV
MATROSKA = b"\x1aE\xdf\xa3"
MAGIC = (MATROSKA, b"\0\0\1\xba", b"\0\0\1\xb3", b"\x30\x26\xb2\x75", b"OggS", b"FLV")
EXACT_CODECS = ("h264", "hevc", "vp8", "vp9", "av1")
STILL_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"mif1", b"msf1", b"avif", b"avis")


@dataclass(frozen=True, slots=True)
class Frames:
    """Chosen frames of a video: fitted to a PixelSpec, or of full size where none was given."""

    images: list[Pixels]  # (H, W, 3) each
    times: list[float]  # seconds
    width: int  # as displayed
    height: int
    duration: float  # seconds


@dataclass(frozen=True, slots=True)
class Header:
    """What a container says before a frame is decoded."""

    width: int
    height: int
    pixel_aspect: Fraction  # width to height of one pixel: 1 but for DV, DVD and the like
    codec: str


def is_video(data: bytes) -> bool:
    """Whether the first bytes are those of MP4, MOV, 3GP, MKV, WebM, AVI, MPEG, TS, ASF, FLV or Ogg."""
    if data[4:8] in ISO_BOXES:
        return data[8:12] not in STILL_BRANDS
    if data[:4] == b"RIFF":
        return data[8:12] == b"AVI "
    if data[:1] == b"\x47":
        return data[188:189] == b"\x47"
    return data.startswith(MAGIC)


def centres(total: int, count: int) -> list[int]:
    """Indices at the centres of `count` equal segments of `total` frames; all of them where there are fewer."""
    return list(range(total)) if total <= count else [(2 * j + 1) * total // (2 * count) for j in range(count)]


def decode_frames(
    data: bytes,
    count: int,
    limits: Limits = Limits(),  # noqa: B008 (frozen)
    spec: PixelSpec | None = None,
    *,
    distrust_decord: bool = False,
) -> Frames:
    """At most `count` frames of a video. `distrust_decord` goes straight to PyAV, after decord has crashed."""
    if len(data) > limits.max_bytes:
        raise DecodeError("too_large", f"{len(data):,} bytes, above the limit of {limits.max_bytes:,}")
    if not is_video(data):
        raise DecodeError("corrupt", "not a video of a known format" if data else "the file is empty")
    complaints: list[str] = []
    with as_path(data) as path:
        header = read_header(path, limits)
        sought = not distrust_decord and is_exact_in_decord(data, header.codec)
        for read in [by_decord, by_pyav] if sought else [by_pyav]:
            try:
                frames = read(path, count, header, spec)
                check_size((frames.width, frames.height), limits)
                return frames
            except DecodeError:
                raise
            except MemoryError as error:
                raise DecodeError("too_large", "the video does not fit in memory") from error
            except Exception as error:  # both wrap ffmpeg, whose errors come as many types
                complaints.append(f"{read.__name__.removeprefix('by_')}: {brief(error, path)}")
    raise DecodeError("corrupt", "; ".join(complaints))


def is_exact_in_decord(data: bytes, codec: str) -> bool:
    """Whether decord 0.6 seeks to the frame it is asked for.

    In AVI and MPEG streams it gives other frames without a word, and in MPEG-4 part 2 with B-frames at times; measured
    against decoding from the start. An unknown codec is one that PyAV could not name.
    """
    return (data[4:8] in ISO_BOXES or data.startswith(MATROSKA)) and codec in (*EXACT_CODECS, "")


def brief(error: Exception, path: str) -> str:
    """The telling part of an error: decord puts a stack trace and source positions around it."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    return text.rsplit("] ", 1)[-1].replace(f": '{path}'", "").replace(f"{path}...", "the file")[:200]


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
    import av

    try:
        with av.open(path) as container:
            stream = container.streams.video[0]
            header = Header(
                stream.width,
                stream.height,
                Fraction(stream.sample_aspect_ratio or 1),
                stream.codec_context.codec.canonical_name,
            )
    except MemoryError as error:
        raise DecodeError("too_large", "the video does not fit in memory") from error
    except Exception:  # as above: the reason comes from the decoders
        return Header(0, 0, Fraction(1), "")
    if header.width * header.height > limits.max_pixels:
        check_size((header.width, header.height), limits)
    return header


def by_decord(path: str, count: int, header: Header, spec: PixelSpec | None) -> Frames:
    """By seeking; decord turns frames upright on its own."""
    os.environ.setdefault("DECORD_EOF_RETRY_MAX", "64")  # its default of 10,240 spins for minutes on truncated files
    import decord

    reader = decord.VideoReader(path, num_threads=1)
    chosen = centres(len(reader), count)
    images: list[Pixels] = []
    size = (0, 0)
    for index in chosen:
        frame: Pixels = reader[index].asnumpy()
        shown, size = display(frame, header.pixel_aspect, turned=frame.shape[:2] == (header.width, header.height))
        images.append(np.asarray(shown) if spec is None else fit_to(spec, shown))
    spans = reader.get_frame_timestamp([*chosen, len(reader) - 1])  # (n, 2): start and end
    return Frames(images, [float(start) for start, _ in spans[:-1]], *size, float(spans[-1][1]))


def display(frame: Pixels, pixel_aspect: Fraction, *, turned: bool) -> tuple[Image.Image, tuple[int, int]]:
    """The frame as shown, pixels made square, and its (width, height). `turned` frames lie on their side."""
    image = Image.fromarray(frame)
    if pixel_aspect == 1 or not Fraction(1, 8) <= pixel_aspect <= 8:  # beyond that it is damage, not a format
        return image, image.size
    aspect = 1 / pixel_aspect if turned else pixel_aspect
    size = max(1, round(image.width * aspect)), image.height
    return image.resize(size, Image.Resampling.BICUBIC), size


def by_pyav(path: str, count: int, header: Header, spec: PixelSpec | None) -> Frames:
    """From the first frame on, passing over packets that do not decode.

    Where fewer frames come out than there are packets (a damaged file), the choice is made again among those that do.
    """
    total = count_packets(path)
    frames, seen = collect(path, centres(total, count), header, spec)
    if seen != total:
        frames, seen = collect(path, centres(seen, count), header, spec)
    if not frames.images:
        raise DecodeError("corrupt", "no frame could be decoded")
    return frames


def count_packets(path: str) -> int:
    import av

    with av.open(path) as container:
        return sum(1 for packet in container.demux(video=0) if packet.size)


def collect(path: str, chosen: Sequence[int], header: Header, spec: PixelSpec | None) -> tuple[Frames, int]:
    """The frames of the indices in `chosen`, and how many frames there were."""
    wanted = set(chosen)
    images: list[Pixels] = []
    times: list[float] = []
    size, seen, end = (0, 0), 0, 0.0
    for frame, start, stop in decoded(path):
        if seen in wanted:
            turns = round(frame.rotation / 90) % 4  # counter-clockwise
            upright: Pixels = np.ascontiguousarray(np.rot90(frame.to_ndarray(format="rgb24"), turns))
            shown, size = display(upright, header.pixel_aspect, turned=turns % 2 == 1)
            images.append(np.asarray(shown) if spec is None else fit_to(spec, shown))
            times.append(start)
        seen, end = seen + 1, max(end, stop)
    return Frames(images, times, *size, end), seen


def decoded(path: str) -> Iterator[tuple[Any, float, float]]:
    """Every frame that can be decoded, with its start and end in seconds."""
    import av

    with av.open(path) as container:
        stream = container.streams.video[0]
        rate = float(stream.average_rate or 25)
        origin = float((stream.start_time or 0) * (stream.time_base or 0))
        place = 0
        for packet in container.demux(stream):
            try:
                frames = packet.decode()
            except av.error.InvalidDataError:
                continue
            for frame in frames:
                start = place / rate if frame.time is None else frame.time - origin
                length = float(frame.duration * frame.time_base) if frame.duration and frame.time_base else 1 / rate
                yield frame, start, start + length
                place += 1

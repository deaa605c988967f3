"""Bytes of a video to the pixels of chosen frames, as a player shows them, one frame in memory at a time.

PyAV first, decord as second opinion before a file is called corrupt. Measured in docs/video.md: PyAV gives the right
frames in every case tried, at half the cost; decord 0.6 gives others, without a word, in HEVC and H.264 with open
groups of pictures, in MPEG-4 with B-frames, in AVI and in MPEG streams.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from PIL import Image

from model.pixels import DecodeError, Limits, Pixels, PixelSpec, check_size, fit_to
from model.video.frame_index import FrameIndex, read_index
from model.video.frame_plan import Span, SpanPlan, centres, plan_spans
from model.video.frame_seek import SeekError, decoded, sought_frames
from model.video.video_facts import FactFinder, VideoFacts
from model.video.video_formats import Header, as_path, has_timestamps, is_video, read_header

EXACT_IN_DECORD = ("h264", "vp8", "vp9", "mjpeg", "prores", "")


@dataclass(frozen=True, slots=True)
class Frames:
    """Chosen frames of a video: fitted to a PixelSpec, or of full size where none was given."""

    images: list[Pixels]  # (H, W, 3) each
    times: list[float]  # seconds
    width: int  # as displayed
    height: int
    duration: float  # seconds
    decoder: str  # which library gave them
    facts: VideoFacts | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """An open file, and how its frames are to be shown."""

    path: str
    start: bytes  # of the file
    header: Header
    spec: PixelSpec | None
    motion: bool = False  # whether to look at frames in close succession, too

    def shown(self, frame: Pixels, turned: bool) -> tuple[Pixels, tuple[int, int]]:
        """A frame as displayed and fitted, and its (width, height) before fitting."""
        image, size = display(frame, self.header.pixel_aspect, turned=turned)
        return np.asarray(image) if self.spec is None else fit_to(self.spec, image), size

    def picture(self, frame: Any) -> tuple[Pixels, tuple[int, int]]:
        """The same of a frame of PyAV's, upright."""
        turns = round(frame.rotation / 90) % 4  # counter-clockwise
        upright: Pixels = np.ascontiguousarray(np.rot90(frame.to_ndarray(format="rgb24"), turns))
        return self.shown(upright, turned=turns % 2 == 1)


Reader = Callable[[Source, int], Frames]


def decode_frames(
    data: bytes,
    count: int,
    limits: Limits = Limits(),  # noqa: B008 (frozen)
    spec: PixelSpec | None = None,
    *,
    distrust_pyav: bool = False,
    motion: bool = False,
) -> Frames:
    """At most `count` frames of a video. `distrust_pyav` goes to decord first, after PyAV has crashed."""
    complaints: list[str] = []
    with opened(data, limits, spec, motion) as source:
        for read in readers(source, distrust_pyav):
            try:
                frames = read(source, count)
                check_size((frames.width, frames.height), limits)
                return frames
            except DecodeError:
                raise
            except MemoryError as error:
                raise DecodeError("too_large", "the video does not fit in memory") from error
            except Exception as error:  # both wrap ffmpeg, whose errors come as many types
                complaints.append(f"{read.__name__.removeprefix('by_')}: {brief(error, source.path)}")
    raise DecodeError("corrupt", "; ".join(complaints))


@contextmanager
def opened(data: bytes, limits: Limits, spec: PixelSpec | None, motion: bool = False) -> Iterator[Source]:
    if len(data) > limits.max_bytes:
        raise DecodeError("too_large", f"{len(data):,} bytes, above the limit of {limits.max_bytes:,}")
    if not is_video(data):
        raise DecodeError("corrupt", "not a video of a known format" if data else "the file is empty")
    with as_path(data) as path:
        yield Source(path, data[:16], read_header(path, limits), spec, motion)


def readers(source: Source, distrust_pyav: bool) -> list[Reader]:
    """In the order they are asked; decord only where it seeks to the frame it is asked for."""
    exact = has_timestamps(source.start) and source.header.codec in EXACT_IN_DECORD
    order: list[Reader] = [by_pyav, by_decord] if exact else [by_pyav]
    return order[::-1] if distrust_pyav else order


def brief(error: Exception, path: str) -> str:
    """The telling part of an error: decord puts a stack trace and source positions around it."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    return text.rsplit("] ", 1)[-1].replace(f": '{path}'", "").replace(f"{path}...", "the file")[:200]


def by_decord(source: Source, count: int) -> Frames:
    """By seeking; decord turns frames upright on its own."""
    os.environ.setdefault("DECORD_EOF_RETRY_MAX", "64")  # its default of 10,240 spins for minutes on truncated files
    import decord

    reader = decord.VideoReader(source.path, num_threads=1)
    chosen = centres(len(reader), count)
    images: list[Pixels] = []
    size = (0, 0)
    for index in chosen:
        frame: Pixels = reader[index].asnumpy()
        turned = frame.shape[:2] == (source.header.width, source.header.height)
        image, size = source.shown(frame, turned)
        images.append(image)
    spans = reader.get_frame_timestamp([*chosen, len(reader) - 1])  # (n, 2): start and end
    return Frames(images, [float(start) for start, _ in spans[:-1]], *size, float(spans[-1][1]), "decord")


def display(frame: Pixels, pixel_aspect: Fraction, *, turned: bool) -> tuple[Image.Image, tuple[int, int]]:
    """The frame as shown, pixels made square, and its (width, height). `turned` frames lie on their side."""
    image = Image.fromarray(frame)
    if pixel_aspect == 1 or not Fraction(1, 8) <= pixel_aspect <= 8:  # beyond that it is damage, not a format
        return image, image.size
    aspect = 1 / pixel_aspect if turned else pixel_aspect
    size = max(1, round(image.width * aspect)), image.height
    return image.resize(size, Image.Resampling.BICUBIC), size


def by_pyav(source: Source, count: int) -> Frames:
    """The frames at the centres of equal parts.

    Where fewer come out than the packets promise (a damaged file), the choice is made again among those that do.
    """
    index = read_index(source.path)
    chosen = centres(len(index), count)
    video = OpenVideo(source, index, chosen)
    found = list(video.pictures())
    if len(found) < len(chosen):
        index = decoded_index(source.path)
        video = OpenVideo(source, index, centres(len(index), count))
        found = list(video.pictures())
    if not found:
        raise DecodeError("corrupt", "no frame could be decoded")
    times = [index.times[number] for number, _ in found]
    return Frames([image for _, image in found], times, *video.size, index.duration, "pyav", video.facts())


class OpenVideo:
    """Frames of a video as they are drawn from PyAV, and what they tell about it."""

    def __init__(self, source: Source, index: FrameIndex, wanted: Sequence[int]) -> None:
        self.source, self.index, self.wanted = source, index, wanted
        self.finder = FactFinder(index, wanted, source.header.audio, source.motion)
        self.size = (0, 0)

    def pictures(self) -> Iterator[tuple[int, Pixels]]:
        """(number, pixels) of the wanted frames, ascending; those that do not decode are left out."""
        wanted = set(self.wanted)
        for number, frame in chosen_frames(self.source, self.index, sorted(wanted.union(self.finder.also))):
            self.finder.see(number, frame)
            if number in wanted:
                image, self.size = self.source.picture(frame)
                yield number, image

    def facts(self) -> VideoFacts:
        return self.finder.facts()


@dataclass(frozen=True, slots=True)
class Wanted:
    """Spans to see: `count` frames of each and a grid `context` seconds around; `skip` frames were given before."""

    spans: Sequence[Span]
    count: int
    context: float = 0.0
    skip: int = 0


class SpanVideo(OpenVideo):
    """The frames of spans, and of the grid around them."""

    def __init__(self, source: Source, wanted: Wanted) -> None:
        index = read_index(source.path)
        self.plan: SpanPlan = plan_spans(index, wanted.spans, wanted.count, wanted.context)
        super().__init__(source, index, self.plan.frames[wanted.skip :])
        self.size = (source.header.width, source.header.height)  # where no span has a frame

    def times(self) -> list[float]:
        return [self.index.times[number] for number in self.plan.frames]


@contextmanager
def span_video(
    data: bytes,
    wanted: Wanted,
    limits: Limits = Limits(),  # noqa: B008 (frozen)
    spec: PixelSpec | None = None,
    *,
    motion: bool = False,
) -> Iterator[SpanVideo]:
    """A video opened to see some spans of it; PyAV alone, whose index says when each frame is shown."""
    import av

    with opened(data, limits, spec, motion) as source:
        try:
            video = SpanVideo(source, wanted)
            check_size(video.size, limits)
            yield video
        except av.FFmpegError as error:
            raise DecodeError("corrupt", f"pyav: {brief(error, source.path)}") from error


def chosen_frames(source: Source, index: FrameIndex, wanted: Sequence[int]) -> Iterator[tuple[int, Any]]:
    """(number, frame) in ascending order: by seeking where the container allows it, else from the start."""
    last = -1
    if has_timestamps(source.start) and not isinstance(index.pts, range):
        try:
            for last, frame in sought_frames(source.path, index, wanted):
                yield last, frame
            return
        except SeekError:
            pass
    yield from frames_from_start(source.path, [number for number in wanted if number > last])


def frames_from_start(path: str, wanted: Sequence[int]) -> Iterator[tuple[int, Any]]:
    """The frames numbered in `wanted`, counted as they are decoded."""
    chosen = set(wanted)
    last = max(chosen, default=-1)
    for number, (frame, _, _) in enumerate(decoded(path)):
        if number in chosen:
            yield number, frame
        if number >= last:
            return


def decoded_index(path: str) -> FrameIndex:
    """An index of the frames that do decode, for files whose packets promise more."""
    spans = [(start, stop) for _, start, stop in decoded(path)]
    duration = max((stop for _, stop in spans), default=0.0)
    rate = len(spans) / duration if duration else 25.0
    return FrameIndex(range(len(spans)), [0], [start for start, _ in spans], duration, rate, constant=True)

"""Decode chosen frames of a video to pixels, as a player shows them, with one frame in memory at a time.

PyAV decodes first; decord is the second opinion before a file is called corrupt. As measured in docs/video.md, PyAV
gives the right frames in every case tried, at half the cost. decord 0.6 silently gives wrong frames in HEVC and H.264
with open groups of pictures, in MPEG-4 with B-frames, in AVI and in MPEG streams.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from PIL import Image

from model.pixels import DEFAULT_LIMITS, DecodeError, DecodeLimits, Pixels, PixelSpec, check_pixel_count, fit_image
from model.video.frame_index import FrameIndex, read_frame_index
from model.video.frame_plan import Span, SpanPlan, plan_spans, sample_seconds, segment_centers
from model.video.frame_seek import SeekError, decode_all_frames, seek_frames
from model.video.video_facts import VideoFactCollector, VideoFacts
from model.video.video_formats import VideoHeader, has_timestamps, is_video, open_as_path, read_video_header

EXACT_IN_DECORD = ("h264", "vp8", "vp9", "mjpeg", "prores", "")  # codecs


@dataclass(frozen=True, slots=True)
class Frames:
    """Chosen frames of a video, fitted to a PixelSpec if there is one, else in full size."""

    images: list[Pixels]  # (H, W, 3) each
    times: list[float]  # seconds
    width: int  # as displayed
    height: int
    duration: float  # seconds
    decoder: str  # "pyav" or "decord"
    facts: VideoFacts | None = None


@dataclass(frozen=True, slots=True)
class VideoSource:
    """An open video file and the display settings of its frames."""

    path: str
    start: bytes  # first bytes of the file
    header: VideoHeader
    spec: PixelSpec | None
    motion: bool = False  # whether to measure motion, which needs frames in close succession
    each_second: bool = False  # whether frames are chosen by `sample_seconds`

    def fit_frame(self, frame: Pixels, turned: bool) -> tuple[Pixels, tuple[int, int]]:
        """A frame as displayed and fitted, and its (width, height) before fitting."""
        image, size = make_pixels_square(frame, self.header.pixel_aspect, turned=turned)
        return np.asarray(image) if self.spec is None else fit_image(self.spec, image), size

    def choose_frames(self, total: int, rate: float, count: int) -> list[int]:
        return sample_seconds(total, rate, count) if self.each_second else segment_centers(total, count)


VideoDecoder = Callable[[VideoSource, int], Frames]


def decode_frames(
    data: bytes,
    count: int,
    limits: DecodeLimits = DEFAULT_LIMITS,
    spec: PixelSpec | None = None,
    *,
    distrust_pyav: bool = False,
    motion: bool = False,
    each_second: bool = False,
) -> Frames:
    """Decode at most `count` frames of a video. `distrust_pyav` tries decord first, after PyAV has crashed."""
    errors: list[str] = []
    with open_video(data, limits, spec, motion, each_second) as source:
        decoders: list[VideoDecoder] = [decode_with_pyav]
        if has_timestamps(source.start) and source.header.codec in EXACT_IN_DECORD:
            decoders.insert(0 if distrust_pyav else 1, decode_with_decord)
        for decoder in decoders:
            try:
                frames = decoder(source, count)
                check_pixel_count((frames.width, frames.height), limits)
                return frames
            except DecodeError:
                raise
            except MemoryError as error:
                raise DecodeError("too_large", "the video does not fit in memory") from error
            except Exception as error:  # both libraries wrap ffmpeg and raise many types
                name = decoder.__name__.removeprefix("decode_with_")
                errors.append(f"{name}: {shorten_decoder_error(error, source.path)}")
    raise DecodeError("corrupt", "; ".join(errors))


@contextmanager
def open_video(
    data: bytes, limits: DecodeLimits, spec: PixelSpec | None, motion: bool, each_second: bool = False
) -> Iterator[VideoSource]:
    if len(data) > limits.max_bytes:
        raise DecodeError("too_large", f"{len(data):,} bytes, above the limit of {limits.max_bytes:,}")
    if not is_video(data):
        raise DecodeError("corrupt", "not a video of a known format" if data else "the file is empty")
    with open_as_path(data) as path:
        yield VideoSource(path, data[:16], read_video_header(path, limits), spec, motion, each_second)


def shorten_decoder_error(error: Exception, path: str) -> str:
    """The message of an error without the stack trace and source positions that decord adds."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    return text.rsplit("] ", 1)[-1].replace(f": '{path}'", "").replace(f"{path}...", "the file")[:200]


def decode_with_decord(source: VideoSource, count: int) -> Frames:
    """Decode by seeking. decord rotates frames upright itself."""
    os.environ.setdefault("DECORD_EOF_RETRY_MAX", "64")  # the default of 10,240 spins for minutes on truncated files
    import decord

    reader = decord.VideoReader(source.path, num_threads=1)
    numbers = source.choose_frames(len(reader), reader.get_avg_fps(), count)
    images: list[Pixels] = []
    size = (0, 0)
    for number in numbers:
        frame: Pixels = reader[number].asnumpy()
        turned = frame.shape[:2] == (source.header.width, source.header.height)
        image, size = source.fit_frame(frame, turned)
        images.append(image)
    spans = reader.get_frame_timestamp([*numbers, len(reader) - 1])  # (n, 2): start and end
    return Frames(images, [float(start) for start, _ in spans[:-1]], *size, float(spans[-1][1]), "decord")


def make_pixels_square(frame: Pixels, pixel_aspect: Fraction, *, turned: bool) -> tuple[Image.Image, tuple[int, int]]:
    """The frame with square pixels, and its (width, height). `turned` frames are rotated by 90 degrees."""
    image = Image.fromarray(frame)
    if pixel_aspect == 1 or not Fraction(1, 8) <= pixel_aspect <= 8:  # any other value is damage, not a format
        return image, image.size
    aspect = 1 / pixel_aspect if turned else pixel_aspect
    size = max(1, round(image.width * aspect)), image.height
    return image.resize(size, Image.Resampling.BICUBIC), size


def decode_with_pyav(source: VideoSource, count: int) -> Frames:
    """Decode the chosen frames.

    If fewer frames decode than the packets promise (a damaged file), choose again among those that do.
    """
    for read_index in (read_frame_index, index_decoded_frames):
        index = read_index(source.path)
        video = OpenVideo(source, index, source.choose_frames(len(index), index.rate, count))
        images = dict(video.decode_images())
        if len(images) == len(video.numbers):
            break
    if not images:
        raise DecodeError("corrupt", "no frame could be decoded")
    times = [index.times[number] for number in images]
    return Frames(list(images.values()), times, *video.size, index.duration, "pyav", video.facts())


class OpenVideo:
    """A video whose frames `numbers` are decoded with PyAV, and whose facts are collected on the way."""

    def __init__(self, source: VideoSource, index: FrameIndex, numbers: Sequence[int]) -> None:
        self.source, self.index, self.numbers = source, index, numbers
        self.collector = VideoFactCollector(index, numbers, source.header.audio, source.motion)
        self.size = (0, 0)

    def decode_images(self) -> Iterator[tuple[int, Pixels]]:
        """Yield (number, pixels) in ascending order, without the frames that do not decode."""
        numbers = set(self.numbers)
        to_decode = sorted(numbers.union(self.collector.motion_frames))
        for number, frame in decode_chosen_frames(self.source, self.index, to_decode):
            self.collector.add_frame(number, frame)
            if number in numbers:
                turns = round(frame.rotation / 90) % 4  # counterclockwise
                upright: Pixels = np.ascontiguousarray(np.rot90(frame.to_ndarray(format="rgb24"), turns))
                image, self.size = self.source.fit_frame(upright, turned=turns % 2 == 1)
                yield number, image

    def facts(self) -> VideoFacts:
        return self.collector.facts()


@dataclass(frozen=True, slots=True)
class SpanRequest:
    """`count` frames of each span and a grid `context` seconds around, without the first `skip` frames."""

    spans: Sequence[Span]
    count: int
    context: float = 0.0
    skip: int = 0  # frames that were delivered before a restart


class SpanVideo(OpenVideo):
    """A video of which some spans and the grid around them are decoded."""

    def __init__(self, source: VideoSource, request: SpanRequest) -> None:
        index = read_frame_index(source.path)
        self.plan: SpanPlan = plan_spans(index, request.spans, request.count, request.context)
        super().__init__(source, index, self.plan.frames[request.skip :])
        self.size = (source.header.width, source.header.height)  # for spans without any frame

    def times(self) -> list[float]:
        return [self.index.times[number] for number in self.plan.frames]


@contextmanager
def open_span_video(
    data: bytes,
    request: SpanRequest,
    limits: DecodeLimits = DEFAULT_LIMITS,
    spec: PixelSpec | None = None,
    *,
    motion: bool = False,
) -> Iterator[SpanVideo]:
    """Open a video to decode some spans. Only PyAV is used: its index gives the time of each frame."""
    import av

    with open_video(data, limits, spec, motion) as source:
        try:
            video = SpanVideo(source, request)
            check_pixel_count(video.size, limits)
            yield video
        except av.FFmpegError as error:
            raise DecodeError("corrupt", f"pyav: {shorten_decoder_error(error, source.path)}") from error


def decode_chosen_frames(source: VideoSource, index: FrameIndex, numbers: Sequence[int]) -> Iterator[tuple[int, Any]]:
    """Yield (number, frame) in ascending order: by seeking if the container allows it, else from the start."""
    last = -1
    if has_timestamps(source.start) and not isinstance(index.pts, range):
        try:
            for last, frame in seek_frames(source.path, index, numbers):
                yield last, frame
            return
        except SeekError:
            pass
    pending = {number for number in numbers if number > last}
    last = max(pending, default=-1)
    for number, (frame, _, _) in enumerate(decode_all_frames(source.path)):
        if number in pending:
            yield number, frame
        if number >= last:
            return


def index_decoded_frames(path: str) -> FrameIndex:
    """Index only the frames that decode, for files whose packets promise more."""
    spans = [(start, stop) for _, start, stop in decode_all_frames(path)]
    duration = max((stop for _, stop in spans), default=0.0)
    rate = len(spans) / duration if duration else 25.0
    return FrameIndex(range(len(spans)), [0], [start for start, _ in spans], duration, rate, constant=True)

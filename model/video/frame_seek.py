"""Chosen frames of a video by PyAV, decoding no more than it must.

For each wanted frame: seek to the key frame before it and decode from there, passing over frames that no other frame
refers to (ffmpeg's `skip_frame`). A decoder starts at exactly the key packet that the index names, so a container that
seeks badly costs time and never gives a wrong frame.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from model.video.frame_index import FrameIndex
from model.video.video_formats import open_container

BACK = (0, 1, 2, 4, 8)  # key frames further back to try where a seek lands too late
SKIPPING = (
    "h264",
    "hevc",
    "mpeg4",
    "mpeg2video",
    "mpeg1video",
)  # a decoder with a delay (dav1d) would skip wanted ones


class SeekError(Exception):
    """The container cannot be sought."""


def sought_frames(path: str, index: FrameIndex, wanted: Sequence[int]) -> Iterator[tuple[int, Any]]:
    """(number, frame) for the frames numbered in `wanted`, ascending; those that do not decode are left out."""
    with open_container(path) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        reach = Reach(container, stream, index)
        numbers = {index.pts[number]: number for number in wanted}
        for number in sorted(set(wanted)):
            if index.pts[number] in numbers:
                yield from reach.decode_to(number, numbers)


class Reach:
    """How far an open video is decoded, and how to get further."""

    def __init__(self, container: Any, stream: Any, index: FrameIndex) -> None:
        self.container, self.stream, self.index = container, stream, index
        self.codec = stream.codec_context
        self.skips = self.codec.codec.canonical_name in SKIPPING
        self.coming: Iterator[Any] | None = None  # frames from where decoding began
        self.done = 0  # pts of the last frame that came out

    def decode_to(self, number: int, numbers: dict[int, int]) -> Iterator[tuple[int, Any]]:
        """All wanted frames up to `number`, which are taken out of `numbers` as they come."""
        target = self.index.pts[number]
        key = self.index.key_before(number)
        if self.coming is None or self.index.keys[key] > self.done:
            self.coming = self.frames(self.packets_from(key), numbers)
        for frame in self.coming:
            self.done = frame.pts
            if frame.pts in numbers:
                yield numbers.pop(frame.pts), frame
            if frame.pts >= target:
                return
        self.coming = None  # the end was reached

    def packets_from(self, key: int) -> Iterator[Any]:
        """The packets from a key frame on."""
        for back in BACK:
            self.container.seek(self.index.keys[max(0, key - back)], stream=self.stream, backward=True)
            packets = self.container.demux(self.stream)
            for packet in packets:
                if packet.pts == self.index.keys[key] and packet.is_keyframe:
                    return chain([packet], packets)
                if packet.is_keyframe and (packet.pts or 0) > self.index.keys[key]:
                    break  # too late
        raise SeekError(f"no key frame where the index has one, at {self.index.keys[key]}")

    def frames(self, packets: Iterator[Any], numbers: dict[int, int]) -> Iterator[Any]:
        import av

        for packet in packets:
            if self.skips:
                self.codec.skip_frame = "DEFAULT" if packet.pts in numbers else "NONREF"
            try:
                yield from packet.decode()
            except av.error.InvalidDataError:
                continue


def decoded(path: str) -> Iterator[tuple[Any, float, float]]:
    """Every frame that can be decoded, from the start, with its start and end in seconds."""
    import av

    with open_container(path) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
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

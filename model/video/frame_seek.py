"""Decode chosen frames of a video with PyAV, and as few others as possible.

For each frame: seek to the key frame before it and decode from there, skipping frames that no other frame refers to
(ffmpeg's `skip_frame`). Decoding starts exactly at the key packet that the index names, so a container that seeks
imprecisely costs time but never gives a wrong frame.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from model.video.frame_index import FrameIndex
from model.video.video_formats import open_container

KEY_FRAMES_BACK = (0, 1, 2, 4, 8)  # seek to an earlier key frame if a seek lands too late
# Decoders with a delay (dav1d) are missing here: they would skip frames that were requested.
SKIPPABLE_CODECS = ("h264", "hevc", "mpeg4", "mpeg2video", "mpeg1video")


class SeekError(Exception):
    """A container that does not support seeking."""


def seek_frames(path: str, index: FrameIndex, numbers: Sequence[int]) -> Iterator[tuple[int, Any]]:
    """Yield (number, frame) for these frame numbers in ascending order, without those that do not decode."""
    with open_container(path) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        decoder = SeekingDecoder(container, stream, index)
        pending = {index.pts[number]: number for number in numbers}
        for number in sorted(set(numbers)):
            if index.pts[number] in pending:
                yield from decoder.decode_to(number, pending)


class SeekingDecoder:
    """An open video with its decoding position."""

    def __init__(self, container: Any, stream: Any, index: FrameIndex) -> None:
        self.container, self.stream, self.index = container, stream, index
        self.codec = stream.codec_context
        self.skips = self.codec.codec.canonical_name in SKIPPABLE_CODECS
        self.upcoming: Iterator[Any] | None = None  # frames from the last seek on
        self.last_pts = 0  # of the last decoded frame

    def decode_to(self, number: int, pending: dict[int, int]) -> Iterator[tuple[int, Any]]:
        """Yield all `pending` frames (pts -> number) up to `number`, and remove them from `pending`."""
        target = self.index.pts[number]
        key = self.index.key_before(number)
        if self.upcoming is None or self.index.keys[key] > self.last_pts:
            self.upcoming = self.frames(self.packets_from(key), pending)
        for frame in self.upcoming:
            self.last_pts = frame.pts
            if frame.pts in pending:
                yield pending.pop(frame.pts), frame
            if frame.pts >= target:
                return
        self.upcoming = None  # end of the video

    def packets_from(self, key: int) -> Iterator[Any]:
        for step in KEY_FRAMES_BACK:
            self.container.seek(self.index.keys[max(0, key - step)], stream=self.stream, backward=True)
            packets = self.container.demux(self.stream)
            for packet in packets:
                if packet.pts == self.index.keys[key] and packet.is_keyframe:
                    return chain([packet], packets)
                if packet.is_keyframe and (packet.pts or 0) > self.index.keys[key]:
                    break  # too late
        raise SeekError(f"no key frame where the index has one, at {self.index.keys[key]}")

    def frames(self, packets: Iterator[Any], pending: dict[int, int]) -> Iterator[Any]:
        import av

        for packet in packets:
            if self.skips:
                self.codec.skip_frame = "DEFAULT" if packet.pts in pending else "NONREF"
            try:
                yield from packet.decode()
            except av.error.InvalidDataError:
                continue


def decode_all_frames(path: str) -> Iterator[tuple[Any, float, float]]:
    """Yield every decodable frame from the start, with its start and end in seconds."""
    import av

    with open_container(path) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        rate = float(stream.average_rate or 25)
        origin = float((stream.start_time or 0) * (stream.time_base or 0))
        number = 0
        for packet in container.demux(stream):
            try:
                frames = packet.decode()
            except av.error.InvalidDataError:
                continue
            for frame in frames:
                start = number / rate if frame.time is None else frame.time - origin
                length = float(frame.duration * frame.time_base) if frame.duration and frame.time_base else 1 / rate
                yield frame, start, start + length
                number += 1

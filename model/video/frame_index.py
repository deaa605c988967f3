"""The frames of a video before any is decoded: one pass over its packets gives the time of each, and the key frames.

A pass costs about 25 microseconds a packet. Containers without times of their own (AVI, MPEG streams) are numbered in
the order in which frames come, and read from the start.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from model.video.video_formats import open_container

JITTER = 0.1  # of a frame's length: rounding of times, not a rate that changes


@dataclass(frozen=True, slots=True)
class FrameIndex:
    """What the packets say. Times are seconds from the first frame on."""

    pts: Sequence[int]  # of the frames in the order they are shown
    keys: Sequence[int]  # pts of the key frames, sorted
    times: Sequence[float]
    duration: float
    rate: float  # frames per second
    constant: bool  # whether the rate is the same throughout

    def __len__(self) -> int:
        return len(self.pts)

    def at(self, time: float) -> int:
        """The number of the frame a player shows at a time."""
        return min(max(bisect_right(self.times, time + 1e-6) - 1, 0), len(self.times) - 1)

    def key_before(self, number: int) -> int:
        """Where in `keys` the key frame stands that the decoding of a frame begins with."""
        return max(bisect_right(self.keys, self.pts[number]) - 1, 0)


def read_index(path: str) -> FrameIndex:
    with open_container(path) as container:
        stream = container.streams.video[0]
        packets = [
            (packet.pts, packet.duration or 0, packet.is_keyframe)
            for packet in container.demux(stream)
            if packet.size and not packet.is_discard
        ]
        rate, base = float(stream.average_rate or 25), float(stream.time_base or 0)
        return index_of(packets, rate, base)


def index_of(packets: Sequence[tuple[int | None, int, bool]], rate: float, base: float) -> FrameIndex:
    """From (pts, duration, key frame) of each packet. Without times, frames are numbered at the stream's mean rate."""
    known = [pts for pts, _, _ in packets if pts is not None]
    if len(known) < len(packets) or len(set(known)) < len(known) or not base:
        times = [number / rate for number in range(len(packets))]
        return FrameIndex(range(len(packets)), [0], times, len(packets) / rate, rate, constant=True)
    pts = sorted(known)
    end = max(((p or 0) + (length or 1 / (rate * base)) for p, length, _ in packets), default=0.0)
    start = pts[0] if pts else 0
    times = [(value - start) * base for value in pts]
    keys = sorted(value for value, _, key in packets if key and value is not None)
    measured, constant = steadiness(times, base)
    return FrameIndex(pts, keys, times, (end - start) * base, measured or rate, constant)


def steadiness(times: Sequence[float], base: float) -> tuple[float, bool]:
    """Frames per second, and whether every frame lasts as long as the median one, but for rounding to `base`."""
    if len(times) < 2:
        return 0.0, True
    steps = np.diff(np.asarray(times))
    usual = float(median(steps))
    even = np.abs(steps - usual) <= max(JITTER * usual, base)
    return (len(times) - 1) / (times[-1] - times[0]), bool(even.all())

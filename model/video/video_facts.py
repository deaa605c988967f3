"""Facts of a video from its packets and small pictures of its frames: rate, cuts, motion, stills, black frames, bars.

A cut is a change between two pictures that no camera movement explains, that is far larger than the changes around it,
and that lasts: the pictures before and after a flash are alike. Cuts and motion need pictures in close succession,
which are decoded only on request. A few frames of a long video give the other facts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from model.pixels import Pixels
from model.video.frame_index import FrameIndex
from model.video.frame_plan import segment_centers

Doubles = npt.NDArray[np.float64]
Gray = npt.NDArray[np.int16]  # (N, SIDE, SIDE)

SIDE = 32  # of the small pictures; their aspect ratio is ignored
PICTURES_PER_SECOND = 12.5  # at most
MAX_PICTURES = 20_000  # of a video: half an hour at that rate
PICTURES_WITHOUT_MOTION = 48  # if cuts and motion are not requested
MAX_GAP = 0.3  # seconds between pictures in close succession
MAX_SHIFT = 4  # pixels of camera movement between two pictures
# Thresholds tuned on 150 generated videos of 500 Flickr8k photos with pans, moving objects and flashes.
MIN_CUT_CHANGE = 0.07  # of full scale: mean change of a picture at a cut
MIN_RATIO_TO_NEIGHBORS = 2.0  # change at a cut, relative to the changes around it
MIN_RATIO_TO_NEXT = 1.4  # relative to the changes right before and after: an object passing by grows and fades
NEIGHBORS = 6  # changes before and after a cut to compare it with
CODING_NOISE = 0.004  # of full scale: a change that video coding alone can cause
MAX_IDENTICAL_CHANGE = 1  # of 255, in any pixel of identical pictures; a talking head in the dark differs by 2
MAX_FAINT_CHANGE, MAX_FAINT_MEAN = 3, 0.05  # of 255, in any pixel and on average: also identical
MAX_STILL_CHANGE = 20  # of 255, in a still picture by coding alone; real videos differ by 80 and more
MAX_BLACK = 20  # of 255: 99th percentile of a black picture
MAX_BAR = 24  # of 255: 90th percentile of a row or column of a bar
MIN_SLIDE_SECONDS = 1.0  # without change that make a slide


@dataclass(frozen=True, slots=True)
class Motion:
    """Facts from the pictures of a video. Cuts, motion and slides are None without pictures in close succession."""

    black_share: float  # of the pictures
    letterbox: float  # share of the picture area covered by bars
    still: bool  # all pictures are the same: a photo stored as a video
    cuts: tuple[float, ...] | None = None  # seconds
    motion: float | None = None  # median change per second, of full scale
    motion_peak: float | None = None  # 99th percentile
    frozen_share: float | None = None  # of the time, between identical pictures; None for a single picture
    slideshow_share: float | None = None  # of the time, in still pictures between two changes


def measure_motion(pictures: Pixels, times: Sequence[float]) -> Motion:
    when, gray = np.asarray(times, np.float64), convert_to_gray(pictures)
    black = np.quantile(gray.reshape(len(gray), -1), 0.99, axis=1) < MAX_BLACK
    still = bool(np.abs(gray - np.median(gray, axis=0)).max() <= MAX_STILL_CHANGE)
    facts = float(black.mean()), measure_letterbox(gray[~black]), still
    steps, frozen = np.diff(when), are_identical(gray[:-1], gray[1:])
    frozen_share = float(steps[frozen].sum() / steps.sum()) if steps.sum() > 0 else None
    if len(when) < 3 or float(np.median(steps)) > MAX_GAP:
        return Motion(*facts, frozen_share=frozen_share)
    cuts = find_cuts(gray)
    change_rates = np.abs(gray[1:] - gray[:-1]).mean(axis=(1, 2)) / 255 / np.maximum(steps, 1e-3)
    motion = np.delete(change_rates, cuts - 1)
    return Motion(
        *facts,
        cuts=tuple(float(when[i]) for i in cuts),
        motion=float(np.median(motion)) if len(motion) else 0.0,
        motion_peak=float(np.quantile(motion, 0.99)) if len(motion) else 0.0,
        frozen_share=frozen_share,
        slideshow_share=measure_slideshow_share(frozen, steps),
    )


def convert_to_gray(pictures: Pixels) -> Gray:
    weighted = pictures.astype(np.int32) @ np.array([77, 151, 28], np.int32)
    return np.asarray(weighted >> 8, np.int16)


def are_identical(first: Gray, second: Gray) -> npt.NDArray[np.bool_]:
    """Whether each pair of pictures is the same, (N,)."""
    change = np.abs(first - second)
    largest, mean = change.max(axis=(1, 2), initial=0), change.mean(axis=(1, 2))
    return np.asarray((largest <= MAX_IDENTICAL_CHANGE) | ((largest <= MAX_FAINT_CHANGE) & (mean <= MAX_FAINT_MEAN)))


def measure_changes(first: Gray, second: Gray) -> Doubles:
    """Mean change of each pair of pictures, of full scale, at the best of all small displacements, (N,)."""
    smallest = np.full(len(first), np.inf)
    for down, right in product(range(-MAX_SHIFT, MAX_SHIFT + 1), repeat=2):
        moved = first[:, max(0, down) : SIDE + min(0, down), max(0, right) : SIDE + min(0, right)]
        target = second[:, max(0, -down) : SIDE + min(0, -down), max(0, -right) : SIDE + min(0, -right)]
        smallest = np.minimum(smallest, np.abs(moved - target).mean(axis=(1, 2)) / 255)
    return smallest


def find_cuts(gray: Gray) -> npt.NDArray[np.intp]:
    """Numbers of the pictures that begin a new scene."""
    changes = measure_changes(gray[:-1], gray[1:])
    cuts = []
    for i in np.flatnonzero(changes > MIN_CUT_CHANGE):
        sides = changes[max(0, i - NEIGHBORS) : i], changes[i + 1 : i + 1 + NEIGHBORS]
        typical = max(float(np.median(side)) if len(side) else 0.0 for side in sides)
        adjacent = max(float(side[end]) if len(side) else 0.0 for side, end in zip(sides, (-1, 0), strict=True))
        threshold = max(MIN_RATIO_TO_NEIGHBORS * max(typical, CODING_NOISE), MIN_RATIO_TO_NEXT * adjacent)
        if changes[i] > threshold and new_scene_persists(gray, int(i), float(changes[i])):
            cuts.append(i + 1)
    return np.array(cuts, dtype=np.intp)


def new_scene_persists(gray: Gray, i: int, change: float) -> bool:
    """Whether the old scene does not return at once: a flash is not a cut."""
    old_scene, new_scene = gray[[max(0, i - 1), i]], gray[[min(len(gray) - 1, i + 2)] * 2]
    return float(measure_changes(old_scene, new_scene).min()) > change / 2


def measure_slideshow_share(frozen: npt.NDArray[np.bool_], steps: Doubles) -> float:
    """Share of the time in still pictures. A single still picture is not a slide show and gives 0."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], frozen, [False]]).astype(np.int8)))
    durations = [float(steps[a:b].sum()) for a, b in zip(edges[::2], edges[1::2], strict=True)]
    slides = [duration for duration in durations if duration >= MIN_SLIDE_SECONDS]
    return float(sum(slides) / steps.sum()) if len(slides) > 1 else 0.0


def measure_letterbox(gray: Gray) -> float:
    """Share of the picture area along its edges that is dark in every picture."""
    if not len(gray):
        return 0.0
    dark_rows = np.quantile(gray, 0.9, axis=2).max(axis=0) <= MAX_BAR  # (SIDE,)
    dark_columns = np.quantile(gray, 0.9, axis=1).max(axis=0) <= MAX_BAR
    visible = (1 - measure_edge_share(dark_rows)) * (1 - measure_edge_share(dark_columns))
    return float(1 - visible) if visible > 0 else 0.0


def measure_edge_share(dark: npt.NDArray[np.bool_]) -> float:
    """Share of leading and trailing True values; 1 if all are True."""
    bright = np.flatnonzero(~dark)
    return 1.0 if not len(bright) else float((bright[0] + len(dark) - 1 - bright[-1]) / len(dark))


@dataclass(frozen=True, slots=True)
class VideoFacts:
    """Facts of a video that an audit stores."""

    frame_rate: float
    constant_rate: bool
    audio: bool
    motion: Motion | None  # None if no frame was decoded

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> "VideoFacts":
        """Inverse of `dataclasses.asdict`, also after JSON."""
        motion = fields["motion"]
        if motion is not None:
            motion = Motion(**{**motion, "cuts": None if motion["cuts"] is None else tuple(motion["cuts"])})
        return cls(float(fields["frame_rate"]), bool(fields["constant_rate"]), bool(fields["audio"]), motion)


class VideoFactCollector:
    """Collects small pictures of a bounded number of frames while they are decoded for the encoder.

    `motion_frames` are the frames it needs in addition to the `chosen` ones.
    """

    def __init__(self, index: FrameIndex, chosen: Sequence[int], audio: bool, motion: bool) -> None:
        self.index, self.audio = index, audio
        step = max(1, round(index.rate / PICTURES_PER_SECOND), -(-len(index) // MAX_PICTURES))
        self.motion_frames: Sequence[int] = range(0, len(index), step) if motion else ()
        sample = [chosen[position] for position in segment_centers(len(chosen), PICTURES_WITHOUT_MOTION)]
        self.numbers = set(self.motion_frames) or set(sample)
        self.pictures: list[Pixels] = []
        self.times: list[float] = []

    def add_frame(self, number: int, frame: Any) -> None:
        if number in self.numbers:
            small = frame.reformat(width=SIDE, height=SIDE, format="rgb24", interpolation="AREA")
            self.pictures.append(np.asarray(small.to_ndarray(), np.uint8))
            self.times.append(self.index.times[number])

    def facts(self) -> VideoFacts:
        motion = measure_motion(np.stack(self.pictures), self.times) if self.pictures else None
        return VideoFacts(self.index.rate, self.index.constant, self.audio, motion)

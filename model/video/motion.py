"""What moves in a video, from small pictures of it in close succession: cuts, motion, stills, black frames, bars.

A cut is a change between two pictures that no movement of the camera explains, far above what changes just before and
after it, and lasting: the pictures on both sides of a flash are alike. Where pictures are far apart in time (a few
frames of a long video), only what needs no succession is measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from model.pixels import Pixels

Doubles = npt.NDArray[np.float64]
Grey = npt.NDArray[np.int16]  # (N, SIDE, SIDE)

SIDE = 32  # of the small pictures: their shape does not matter
PER_SECOND = 12.5  # small pictures a second, at most
MOST = 20_000  # small pictures of a video: half an hour at that rate
CLOSE = 0.3  # seconds between pictures up to which they are a succession
REACH = 4  # pixels by which a picture may have moved on the next
# Chosen on 150 generated videos of 500 photos of Flickr8k with pans, moving things and flashes.
CUT = 0.07  # of full scale: mean change of a picture that can be a cut
STANDS_OUT = 2.0  # times the change around it
SPIKE = 1.4  # times the changes right before and after it: what passes close by grows and fades
AROUND = 6  # pictures before and after that a change is compared with
QUIET = 0.004  # of full scale: a change that coding alone can make
SAME = 1  # of 255: pictures that nowhere differ by more are the same; a talking head in the dark differs by 2
FAINT, FEW = 3, 0.05  # of 255: those that nowhere differ by more, and on average by so little, are, too
STILL = 20  # of 255: how far a still picture strays from itself, by coding alone; real ones by 80 and more
BLACK = 20  # of 255: a picture whose brightest hundredth is below is black
BAR = 24  # of 255: a row or column whose brightest tenth never exceeds it is a bar
HELD = 1.0  # seconds without change that make a slide


@dataclass(frozen=True, slots=True)
class Motion:
    """Shares are of the pictures looked at. What needs close succession (cuts, motion, slides) is None without it."""

    black_share: float
    letterbox: float  # share of the picture that is bars
    still: bool  # every picture the same: a photo sold as a video
    cuts: tuple[float, ...] | None = None  # seconds
    motion: float | None = None  # median change of a picture a second, of full scale
    motion_peak: float | None = None  # 99th percentile
    frozen_share: float | None = None  # of the time between pictures that are the same; None of a single one
    slideshow_share: float | None = None  # of the time in which a still picture is held between two changes


def small_picture(frame: Any) -> Pixels:
    """A frame of PyAV's, shrunk to SIDE x SIDE."""
    shrunk = frame.reformat(width=SIDE, height=SIDE, format="rgb24", interpolation="AREA")
    return np.asarray(shrunk.to_ndarray(), np.uint8)


def succession(rate: float, total: int) -> range:
    """Numbers of the frames to take small pictures of."""
    return range(0, total, max(1, round(rate / PER_SECOND), -(-total // MOST)))


def measure_motion(pictures: Pixels, times: Sequence[float]) -> Motion:
    """Facts of motion from small pictures (N, SIDE, SIDE, 3) at `times`."""
    when, grey = np.asarray(times, np.float64), luma(pictures)
    black = np.quantile(grey.reshape(len(grey), -1), 0.99, axis=1) < BLACK
    still = bool(np.abs(grey - np.median(grey, axis=0)).max() <= STILL)
    facts = float(black.mean()), bars(grey[~black]), still
    step, frozen = np.diff(when), same(grey[:-1], grey[1:])
    unchanged = float(step[frozen].sum() / step.sum()) if step.sum() > 0 else None
    if len(when) < 3 or float(np.median(step)) > CLOSE:
        return Motion(*facts, frozen_share=unchanged)
    cut = find_cuts(grey)
    plain = np.abs(grey[1:] - grey[:-1]).mean(axis=(1, 2)) / 255 / np.maximum(step, 1e-3)
    smooth = np.delete(plain, cut - 1)
    return Motion(
        *facts,
        cuts=tuple(float(when[i]) for i in cut),
        motion=float(np.median(smooth)) if len(smooth) else 0.0,
        motion_peak=float(np.quantile(smooth, 0.99)) if len(smooth) else 0.0,
        frozen_share=unchanged,
        slideshow_share=slides(frozen, step),
    )


def luma(pictures: Pixels) -> Grey:
    weighted = pictures.astype(np.int32) @ np.array([77, 151, 28], np.int32)
    return np.asarray(weighted >> 8, np.int16)


def same(one: Grey, other: Grey) -> npt.NDArray[np.bool_]:
    """Whether nothing changes between pictures, (N,)."""
    change = np.abs(one - other)
    most, mean = change.max(axis=(1, 2), initial=0), change.mean(axis=(1, 2))
    return np.asarray((most <= SAME) | ((most <= FAINT) & (mean <= FEW)))


def changes(one: Grey, other: Grey) -> Doubles:
    """Mean change between pictures, of full scale, at the best of all small displacements, (N,)."""
    best = np.full(len(one), np.inf)
    for down, right in product(range(-REACH, REACH + 1), repeat=2):
        moved = one[:, max(0, down) : SIDE + min(0, down), max(0, right) : SIDE + min(0, right)]
        onto = other[:, max(0, -down) : SIDE + min(0, -down), max(0, -right) : SIDE + min(0, -right)]
        best = np.minimum(best, np.abs(moved - onto).mean(axis=(1, 2)) / 255)
    return best


def find_cuts(grey: Grey) -> npt.NDArray[np.intp]:
    """Numbers of the pictures that begin a new scene."""
    change = changes(grey[:-1], grey[1:])
    found = []
    for i in np.flatnonzero(change > CUT):
        sides = change[max(0, i - AROUND) : i], change[i + 1 : i + 1 + AROUND]
        usual = max(float(np.median(side)) if len(side) else 0.0 for side in sides)
        next_to_it = max(float(side[at]) if len(side) else 0.0 for side, at in zip(sides, (-1, 0), strict=True))
        sudden = change[i] > STANDS_OUT * max(usual, QUIET) and change[i] > SPIKE * next_to_it
        if sudden and lasts(grey, int(i), float(change[i])):
            found.append(i + 1)
    return np.array(found, dtype=np.intp)


def lasts(grey: Grey, i: int, change: float) -> bool:
    """Whether what stood before does not come back at once: a flash is no cut."""
    before, after = grey[[max(0, i - 1), i]], grey[[min(len(grey) - 1, i + 2)] * 2]
    return float(changes(before, after).min()) > change / 2


def slides(frozen: npt.NDArray[np.bool_], step: Doubles) -> float:
    """Share of the time in held pictures that are followed by another: a single still picture is no slide show."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], frozen, [False]]).astype(np.int8)))
    held = [float(step[a:b].sum()) for a, b in zip(edges[::2], edges[1::2], strict=True)]
    long = [length for length in held if length >= HELD]
    return float(sum(long) / step.sum()) if len(long) > 1 else 0.0


def bars(grey: Grey) -> float:
    """Share of the picture that is dark in every picture, along its edges."""
    if not len(grey):
        return 0.0
    rows = np.quantile(grey, 0.9, axis=2).max(axis=0) <= BAR  # (SIDE,)
    columns = np.quantile(grey, 0.9, axis=1).max(axis=0) <= BAR
    shown = (1 - edge_share(rows)) * (1 - edge_share(columns))
    return float(1 - shown) if shown > 0 else 0.0


def edge_share(dark: npt.NDArray[np.bool_]) -> float:
    """Share of leading and trailing True; all of them where it is dark throughout."""
    bright = np.flatnonzero(~dark)
    return 1.0 if not len(bright) else float((bright[0] + len(dark) - 1 - bright[-1]) / len(dark))

"""Where in time captions fit: how far those of a video run ahead of its pictures, and when each of them is true.

Both work on the similarities of a video's captions with its frames, wherever these stand in time. A frame that fits
everything and a caption that fits everything say nothing about time, so each row and column is centred first.
NumPy only.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

REACH = 30.0  # seconds that captions may be early or late
ENOUGH = 5  # captions of a video below which no shift can be told from chance
PERMUTATIONS = 999  # at most
REACHED = 20  # of them that gain as much: from there on the chance is known well enough
SURE = 0.01  # p-value up to which a video is called out of step
MOST_CAPTIONS = 400  # of a video that are looked at: more make it no clearer


@dataclass(frozen=True, slots=True)
class TimeShift:
    """`shift` seconds have to be added to the spans; `gain` is what that adds to the mean centred similarity."""

    shift: float
    gain: float
    p: float  # of such a gain where captions and frames have nothing to do with each other


def centred(similarity: Floats) -> Doubles:
    """(C, T) without what a caption or a frame has in common with all others."""
    values = similarity.astype(np.float64)
    level: Doubles = values.mean(axis=0, keepdims=True) + values.mean(axis=1, keepdims=True) - values.mean()
    return np.subtract(values, level)


def offsets(step: float, reach: float = REACH) -> Doubles:
    """Shifts to try: multiples of half a sampling step, zero among them."""
    count = int(reach / (step / 2))
    return np.arange(-count, count + 1, dtype=np.float64) * np.float64(step / 2)


def sampling_step(times: Doubles) -> float:
    return float(max(np.median(np.diff(times)), 0.25)) if len(times) > 1 else 1.0


def windows(times: Doubles, spans: Doubles, shifts: Doubles) -> tuple[Ints, Ints]:
    """First and last-but-one frame of each span at each shift, (C, D); equal where the frames do not reach.

    A span between two frames takes the nearest, as long as that is within a sampling step.
    """
    edges = np.concatenate([[-np.inf], (times[1:] + times[:-1]) / 2, [np.inf]])  # a frame stands for what is near it
    middle = spans.mean(axis=1)[:, None] + shifts
    first = np.searchsorted(times, spans[:, :1] + shifts)
    last = np.searchsorted(times, spans[:, 1:] + shifts)
    nearest = np.searchsorted(edges, middle) - 1
    empty = first >= last
    first, last = np.where(empty, nearest, first), np.where(empty, nearest + 1, last)
    step = sampling_step(times)
    outside = (middle < times[0] - step) | (middle > times[-1] + step)
    return first, np.where(outside, first, last)


def find_shift(
    similarity: Floats, times: Sequence[float], spans: Sequence[tuple[float, float]], *, seed: int = 0
) -> TimeShift | None:
    """The shift at which captions and frames of one video agree best; None where there is too little to tell.

    The p-value is that of the gain over no shift at all, against the same search with captions permuted among spans.
    """
    if len(spans) < ENOUGH or len(times) < ENOUGH:
        return None
    when, where = np.asarray(times, np.float64), np.asarray(spans, np.float64)
    generator = np.random.default_rng(seed)
    if len(where) > MOST_CAPTIONS:
        chosen = np.sort(generator.choice(len(where), MOST_CAPTIONS, replace=False))
        similarity, where = similarity[chosen], where[chosen]
    shifts = offsets(sampling_step(when))
    first, last = windows(when, where, shifts)
    sums = np.concatenate([np.zeros((len(where), 1)), centred(similarity).cumsum(axis=1)], axis=1)
    found = agreement(sums, first, last, np.arange(len(where)))
    zero, best = len(shifts) // 2, int(np.argmax(found))
    gain = float(found[best] - found[zero])

    def by_chance() -> Iterator[float]:
        for _ in range(PERMUTATIONS):
            score = agreement(sums, first, last, generator.permutation(len(where)))
            yield float(score.max() - score[zero])

    shift = centre_of(found, shifts, best) if gain > 0 else 0.0
    return TimeShift(shift, gain, chance(gain, by_chance()))


def chance(gain: float, permuted: Iterable[float]) -> float:
    """Besag and Clifford's sequential p-value: it stops once enough permutations have gained as much.

    Most videos are in step and need a few; those that are not get a p-value as small as all of them allow.
    """
    drawn = reached = 0
    for drawn, value in enumerate(permuted, start=1):
        reached += value >= gain
        if reached == REACHED:
            return reached / drawn
    return (reached + 1) / (drawn + 1)


def agreement(sums: Doubles, first: Ints, last: Ints, captions: Ints) -> Doubles:
    """Mean similarity of each shift, (D,), where span i has the caption `captions[i]`; too few spans count as none."""
    length = last - first
    rows = captions[:, None]
    mean = (sums[rows, last] - sums[rows, first]) / np.maximum(length, 1)
    there = (length > 0).sum(axis=0)
    total = np.where(length > 0, mean, 0).sum(axis=0) / np.maximum(there, 1)
    return np.where(there >= max(ENOUGH, len(captions) / 2), total, -np.inf)


def centre_of(score: Doubles, shifts: Doubles, best: int) -> float:
    """The middle of the plateau around the best shift: spans and frames are coarser than shifts."""
    level = score[best] - 0.02 * abs(score[best])
    low = high = best
    while low > 0 and score[low - 1] >= level:
        low -= 1
    while high + 1 < len(score) and score[high + 1] >= level:
        high += 1
    return float((shifts[low] + shifts[high]) / 2)


def best_span(similarity: Floats, times: Sequence[float], background: float) -> tuple[float, float]:
    """The stretch of time in which a caption is true: the frames whose similarity stands out together.

    Every frame stands for the time nearest to it. The stretch is the one with the largest sum of similarities above
    the midway between the background (what the caption has with pictures of something else) and the best frame.
    """
    when = np.asarray(times, np.float64)
    values = smoothed(similarity.astype(np.float64))
    weight = cell_widths(when)
    above = (values - (background + values.max()) / 2) * weight
    low, high = largest_sum(above)
    edges = cell_edges(when)
    return float(edges[low]), float(edges[high])


def smoothed(values: Doubles) -> Doubles:
    """Running median of three."""
    if len(values) < 3:
        return values
    inner = np.median(np.stack([values[:-2], values[1:-1], values[2:]]), axis=0)
    return np.concatenate([values[:1], inner, values[-1:]])


def cell_edges(times: Doubles) -> Doubles:
    middle = (times[1:] + times[:-1]) / 2
    half = (times[1] - times[0]) / 2 if len(times) > 1 else 0.5
    end = (times[-1] - times[-2]) / 2 if len(times) > 1 else 0.5
    return np.concatenate([[max(times[0] - half, 0.0)], middle, [times[-1] + end]])


def cell_widths(times: Doubles) -> Doubles:
    return np.diff(cell_edges(times))


def largest_sum(values: Doubles) -> tuple[int, int]:
    """(first, last but one) of the run of values with the largest sum."""
    sums = np.concatenate([[0.0], values.cumsum()])
    lowest = np.minimum.accumulate(sums[:-1])
    high = int(np.argmax(sums[1:] - lowest)) + 1
    low = int(np.argmin(sums[:high]))
    return low, high

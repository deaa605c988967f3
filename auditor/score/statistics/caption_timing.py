"""Timing of captions: the shift between a video's captions and its pictures, and the time span that each caption fits.

Both use the similarities of a video's captions with all its encoded frames. A frame that fits every caption and a
caption that fits every frame carry no information about time, so rows and columns are centered first. NumPy only.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from auditor.vectors import Floats, Ints

Doubles = npt.NDArray[np.float64]

REACH = 30.0  # largest shift in seconds, either way
ENOUGH = 5  # fewest captions and frames of a video for a test
PERMUTATIONS = 999  # upper limit
EXCEEDANCES = 20  # permutations with at least the observed gain after which the test stops
SIGNIFICANT_P = 0.01  # p-value up to which a video counts as out of sync
MOST_CAPTIONS = 400  # captions of a video that are used: more add no precision


@dataclass(frozen=True, slots=True)
class TimeShift:
    """Adding `shift` seconds to the spans adds `gain` to the mean centered similarity."""

    shift: float
    gain: float
    p: float  # p-value of the gain if captions and frames are independent


def estimate_sampling_step(times: Doubles) -> float:
    return float(max(np.median(np.diff(times)), 0.25)) if len(times) > 1 else 1.0


def find_frame_windows(times: Doubles, spans: Doubles, shifts: Doubles) -> tuple[Ints, Ints]:
    """First frame and end (exclusive) of each span at each shift, (C, D); equal if the span is outside the frames.

    A span between two frames takes the nearest frame if it is within a sampling step.
    """
    edges = np.concatenate([[-np.inf], (times[1:] + times[:-1]) / 2, [np.inf]])  # a frame covers the time nearest to it
    middle = spans.mean(axis=1)[:, None] + shifts
    first = np.searchsorted(times, spans[:, :1] + shifts)
    last = np.searchsorted(times, spans[:, 1:] + shifts)
    nearest = np.searchsorted(edges, middle) - 1
    empty = first >= last
    first, last = np.where(empty, nearest, first), np.where(empty, nearest + 1, last)
    step = estimate_sampling_step(times)
    outside = (middle < times[0] - step) | (middle > times[-1] + step)
    return first, np.where(outside, first, last)


def find_shift(
    similarity: Floats, times: Sequence[float], spans: Sequence[tuple[float, float]], *, seed: int = 0
) -> TimeShift | None:
    """The shift at which captions and frames of one video agree best; None if there are too few of them.

    Permutation test: the gain over no shift is compared with the gains of the same search with permuted captions.
    """
    if len(spans) < ENOUGH or len(times) < ENOUGH:
        return None
    frame_times, span_times = np.asarray(times, np.float64), np.asarray(spans, np.float64)
    generator = np.random.default_rng(seed)
    if len(span_times) > MOST_CAPTIONS:
        chosen = np.sort(generator.choice(len(span_times), MOST_CAPTIONS, replace=False))
        similarity, span_times = similarity[chosen], span_times[chosen]
    half_step = estimate_sampling_step(frame_times) / 2
    count = int(REACH / half_step)
    shifts = np.arange(-count, count + 1, dtype=np.float64) * np.float64(half_step)
    first, last = find_frame_windows(frame_times, span_times, shifts)
    values = similarity.astype(np.float64)
    centered = values - (values.mean(axis=0, keepdims=True) + values.mean(axis=1, keepdims=True) - values.mean())
    sums = np.concatenate([np.zeros((len(values), 1)), centered.cumsum(axis=1)], axis=1)
    means = average_by_shift(sums, first, last, np.arange(len(span_times)))
    zero, best = len(shifts) // 2, int(np.argmax(means))
    gain = float(means[best] - means[zero])

    def permuted_gains() -> Iterator[float]:
        for _ in range(PERMUTATIONS):
            permuted = average_by_shift(sums, first, last, generator.permutation(len(span_times)))
            yield float(permuted.max() - permuted[zero])

    shift = find_plateau_center(means, shifts, best) if gain > 0 else 0.0
    return TimeShift(shift, gain, compute_sequential_p(gain, permuted_gains()))


def compute_sequential_p(gain: float, permuted: Iterable[float]) -> float:
    """Besag and Clifford's sequential Monte Carlo p-value: stops after enough permutations reach the gain.

    Most videos are in sync and need few permutations; the others get a p-value as small as all of them allow.
    """
    draws = exceedances = 0
    for draws, value in enumerate(permuted, start=1):
        exceedances += value >= gain
        if exceedances == EXCEEDANCES:
            return exceedances / draws
    return (exceedances + 1) / (draws + 1)


def average_by_shift(sums: Doubles, first: Ints, last: Ints, captions: Ints) -> Doubles:
    """Mean similarity at each shift, (D,), with caption `captions[i]` in span i; -inf if too few spans have frames."""
    length = last - first
    rows = captions[:, None]
    mean = (sums[rows, last] - sums[rows, first]) / np.maximum(length, 1)
    count = (length > 0).sum(axis=0)
    total = np.where(length > 0, mean, 0).sum(axis=0) / np.maximum(count, 1)
    return np.where(count >= max(ENOUGH, len(captions) / 2), total, -np.inf)


def find_plateau_center(score: Doubles, shifts: Doubles, best: int) -> float:
    """The middle of the plateau around the best shift: spans and frames are coarser than shifts."""
    below = np.flatnonzero(score < score[best] - 0.02 * abs(score[best]))
    low = below[below < best].max(initial=-1) + 1
    high = below[below > best].min(initial=len(score)) - 1
    return float((shifts[low] + shifts[high]) / 2)


def find_best_span(similarity: Floats, times: Sequence[float], background: float) -> tuple[float, float]:
    """The interval in which a caption is true: the consecutive frames with the largest excess similarity.

    Every frame covers the time nearest to it. The excess is measured from halfway between the background (the caption's
    similarity to unrelated frames) and the best frame.
    """
    frame_times = np.asarray(times, np.float64)
    values = filter_median(similarity.astype(np.float64))
    edges = cell_edges(frame_times)
    excess = (values - (background + values.max()) / 2) * np.diff(edges)
    low, high = find_largest_sum(excess)
    return float(edges[low]), float(edges[high])


def filter_median(values: Doubles) -> Doubles:
    windows = np.stack([values[:-2], values[1:-1], values[2:]])
    return np.concatenate([values[:1], np.median(windows, axis=0), values[-1:]]) if len(values) > 2 else values


def cell_edges(times: Doubles) -> Doubles:
    """Edges of the time cells that frames cover, (T + 1,)."""
    half = np.diff(times) / 2 if len(times) > 1 else np.array([0.5])
    return np.concatenate([[max(times[0] - half[0], 0.0)], (times[1:] + times[:-1]) / 2, [times[-1] + half[-1]]])


def find_largest_sum(values: Doubles) -> tuple[int, int]:
    """Start and end (exclusive) of the run of consecutive values with the largest sum."""
    sums = np.concatenate([[0.0], values.cumsum()])
    lowest = np.minimum.accumulate(sums[:-1])
    high = int(np.argmax(sums[1:] - lowest)) + 1
    low = int(np.argmin(sums[:high]))
    return low, high

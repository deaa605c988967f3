"""Measures the pixels that the encoder sees: sharpness, exposure, contrast, color, borders; and shrinks them.

The decoder process measures the pixels it has decoded anyway, at the encoder's size.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from auditor.vectors import THUMBNAIL_SIDE

Pixels = npt.NDArray[np.uint8]

FLAT = 10  # of 255: largest luma range of a uniform edge row or column
MAX_FRAMES = 4
LUMA = np.array([77, 150, 29], np.float32) / 256  # of red, green and blue
LEVELS = np.arange(256) / 255
DARK = int((LEVELS < 0.06).sum())  # the first level that does not count as black
BRIGHT = int((LEVELS <= 0.94).sum())  # the first level that counts as white
EDGE = 0.995  # quantile of the gradient: the sharpest edges decide, even if they are few


class PixelFacts(NamedTuple):
    """The measurements of one medium, named like their columns."""

    sharpness: float
    brightness: float
    dark_share: float
    bright_share: float
    contrast: float
    entropy: float
    colourfulness: float
    border_share: float


def describe_pixels(frames: Pixels) -> tuple[PixelFacts, bytes]:
    """Return the facts and the thumbnail of a medium of frames (F, H, W, 3).

    The facts of a video are the medians over some of its frames. The thumbnail, in which copies of a medium are
    recognized, is 32 x 32 gray levels of the middle frame.
    """
    middle, measured = len(frames) // 2, range(0, len(frames), -(-len(frames) // MAX_FRAMES))
    lumas = {number: compute_luma(frames[number]) for number in {middle, *measured}}
    images = {number: open_luma(luma) for number, luma in lumas.items()}
    facts = [_measure_frame(frames[number], lumas[number], images[number]) for number in measured]
    thumbnail = images[middle].resize((THUMBNAIL_SIDE, THUMBNAIL_SIDE), Image.Resampling.BOX)
    return PixelFacts(*(facts[0] if len(facts) == 1 else np.median(facts, axis=0).tolist())), thumbnail.tobytes()


def open_luma(values: Pixels) -> Image.Image:
    """Return an image that shares the memory of contiguous values (H, W)."""
    height, width = values.shape
    return Image.frombuffer("L", (width, height), values, "raw", "L", 0, 1)


def compute_luma(frame: Pixels) -> Pixels:
    """Return the luma in 0..255. All sums are exact in float32, so they are those of integers, rounded down."""
    values = frame.reshape(-1, 3).astype(np.float32) @ LUMA
    return values.astype(np.uint8).reshape(frame.shape[:-1])


def _measure_frame(frame: Pixels, luma: Pixels, image: Image.Image) -> tuple[float, ...]:
    counts = count_levels(image)
    share = counts / luma.size
    brightness = float(share @ LEVELS)
    low, high = find_percentiles(counts, [0.01, 0.99])
    (edge,) = find_percentiles(count_levels(open_luma(measure_steps(luma))), [EDGE])
    return (
        edge / max(high - low, 5),  # 0 blurred, 1 a hard edge
        brightness,
        float(share[:DARK].sum()),
        float(share[BRIGHT:].sum()),
        float(np.sqrt(share @ (LEVELS - brightness) ** 2)),
        measure_entropy(share),
        measure_colorfulness(frame[::2, ::2]),
        measure_border_share(luma),
    )


def measure_steps(luma: Pixels) -> Pixels:
    """Return the absolute differences of neighboring pixels in one row, without leaving 8 bits."""
    pairs = (luma[1:], luma[:-1]), (luma[:, 1:], luma[:, :-1])
    steps = np.empty((1, sum(first.size for first, _ in pairs)), np.uint8)
    start = 0
    for first, second in pairs:
        part = steps[0, start : start + first.size].reshape(first.shape)
        np.maximum(first, second, out=part)
        part -= np.minimum(first, second)
        start += first.size
    return steps


def count_levels(image: Image.Image) -> npt.NDArray[np.int64]:
    """Return how often each of the 256 values occurs, three times as fast as `np.bincount`, which converts to int64."""
    return np.array(image.histogram())


def find_percentiles(counts: npt.NDArray[np.int64], shares: list[float]) -> list[int]:
    """Return the values that these shares of the counted values do not exceed."""
    cumulative = counts.cumsum()
    return cumulative.searchsorted(np.array(shares) * cumulative[-1]).tolist()  # type: ignore[no-any-return]


def measure_entropy(share: npt.NDArray[np.float64]) -> float:
    """Return the entropy of the luma histogram in bits: 0 for one gray, 8 for a uniform histogram."""
    positive = share[share > 0]
    return float(-(positive * np.log2(positive)).sum())


def measure_colorfulness(frame: Pixels) -> float:
    """Return Hasler and Suesstrunk's measure over 255: 0 for gray, above 0.3 for vivid colors."""
    red, green, blue = (frame[..., channel].astype(np.int16) for channel in range(3))
    first = (red - green).astype(np.float32).ravel()
    second = (red + green - 2 * blue).astype(np.float32).ravel()  # twice the measure's second axis
    means = first.mean(), second.mean()
    first -= means[0]
    second -= means[1]
    spread = np.sqrt((first @ first + second @ second / 4) / first.size)
    return float((spread + 0.3 * np.hypot(means[0], means[1] / 2)) / 255)


def measure_border_share(luma: Pixels) -> float:
    """Return the share of the picture that uniform rows and columns at its edges take."""
    height, width = luma.shape
    edges = np.concatenate((luma[0], luma[-1], luma[:, 0], luma[:, -1]))
    starts = (0, width, 2 * width, 2 * width + height)
    if (np.maximum.reduceat(edges, starts) - np.minimum.reduceat(edges, starts) > FLAT).all():
        return 0.0  # most pictures
    rows, columns = (luma.max(axis) - luma.min(axis) <= FLAT for axis in (1, 0))
    inside = [1 - (_count_leading(flat) + _count_leading(flat[::-1])) / len(flat) for flat in (rows, columns)]
    return float(1 - max(0.0, inside[0]) * max(0.0, inside[1]))


def _count_leading(flat: npt.NDArray[np.bool_]) -> int:
    return int(np.argmin(flat)) if not flat.all() else len(flat)

"""Facts of the pixels that the encoder gets: sharpness, exposure, contrast, colour, borders; of videos over the frames.

Measured on what is decoded anyway, at the encoder's size, in the decoder process. NumPy only.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]

DARK, BRIGHT = 0.06, 0.94  # luma of what counts as black and as white
FLAT = 10  # of 255: range of the luma along an edge that is a uniform border
MOST_FRAMES = 4
EDGE = 0.995  # quantile of the gradient: the sharpest edges decide, however few there are


@dataclass(frozen=True, slots=True)
class PixelFacts:
    """One medium's; the names are those of the columns."""

    sharpness: float
    brightness: float
    dark_share: float
    bright_share: float
    contrast: float
    entropy: float
    colourfulness: float
    border_share: float


def pixel_facts(frames: Pixels) -> PixelFacts:
    """Of a medium's frames (F, H, W, 3): an image's own, the median over some frames of a video."""
    frames = frames[:: -(-len(frames) // MOST_FRAMES)]
    measured = [_of_frame(frame, light) for frame, light in zip(frames, to_luma(frames), strict=True)]
    return PixelFacts(*np.median(measured, axis=0).tolist())


def to_luma(frames: Pixels) -> Pixels:
    """In 0..255, in integers: several times faster than in floats."""
    red, green, blue = (frames[..., i].astype(np.uint16) for i in range(3))
    return ((77 * red + 150 * green + 29 * blue) >> 8).astype(np.uint8)


def _of_frame(frame: Pixels, luma: Pixels) -> tuple[float, ...]:
    counts = np.bincount(luma.ravel(), minlength=256)
    share = counts / luma.size
    level = np.arange(256) / 255
    brightness = float(share @ level)
    return (
        sharpness(luma, counts),
        brightness,
        float(share[level < DARK].sum()),
        float(share[level > BRIGHT].sum()),
        float(np.sqrt(share @ (level - brightness) ** 2)),
        entropy(share),
        colourfulness(frame[::2, ::2]),
        border_share(luma),
    )


def sharpness(luma: Pixels, counts: npt.NDArray[np.int64]) -> float:
    """The steepest edges (change of luma from pixel to pixel) against the range of luma: 0 a smear, 1 a hard edge."""
    wide = luma.astype(np.int16)
    steps = np.bincount(np.abs(wide[1:] - wide[:-1]).ravel(), minlength=256)
    steps += np.bincount(np.abs(wide[:, 1:] - wide[:, :-1]).ravel(), minlength=256)
    low, high = percentile(counts, 0.01), percentile(counts, 0.99)
    return percentile(steps, EDGE) / max(high - low, 5)


def percentile(counts: npt.NDArray[np.int64], share: float) -> int:
    """The value that this share of the counted ones does not exceed."""
    return int(np.searchsorted(np.cumsum(counts), share * counts.sum()))


def entropy(share: npt.NDArray[np.float64]) -> float:
    """Bits of the histogram of luma in 256 steps: 0 for one grey, 8 for all alike."""
    seen = share[share > 0]
    return float(-(seen * np.log2(seen)).sum())


def colourfulness(frame: Pixels) -> float:
    """Hasler and Suesstrunk's measure over 255: 0 for grey, above 0.3 for vivid colours."""
    red, green, blue = (frame[..., i].astype(np.float32) for i in range(3))
    first, second = red - green, (red + green) / 2 - blue
    spread = np.hypot(first.std(), second.std())
    return float((spread + 0.3 * np.hypot(first.mean(), second.mean())) / 255)


def border_share(luma: Pixels) -> float:
    """Share of the picture that uniform rows and columns at its edges take."""
    rows, columns = (np.ptp(luma, axis=axis) <= FLAT for axis in (1, 0))
    inside = [1 - (_leading(flat) + _leading(flat[::-1])) / len(flat) for flat in (rows, columns)]
    return float(1 - max(0.0, inside[0]) * max(0.0, inside[1]))


def _leading(flat: npt.NDArray[np.bool_]) -> int:
    """How many of the first values are true."""
    return int(np.argmin(flat)) if not flat.all() else len(flat)

"""How far two pictures agree pixel by pixel, from thumbnails of 32 x 32 gray levels: the proof of a near-duplicate.

One picture is laid over the other: hundreds of crops, mirrored or turned by a few degrees, are compared at 100 points,
and the best is refined to an affine map (Lucas and Kanade 1981). Then every stretch of 12 pixels, along rows and along
columns, is compared as SSIM does. The weaker direction counts: pages of one template agree in where their lines are,
but not along the lines. Brightness and contrast do not matter. Perceptual hashes (imagehash) recognize neither crops
nor mirrored pictures, and they do not tell such pages apart.
"""

from functools import cache

import numpy as np
import numpy.typing as npt

from auditor.vectors import THUMBNAIL_SIDE, Bools, Floats, Ints

SIDE = THUMBNAIL_SIDE
LAYOUT_SIDE = 8
POINTS = np.linspace(-0.6, 0.6, 10)  # of the middle, in half sides: a copy without its edges still has it
SCALES = 1.085 ** np.arange(-5, 5)
STEP = 3 / SIDE  # between shifts: one pixel and a half
TURN = np.radians(4)
SLACK = 0.15  # largest shift of a picture that keeps its size: the center of a picture whose edge was cut off
GRAIN = 1.0  # variance of gray levels that a new encoding changes
ROUGH = 0.75  # agreement at the points below which pictures differ
HOPELESS, CERTAIN = 0.25, 0.95  # agreement below and above which a refinement changes no decision
TOGETHER = 256  # pictures refined together
BLURRED = 2048  # pictures blurred together, which take 8 MB
STRETCH = 12
STROKE = 20.0  # standard deviation from which a stretch has its full weight
SMOOTH = 0.5  # deviation from the blurred picture: 4 and more on photos, at most 0.4 on blank and blurred ones
SAME_TONE = 8.0
Thumbnails = npt.NDArray[np.uint8]  # (N, SIDE * SIDE); all zero: none is stored
Y, X = (axis.ravel() for axis in np.indices((SIDE, SIDE), np.float32) * 2 / SIDE + 1 / SIDE - 1)


def find_structure(thumbnails: Thumbnails) -> Bools:
    """Return which thumbnails show something; a blank or blurred picture has nothing that could be compared."""
    parts = (thumbnails[start : start + BLURRED] for start in range(0, len(thumbnails), BLURRED))
    shows = [np.asarray((part - blur(part)).std(axis=1) > SMOOTH, bool) for part in parts]
    return np.concatenate([np.zeros(0, bool), *shows])


def compute_layouts(thumbnails: Thumbnails) -> Floats:
    """Unit vectors that are near for copies of one size, even if an encoder places them far apart (gray, tiny)."""
    share = SIDE // LAYOUT_SIDE
    small = thumbnails.reshape(-1, LAYOUT_SIDE, share, LAYOUT_SIDE, share).mean(axis=(2, 4), dtype=np.float32)
    rows = small.reshape(len(small), LAYOUT_SIDE**2)
    rows = rows - rows.mean(axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6), np.float32)


def compare_pictures(picture: Thumbnails, candidates: Thumbnails) -> Floats:
    """Agreement (P,) of a thumbnail (S,) with P candidates, at most 1.

    NaN if pixels cannot tell: none are stored, or both pictures are blank or blurred and have the same tones.
    """
    agreement = np.zeros(len(candidates), np.float32)
    is_smooth = ~find_structure(candidates) & ~find_structure(picture[None])
    difference = np.abs(candidates.astype(np.int16) - picture).mean(axis=1)
    agreement[(is_smooth & (difference <= SAME_TONE)) | ~candidates.any(axis=1) | (not picture.any())] = np.nan
    rows = np.flatnonzero(~is_smooth & ~np.isnan(agreement))
    if not len(rows):
        return agreement
    warps, rough = np.zeros((len(candidates), 6), np.float32), np.zeros(len(candidates), np.float32)
    warps[rows], rough[rows] = find_warps(picture, candidates[rows])
    rows = np.flatnonzero(rough >= ROUGH)
    for part in np.split(rows, range(TOGETHER, len(rows), TOGETHER)):
        first, second = np.repeat(picture[None].astype(np.float32), len(part), 0), candidates[part].astype(np.float32)
        agreement[part] = measure_agreement(first, second, warps[part])
        unsure = np.flatnonzero((agreement[part] > HOPELESS) & (agreement[part] < CERTAIN))
        if len(unsure):
            first, second = first[unsure], second[unsure]
            agreement[part[unsure]] = measure_agreement(first, second, refine_warps(first, second, warps[part[unsure]]))
    return agreement


def find_warps(picture: Thumbnails, candidates: Thumbnails) -> tuple[Floats, Floats]:
    """The warp (P, 6) that lays a picture best over each of P candidates, and its correlation (P,) at the points."""
    warps, places, center = list_warps()
    patches = blur(picture[None])[0][places]  # (W, G)
    target = blur(candidates)[:, center]
    target -= target.mean(axis=1, keepdims=True)
    noise = GRAIN * len(center)
    target /= np.sqrt((target**2).sum(axis=1, keepdims=True) + noise)
    patches -= patches.mean(axis=1, keepdims=True)
    patches /= np.sqrt(np.einsum("wg,wg->w", patches, patches) + noise)[:, None]
    correlation = patches @ target.T
    best = correlation.argmax(axis=0)
    return warps[best], correlation[best, np.arange(len(candidates))]


@cache
def list_warps() -> tuple[Floats, Ints, Ints]:
    """The warps (W, 6) to try, the pixels (W, G) of the points under each, and those (G,) under none."""
    rows = []
    for scale in SCALES:
        reach = int((abs(1 - scale) + SLACK) / STEP)
        shifts = [(x * STEP, y * STEP) for x in range(-reach, reach + 1) for y in range(-reach, reach + 1)]
        for turn in (0.0, TURN, -TURN) if abs(1 - scale) < 0.1 else (0.0,):
            cos, sin = scale * np.cos(turn), scale * np.sin(turn)
            near = [shift for shift in shifts if not turn or max(map(abs, shift)) <= STEP]
            rows += [(side * cos, -sin, x, side * sin, cos, y) for side in (1, -1) for x, y in near]
    y, x = (axis.ravel() for axis in np.meshgrid(POINTS, POINTS, indexing="ij"))
    warps = np.array([(1, 0, 0, 0, 1, 0), *rows], np.float32)
    across, down = warps[:, :3] @ [x, y, x * 0 + 1], warps[:, 3:] @ [x, y, x * 0 + 1]
    inside = (np.abs(across) < 1).all(axis=1) & (np.abs(down) < 1).all(axis=1)
    places = np.floor((down + 1) * SIDE / 2).astype(np.int64) * SIDE + np.floor((across + 1) * SIDE / 2).astype(
        np.int64
    )
    return warps[inside], places[inside], places[0]


def blur(thumbnails: Thumbnails) -> Floats:
    """Thumbnails (N, S) after a binomial filter of width 3."""
    rows = np.pad(thumbnails.reshape(-1, SIDE, SIDE), ((0, 0), (1, 1), (1, 1)), mode="edge").astype(np.float32)
    rows = rows[:, :-2] + 2 * rows[:, 1:-1] + rows[:, 2:]
    rows = (rows[:, :, :-2] + 2 * rows[:, :, 1:-1] + rows[:, :, 2:]) / np.float32(16)
    return np.asarray(rows.reshape(len(thumbnails), SIDE * SIDE), np.float32)


def sample_pixels(pictures: Floats, warps: Floats) -> tuple[Floats, Floats, Floats, Bools]:
    """Pictures (P, S) under warps (P, 6): values, slopes across and down, and whether a pixel lies inside."""
    across, down = (warps[:, i : i + 1] * X + warps[:, i + 1 : i + 2] * Y + warps[:, i + 2 : i + 3] for i in (0, 3))
    inside = (np.abs(across) <= 1) & (np.abs(down) <= 1)
    u, v = (across + 1) * SIDE / 2 - 0.5, (down + 1) * SIDE / 2 - 0.5
    west, top = (np.clip(np.floor(w), 0, SIDE - 2).astype(np.int64) for w in (u, v))
    u, v = np.clip(u - west, 0, 1), np.clip(v - top, 0, 1)
    corner = top * SIDE + west
    a, b, c, d = (np.take_along_axis(pictures, corner + step, 1) for step in (0, 1, SIDE, SIDE + 1))
    upper, lower = a + (b - a) * u, c + (d - c) * u
    slope_across = ((b - a) * (1 - v) + (d - c) * v) * (SIDE / 2)
    return upper + (lower - upper) * v, slope_across, (lower - upper) * (SIDE / 2), inside


def refine_warps(first: Floats, second: Floats, warps: Floats, rounds: int = 5) -> Floats:
    """Gauss-Newton steps of all six numbers of a warp; pixels that differ much (a watermark) count less."""
    for _ in range(rounds):
        values, across, down, inside = sample_pixels(first, warps)
        a, b, gain = match_contrast(values, second, inside)
        error = b - a
        ones = np.ones_like(X)
        slopes = gain * np.stack([across * X, across * Y, across, down * X, down * Y, down], axis=0)
        columns = np.moveaxis(np.concatenate([slopes, a[None], np.broadcast_to(ones, a.shape)[None]]), 0, 2)
        columns *= inside[:, :, None]
        scale = 3 * np.median(np.abs(error), axis=1, keepdims=True) + 2
        weighed = columns / (1 + (error / scale) ** 2)[:, :, None]
        matrix = np.swapaxes(weighed, 1, 2) @ columns + np.diag([100.0] * 6 + [0.1] * 2)
        step = np.linalg.solve(matrix, np.swapaxes(weighed, 1, 2) @ error[:, :, None])[:, :6, 0]
        warps = (warps + np.clip(step, -0.08, 0.08)).astype(np.float32)
    return warps


def match_contrast(first: Floats, second: Floats, inside: Bools) -> tuple[Floats, Floats, Floats]:
    """Both pictures without their means, zero outside, the first with the contrast of the second; and the gain."""
    count = np.maximum(inside.sum(axis=1, keepdims=True), 1)
    a, b = ((p - (p * inside).sum(axis=1, keepdims=True) / count) * inside for p in (first, second))
    powers = [(p**2).sum(axis=1, keepdims=True) + GRAIN * count for p in (a, b)]
    gain = np.sqrt(powers[1] / powers[0])
    return a * gain, b, gain


def measure_agreement(first: Floats, second: Floats, warps: Floats) -> Floats:
    """Agreement (P,) of stretches along rows and along columns; the lower of both."""
    values, _, _, inside = sample_pixels(first, warps)
    a, b, _ = match_contrast(values, second, inside)
    pictures = [p.reshape(-1, SIDE, SIDE) for p in (a, b, inside.astype(np.float32))]
    return np.minimum(*(_compare_stretches(*(p.swapaxes(1, axis) for p in pictures)) for axis in (1, 2)))


def _compare_stretches(a: Floats, b: Floats, inside: Floats) -> Floats:
    def average(values: Floats) -> npt.NDArray[np.float64]:
        total = np.cumsum(values, axis=2, dtype=np.float64)
        part = total[:, :, STRETCH - 1 :].copy()
        part[:, :, 1:] -= total[:, :, :-STRETCH]
        return part / STRETCH

    mean_a, mean_b = average(a), average(b)
    variances = [np.maximum(average(p * p) - mean**2, 0) for p, mean in ((a, mean_a), (b, mean_b))]
    noise = 9 * GRAIN
    similarity = (2 * (average(a * b) - mean_a * mean_b) + noise) / (variances[0] + variances[1] + noise)
    weight = np.minimum(np.sqrt(np.maximum(*variances)), STROKE) * (average(inside) > 0.99)
    return np.asarray((similarity * weight).sum(axis=(1, 2)) / (weight.sum(axis=(1, 2)) + 1e-6), np.float32)

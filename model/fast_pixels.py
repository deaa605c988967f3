"""Decode and fit images more than twice as fast as model.pixels, with libjpeg-turbo and torch's resize.

Decoder processes use it unless exact pixels are requested. JPEGs larger than twice `OVERSAMPLING` times the target size
are decoded at a half, a quarter or an eighth. The resize kernel has 16-bit weights, Pillow's 22-bit: one value in 250
differs, by one gray level. Pillow decodes all files that are not plain upright JPEGs or that libjpeg-turbo rejects.
"""

import io
import warnings
from typing import Any

import numpy as np
import torch
from PIL import Image

from model.pixels import (
    MAX_INTERMEDIATE,
    DecodeLimits,
    Pixels,
    PixelSpec,
    Size,
    center_offset,
    compute_resized_size,
    crop_or_pad,
    decode_image,
    fit_image,
    read_orientation,
)

try:
    from simplejpeg import decode_jpeg, decode_jpeg_header
except ImportError:  # some systems have no wheel: there Pillow decodes everything, to the same pixels
    decode_jpeg = None

# Measured with a real model (tests/bench/pixels.py): from this factor on, the cosine to the exact embedding is above
# 0.999. At 1.5 times the target size, where most thumbnailers stop, it falls to 0.997.
OVERSAMPLING = 3
SCALES = (8, 4, 2)
PLAIN_COLORS = ("Gray", "RGB", "YCbCr")
START_OF_SCAN = 0xDA
PLAIN_MARKERS = {0xC0, 0xC1, 0xC2, 0xC4, 0xDB, 0xDD, 0xFE, START_OF_SCAN, *range(0xE0, 0xF0)}  # with a length
KERNELS: dict[str, Any] = {
    "bicubic": torch.ops.aten._upsample_bicubic2d_aa.default,
    "bilinear": torch.ops.aten._upsample_bilinear2d_aa.default,
}


def decode_and_fit(data: bytes, spec: PixelSpec, limits: DecodeLimits) -> tuple[Pixels, Size]:
    """The fitted pixels (H, W, 3) of an image file, and its (width, height) as displayed before fitting."""
    decoded = decode_plain_jpeg(data, spec, limits)
    if decoded is None:
        image = decode_image(data, limits)
        decoded = np.asarray(image), image.size
    pixels, size = decoded
    return fit_pixels(spec, pixels, compute_resized_size(spec, size)), size


def decode_plain_jpeg(data: bytes, spec: PixelSpec, limits: DecodeLimits) -> tuple[Pixels, Size] | None:
    """Pixels and full (width, height) of an upright gray or RGB JPEG, or None for any other file."""
    if decode_jpeg is None or data[:2] != b"\xff\xd8" or len(data) > limits.max_bytes:
        return None
    try:
        height, width, colors, _ = decode_jpeg_header(data)
        is_rotated = may_be_rotated(data) and read_jpeg_orientation(data) != 1
        if is_rotated or colors not in PLAIN_COLORS or width * height > limits.max_pixels:
            return None
        scale = choose_reduction(spec, (width, height))
        # Rounded up like in libjpeg: this is the smallest acceptable size.
        return decode_jpeg(data, min_height=-(-height // scale), min_width=-(-width // scale)), (width, height)
    except Exception:  # Pillow decides whether the file is corrupt, and reports why
        return None


def may_be_rotated(data: bytes) -> bool:
    """Whether a JPEG has EXIF before its pixels, or anything unusual that only Pillow should read.

    It follows the segments as Pillow does, at a tenth of its cost.
    """
    position = 2
    while len(start := data[position : position + 8]) == 8 and start[0] == 0xFF and start[1] in PLAIN_MARKERS:
        if start[1] == START_OF_SCAN:
            return False
        if start[4:] == b"Exif":
            return True
        position += 2 + int.from_bytes(start[2:4], "big")
    return True


def read_jpeg_orientation(data: bytes) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Image.open(io.BytesIO(data), formats=("JPEG",)) as header:
            return read_orientation(header)


def choose_reduction(spec: PixelSpec, size: Size) -> int:
    """The divisor at which a JPEG of (width, height) `size` may be decoded: 1, 2, 4 or 8."""
    target = compute_resized_size(spec, size)
    ratio = min(size[0] / target[0], size[1] / target[1])
    return next((scale for scale in SCALES if ratio / scale >= OVERSAMPLING), 1)


def fit_pixels(spec: PixelSpec, pixels: Pixels, target: Size) -> Pixels:
    """`model.pixels.fit_image` with torch's kernel, which resizes to (width, height) `target`: uint8 (H, W, 3)."""
    height, width = pixels.shape[:2]
    if target == (width, height) or target[0] * target[1] > MAX_INTERMEDIATE or min(width, height) < 2:
        return fit_image(spec, Image.fromarray(pixels))
    # torch warns of read-only arrays, even though it does not write here.
    source = torch.from_numpy(pixels if pixels.flags.writeable else pixels.copy())
    kernel = KERNELS[spec.kernel]
    y, x = center_offset(target[1], spec.size[0]), center_offset(target[0], spec.size[1])
    is_cropped = y >= 0 and x >= 0  # then what is to the right of the center and below it is not computed
    size = [y + spec.size[0], x + spec.size[1]] if is_cropped else [target[1], target[0]]
    try:
        # (1, 3, H, W) with the channels last in memory: the kernel is slower if it has to convert to planes.
        scales = target[1] / height, target[0] / width
        resized = kernel(source[None].permute(0, 3, 1, 2), size, False, *scales).permute(0, 2, 3, 1)[0].numpy()
    except RuntimeError as error:  # torch raises no other type for a failed allocation
        raise MemoryError(str(error)) from error
    if is_cropped:
        return np.ascontiguousarray(resized[y:, x:])
    return np.asarray(crop_or_pad(Image.fromarray(resized), spec.size, spec.padding))

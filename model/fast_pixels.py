"""The pixels of model.pixels at more than twice the rate: libjpeg-turbo without Pillow around it, and torch's resize.

Decoder processes use it unless exact pixels are asked for. A JPEG decodes to the same bytes as in Pillow; one of more
than twice `OVERSAMPLING` times the wanted size is decoded at a half, a quarter or an eighth. The resize kernel is
Pillow's in 16-bit instead of 22-bit weights: one value in 250 differs, by one grey level. Everything that is not a
plain upright JPEG, and every JPEG that libjpeg-turbo complains of, is decoded by Pillow: its verdict counts.
"""

import io
import warnings
from typing import Any

import numpy as np
import torch
from PIL import Image

from model.pixels import (
    MAX_INTERMEDIATE,
    DecodeError,
    Limits,
    Pixels,
    PixelSpec,
    centre,
    check_size,
    decode_image,
    fit_to,
    middle,
    orientation,
    resized_size,
)

try:
    from simplejpeg import decode_jpeg
except ImportError:  # no wheel on some systems: Pillow decodes all, to the same pixels
    decode_jpeg = None

# Measured with a real model (tests/bench/pixels.py): from here on the cosine to the exact embedding stays above 0.999;
# at 1.5 times the wanted size, where most thumbnailers stop, it falls to 0.997.
OVERSAMPLING = 3
SCALES = (8, 4, 2)
KERNELS: dict[str, Any] = {
    "bicubic": torch.ops.aten._upsample_bicubic2d_aa.default,
    "bilinear": torch.ops.aten._upsample_bilinear2d_aa.default,
}


def decode_and_fit(data: bytes, spec: PixelSpec, limits: Limits) -> tuple[Pixels, tuple[int, int]]:
    """The fitted pixels (H, W, 3) of a file, and (width, height) as displayed before fitting."""
    decoded = plain_jpeg(data, spec, limits)
    if decoded is None:
        image = decode_image(data, limits)
        decoded = np.asarray(image), image.size
    pixels, size = decoded
    return fit(spec, pixels, resized_size(spec, size)), size


def plain_jpeg(data: bytes, spec: PixelSpec, limits: Limits) -> tuple[Pixels, tuple[int, int]] | None:
    """Pixels and true size of an upright JPEG in grey or colour; None for whatever else it is."""
    if decode_jpeg is None or data[:2] != b"\xff\xd8" or len(data) > limits.max_bytes:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=("JPEG",)) as header:
                check_size(header.size, limits)
                if header.mode not in ("L", "RGB") or orientation(header) != 1:
                    return None
                width, height = header.size
        scale = reduction(spec, (width, height))
        # ceil: libjpeg rounds up, and this is the least size that is asked for
        return decode_jpeg(data, min_height=-(-height // scale), min_width=-(-width // scale)), (width, height)
    except DecodeError:
        raise
    except Exception:  # Pillow says what is wrong with it, if anything
        return None


def reduction(spec: PixelSpec, size: tuple[int, int]) -> int:
    """By how much a JPEG of (width, height) `size` may be decoded smaller: 1, 2, 4 or 8."""
    wanted = resized_size(spec, size)
    room = min(size[0] / wanted[0], size[1] / wanted[1])
    return next((scale for scale in SCALES if room / scale >= OVERSAMPLING), 1)


def fit(spec: PixelSpec, pixels: Pixels, wanted: tuple[int, int]) -> Pixels:
    """`model.pixels.fit_to` with torch's kernel, by way of (width, height) `wanted`: uint8 (H, W, 3)."""
    height, width = pixels.shape[:2]
    if wanted == (width, height) or wanted[0] * wanted[1] > MAX_INTERMEDIATE or min(width, height) < 2:
        return fit_to(spec, Image.fromarray(pixels))
    # A read-only array is not written to; torch would warn of it.
    source = torch.from_numpy(pixels if pixels.flags.writeable else pixels.copy())
    kernel = KERNELS[spec.kernel]
    try:
        # (1, 3, H, W) with the channels last in memory: else the kernel makes planes of it, and is slower
        resized = kernel(source[None].permute(0, 3, 1, 2), [wanted[1], wanted[0]], False, None, None)
    except RuntimeError as error:  # torch has no other name for a failed allocation
        raise MemoryError(str(error)) from error
    return cut(spec, resized.permute(0, 2, 3, 1)[0].numpy())


def cut(spec: PixelSpec, resized: Pixels) -> Pixels:
    """The centre of the wanted size."""
    height, width = spec.size
    down, across = middle(resized.shape[0], height), middle(resized.shape[1], width)
    if down < 0 or across < 0:
        return np.asarray(
            centre(Image.fromarray(resized), spec.size, spec.fill if spec.resize_mode == "longest" else 0)
        )
    return np.ascontiguousarray(resized[down : down + height, across : across + width])

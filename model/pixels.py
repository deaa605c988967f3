"""Bytes of an image to the pixels an encoder wants, without torch: decode as a browser shows it, resize, crop.

`decode_image` is for untrusted bytes (run it in a process that can be killed: auditor.workers.decoder_pool). `fit_to`
gives, byte for byte, what open_clip's own evaluation transform has before it turns the image into a tensor. Colour
profiles are not applied: CLIP models are trained on pixels as they are stored.
"""

import io
import struct
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
from PIL import (  # noqa: F401
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    UnidentifiedImageError,
    WebPImagePlugin,
)

from model.model_errors import ModelError

Pixels = npt.NDArray[np.uint8]
Interpolation = Literal["bicubic", "bilinear"]
ResizeMode = Literal["shortest", "longest", "squash"]
Triple = tuple[float, float, float]

CLIP_MEAN: Triple = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD: Triple = (0.26862954, 0.26130258, 0.27577711)
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
FILTERS = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}
MAX_INTERMEDIATE = 1 << 25  # pixels between resize and crop: only slivers beyond 1 : 600 have more at 224
ORIENTATION = 0x0112  # EXIF and TIFF alike
TRANSPOSITIONS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class DecodeError(ModelError):
    """A medium that gives no pixels; `status` is the status of its rows."""

    def __init__(self, status: Literal["corrupt", "too_large"], message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Limits:
    """What one file may cost. `seconds` and `memory` are held by the process that decodes (auditor.workers.decoder_pool)."""

    max_pixels: int = 150_000_000  # of one image, or of one frame
    max_bytes: int = 1 << 30  # of the file
    seconds: float = 60.0
    memory: int = 3 << 30  # bytes on top of what an idle decoder has


@dataclass(frozen=True, slots=True)
class PixelSpec:
    """The pixels an encoder wants: open_clip's preprocessing without its tensors."""

    size: tuple[int, int] = (224, 224)  # height, width
    mean: Triple = CLIP_MEAN
    std: Triple = CLIP_STD
    interpolation: Interpolation = "bicubic"
    resize_mode: ResizeMode = "shortest"
    fill: int = 0

    def __post_init__(self) -> None:
        if self.resize_mode not in ("shortest", "longest", "squash"):
            raise ModelError(f"unknown resize mode {self.resize_mode!r}; it is one of shortest, longest, squash")
        if self.interpolation not in FILTERS:
            raise ModelError(f"unknown interpolation {self.interpolation!r}; it is one of bicubic, bilinear")
        if len(self.size) != 2 or min(self.size) < 1:
            raise ModelError(f"a size is (height, width), not {self.size!r}")

    @property
    def kernel(self) -> Interpolation:
        """open_clip ignores the interpolation where it crops to a size that is not square."""
        square = self.size[0] == self.size[1]
        return self.interpolation if square or self.resize_mode != "shortest" else "bicubic"

    @classmethod
    def from_open_clip(cls, config: Mapping[str, Any]) -> "PixelSpec":
        """From open_clip's preprocess dict (`model.visual.preprocess_cfg`); missing keys take open_clip's defaults."""
        # Only bilinear is not bicubic there: "random" is for training and falls back to bicubic.
        interpolation = "bilinear" if config.get("interpolation") == "bilinear" else "bicubic"
        return cls(
            size=pair(config.get("size") or 224),
            mean=triple(config.get("mean") or CLIP_MEAN),
            std=triple(config.get("std") or CLIP_STD),
            interpolation=cast(Interpolation, interpolation),
            resize_mode=config.get("resize_mode") or "shortest",
            fill=int(config.get("fill_color") or 0),
        )

    def to_dict(self) -> dict[str, Any]:
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> "PixelSpec":
        unknown = set(config) - set(cls.__slots__)
        if unknown:
            raise ModelError(f"unknown keys in the pixel settings: {', '.join(sorted(unknown))}")
        values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in config.items()}
        return cls(**values)


def pair(size: int | list[int] | tuple[int, ...]) -> tuple[int, int]:
    """open_clip writes a size as 224, [224] or [224, 288]."""
    if isinstance(size, int):
        return size, size
    return int(size[0]), int(size[-1])


def triple(values: float | list[float] | tuple[float, ...]) -> Triple:
    """One number for all channels, or one for each."""
    red, green, blue = (values,) * 3 if isinstance(values, int | float) else values
    return float(red), float(green), float(blue)


# ---------------------------------------------------------------------------------------------------- resize and crop


def fit_to(spec: PixelSpec, image: Image.Image) -> Pixels:
    """Resize, crop and pad an RGB image to `spec.size`: uint8 (H, W, 3), equal to open_clip's transform."""
    resized = resized_size(spec, image.size)
    if spec.resize_mode == "longest":
        fitted = centre(resize(image, resized, spec.kernel), spec.size, spec.fill)
    else:
        fitted = cover(image, resized, spec.size, spec.kernel)
    return np.asarray(fitted, dtype=np.uint8)


def resized_size(spec: PixelSpec, size: tuple[int, int]) -> tuple[int, int]:
    """(width, height) that an image of (width, height) `size` is resized to, before it is cut or padded."""
    height, width = spec.size
    if spec.resize_mode == "squash":
        return width, height
    if spec.resize_mode == "longest":
        return by_ratio(size, spec.size, max)
    return by_short_edge(size, height) if height == width else by_ratio(size, spec.size, min)


def by_short_edge(size: tuple[int, int], edge: int) -> tuple[int, int]:
    """(width, height) with the short edge at `edge`; torchvision rounds the long edge down."""
    short, long = sorted(size)
    long_edge = int(edge * long / short)
    return (edge, long_edge) if size[0] <= size[1] else (long_edge, edge)


def by_ratio(size: tuple[int, int], wanted: tuple[int, int], choose: Any) -> tuple[int, int]:
    """(width, height) shrunk by the larger (`max`) or smaller (`min`) of the two ratios to (height, width) `wanted`."""
    ratio = choose(size[1] / wanted[0], size[0] / wanted[1])
    # A sliver would round to nothing, where open_clip fails; an audit shows it as one line of pixels.
    return max(1, round(size[0] / ratio)), max(1, round(size[1] / ratio))


def resize(image: Image.Image, size: tuple[int, int], interpolation: Interpolation) -> Image.Image:
    return image if image.size == size else image.resize(size, FILTERS[interpolation])


def cover(
    image: Image.Image, resized: tuple[int, int], size: tuple[int, int], interpolation: Interpolation
) -> Image.Image:
    """Resize to (width, height) `resized`, then cut the centre of (height, width) `size`."""
    height, width = size
    if resized[0] * resized[1] <= MAX_INTERMEDIATE:
        return centre(resize(image, resized, interpolation), size, fill=0)
    # A sliver of 1 x 50,000 pixels would grow to 224 x 11,200,000 before the cut: resize only what is kept.
    left, top = max(0, middle(resized[0], width)), max(0, middle(resized[1], height))
    right, bottom = min(resized[0], left + width), min(resized[1], top + height)
    across, down = image.width / resized[0], image.height / resized[1]
    box = (left * across, top * down, right * across, bottom * down)
    return centre(image.resize((right - left, bottom - top), FILTERS[interpolation], box), size, fill=0)


def middle(length: int, wanted: int) -> int:
    return round((length - wanted) / 2.0)


def centre(image: Image.Image, size: tuple[int, int], fill: int) -> Image.Image:
    """The centre of (height, width) `size`; what is missing is padded with `fill` (the odd pixel last)."""
    height, width = size
    if image.size == (width, height):
        return image
    if width > image.width or height > image.height:
        canvas = Image.new("RGB", (max(width, image.width), max(height, image.height)), (fill, fill, fill))
        canvas.paste(image, (max(0, width - image.width) // 2, max(0, height - image.height) // 2))
        image = canvas
    left, top = middle(image.width, width), middle(image.height, height)
    return image.crop((left, top, left + width, top + height))


# ------------------------------------------------------------------------------------------------------------ decode


def decode_image(data: bytes, limits: Limits = Limits()) -> Image.Image:  # noqa: B008 (frozen)
    """The image as a browser shows it, in RGB: first frame, upright, transparency on white, 16 bits scaled to 8."""
    if not data:
        raise DecodeError("corrupt", "the file is empty")
    if len(data) > limits.max_bytes:
        raise DecodeError("too_large", f"{len(data):,} bytes, above the limit of {limits.max_bytes:,}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of odd metadata; a browser shows such files
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:
                check_size(image.size, limits)
                image.load()
                return upright(flatten(image), image)
    except DecodeError:
        raise
    except Image.DecompressionBombError as error:
        raise DecodeError("too_large", str(error)) from error
    except MemoryError as error:
        raise DecodeError("too_large", "the image does not fit in memory") from error
    except UnidentifiedImageError as error:
        raise DecodeError("corrupt", "the content is of no known format") from error
    except Exception as error:  # damaged files make Pillow raise nearly anything: SyntaxError, KeyError, struct.error
        raise DecodeError("corrupt", f"{type(error).__name__}: {error}") from error


def decode_and_fit(data: bytes, spec: PixelSpec, limits: Limits) -> tuple[Pixels, tuple[int, int]]:
    """The fitted pixels (H, W, 3) of a file, and (width, height) as displayed before fitting."""
    image = decode_image(data, limits)
    return fit_to(spec, image), image.size


def check_size(size: tuple[int, int], limits: Limits) -> None:
    width, height = size
    if width < 1 or height < 1:
        raise DecodeError("corrupt", f"an image of {width} x {height} pixels")
    if width * height > limits.max_pixels:
        raise DecodeError("too_large", f"{width} x {height} pixels, above the limit of {limits.max_pixels:,}")


def upright(shown: Image.Image, source: Image.Image) -> Image.Image:
    """Turn `shown` as the EXIF of its source says (Pillow turns TIFF on its own)."""
    turn = TRANSPOSITIONS.get(orientation(source))
    return shown if turn is None else shown.transpose(turn)


def orientation(source: Image.Image) -> int:
    """1 to 8 as EXIF counts them; 1, upright, where it says nothing or is damaged."""
    block = source.info.get("exif")
    if not block or source.format == "TIFF":
        return 1
    exif = Image.Exif()
    try:
        exif.load(block)
        turn = exif.get(ORIENTATION, 1)
        return turn if turn in TRANSPOSITIONS else 1
    except (OSError, SyntaxError, ValueError, KeyError, TypeError, struct.error):
        return 1


def flatten(image: Image.Image) -> Image.Image:
    """Any mode to RGB, with whatever is transparent laid on white."""
    if image.mode == "RGB" and "transparency" not in image.info:
        return image.copy()  # its own pixels: the source is closed behind us
    if image.mode.startswith(("I", "F")):
        return deep_grey(image)
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        layer = image.convert("RGBA")
        white = Image.new("RGB", image.size, (255, 255, 255))
        white.paste(layer, mask=layer.getchannel("A"))
        return white
    return image.convert("RGB")


def deep_grey(image: Image.Image) -> Image.Image:
    """16-bit, 32-bit and float grey to 8 bits by the range of its type, where Pillow's own conversion would clip."""
    values = np.asarray(image).astype(np.float32)
    values = values / white_level(image, values) * 255.0
    if image.format == "TIFF" and image.getexif().get(262) == 0:  # white is zero
        values = 255.0 - values
    key = image.info.get("transparency")
    if isinstance(key, int):
        values[np.asarray(image) == key] = 255.0
    return Image.fromarray(np.rint(np.clip(np.nan_to_num(values), 0.0, 255.0)).astype(np.uint8)).convert("RGB")


def white_level(image: Image.Image, values: npt.NDArray[np.float32]) -> float:
    """The value that is shown as white."""
    if image.mode.startswith("I;16"):
        bits = image.getexif().get(258, 16) if image.format == "TIFF" else 16
        return float((1 << int(bits[0] if isinstance(bits, tuple) else bits)) - 1)
    # 32 bits and floats say nothing of their range: the smallest usual one that holds the values.
    top = float(np.nanmax(values, initial=0.0))
    return next((level for level in (1.0, 255.0, 65535.0) if top <= level), top)

"""Decode images to the pixels that an encoder needs, without torch: decode as a browser shows them, resize, crop.

`decode_image` is for untrusted bytes: run it in a process that can be killed (auditor.workers.decoder_pool).
`fit_image` gives the same bytes as open_clip's evaluation transform before its conversion to a tensor. Color profiles
are not applied, because CLIP models are trained on pixels as they are stored.
"""

import io
import struct
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast, get_args

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
Size = tuple[int, int]

CLIP_MEAN: Triple = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD: Triple = (0.26862954, 0.26130258, 0.27577711)
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
FILTERS = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}
MAX_SIDE = 8192  # of an encoder's input
MAX_INTERMEDIATE = 1 << 25  # pixels between resize and crop: only aspect ratios beyond 1 : 600 have more at 224
ORIENTATION = 0x0112  # tag of EXIF and of TIFF
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
    """A medium that cannot be decoded. `status` becomes the status of its rows."""

    def __init__(self, status: Literal["corrupt", "too_large"], message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class DecodeLimits:
    """Limits for one file. The decoder process (auditor.workers.decoder_pool) enforces `seconds` and `memory`."""

    max_pixels: int = 150_000_000  # of one image or frame
    max_bytes: int = 1 << 30  # of the file
    seconds: float = 60.0
    memory: int = 3 << 30  # bytes in addition to those of an idle decoder


DEFAULT_LIMITS = DecodeLimits()


@dataclass(frozen=True, slots=True)
class PixelSpec:
    """The pixels that an encoder needs: open_clip's preprocessing settings."""

    size: Size = (224, 224)  # height, width
    mean: Triple = CLIP_MEAN
    std: Triple = CLIP_STD
    interpolation: Interpolation = "bicubic"
    resize_mode: ResizeMode = "shortest"
    fill: int = 0

    def __post_init__(self) -> None:
        if self.resize_mode not in get_args(ResizeMode):
            raise ModelError(f"unknown resize mode {self.resize_mode!r}; it is one of shortest, longest, squash")
        if self.interpolation not in FILTERS:
            raise ModelError(f"unknown interpolation {self.interpolation!r}; it is one of bicubic, bilinear")
        if len(self.size) != 2 or min(self.size) < 1 or max(self.size) > MAX_SIDE:
            raise ModelError(f"a size is (height, width) up to {MAX_SIDE}, not {self.size!r}")
        if not all(0.0 < value < float("inf") for value in self.std):
            raise ModelError(f"std has to be positive, not {self.std!r}")

    @property
    def kernel(self) -> Interpolation:
        """The interpolation that open_clip uses: always bicubic if it crops to a size that is not square."""
        square = self.size[0] == self.size[1]
        return self.interpolation if square or self.resize_mode != "shortest" else "bicubic"

    @property
    def padding(self) -> int:
        """The gray level around an image that is smaller than the size."""
        return self.fill if self.resize_mode == "longest" else 0

    @classmethod
    def from_open_clip(cls, config: Mapping[str, Any]) -> "PixelSpec":
        """Convert open_clip's preprocessing dict (`model.visual.preprocess_cfg`), with open_clip's defaults."""
        # "random" is for training; open_clip evaluates it as bicubic.
        interpolation = "bilinear" if config.get("interpolation") == "bilinear" else "bicubic"
        return cls(
            size=parse_size(config.get("size") or 224),
            mean=parse_channels(config.get("mean") or CLIP_MEAN),
            std=parse_channels(config.get("std") or CLIP_STD),
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


def parse_size(size: int | list[int] | tuple[int, ...]) -> Size:
    """(height, width) of a size that open_clip writes as 224, [224] or [224, 288]."""
    if isinstance(size, int):
        return size, size
    return int(size[0]), int(size[-1])


def parse_channels(values: float | list[float] | tuple[float, ...]) -> Triple:
    """Red, green and blue from one number for all channels or one number for each."""
    red, green, blue = (values,) * 3 if isinstance(values, int | float) else values
    return float(red), float(green), float(blue)


def fit_image(spec: PixelSpec, image: Image.Image) -> Pixels:
    """Resize, crop and pad an RGB image to `spec.size`: uint8 (H, W, 3), equal to open_clip's transform."""
    (width, height), kernel = compute_resized_size(spec, image.size), FILTERS[spec.kernel]
    if width * height > MAX_INTERMEDIATE:
        fitted = resize_crop_only(image, (width, height), spec.size, kernel)
    else:
        fitted = image if image.size == (width, height) else image.resize((width, height), kernel)
    return np.asarray(crop_or_pad(fitted, spec.size, spec.padding), dtype=np.uint8)


def compute_resized_size(spec: PixelSpec, size: Size) -> Size:
    """(width, height) to which an image of (width, height) `size` is resized before it is cropped or padded."""
    height, width = spec.size
    if spec.resize_mode == "squash":
        return width, height
    if spec.resize_mode == "longest":
        return scale_by_ratio(size, spec.size, max)
    return scale_short_edge(size, height) if height == width else scale_by_ratio(size, spec.size, min)


def scale_short_edge(size: Size, edge: int) -> Size:
    """(width, height) scaled to a short edge of `edge`. Like torchvision, this rounds the long edge down."""
    short, long = sorted(size)
    long_edge = int(edge * long / short)
    return (edge, long_edge) if size[0] <= size[1] else (long_edge, edge)


def scale_by_ratio(size: Size, target: Size, choose: Any) -> Size:
    """(width, height) divided by the larger (`max`) or smaller (`min`) ratio to (height, width) `target`."""
    ratio = choose(size[1] / target[0], size[0] / target[1])
    # open_clip fails if an edge rounds to zero; an audit keeps one line of pixels.
    return max(1, round(size[0] / ratio)), max(1, round(size[1] / ratio))


def resize_crop_only(image: Image.Image, resized: Size, size: Size, kernel: Image.Resampling) -> Image.Image:
    """The center of (height, width) `size`, as if the image were resized to (width, height) `resized` first.

    An image of 1 x 50,000 pixels would grow to 224 x 11,200,000 before the crop.
    """
    height, width = size
    x0, y0 = max(0, center_offset(resized[0], width)), max(0, center_offset(resized[1], height))
    x1, y1 = min(resized[0], x0 + width), min(resized[1], y0 + height)
    x_scale, y_scale = image.width / resized[0], image.height / resized[1]
    box = (x0 * x_scale, y0 * y_scale, x1 * x_scale, y1 * y_scale)
    return image.resize((x1 - x0, y1 - y0), kernel, box)


def center_offset(length: int, target: int) -> int:
    return round((length - target) / 2.0)


def crop_or_pad(image: Image.Image, size: Size, fill: int) -> Image.Image:
    """The center of (height, width) `size`, padded with `fill` if the image is smaller (the odd pixel last)."""
    height, width = size
    if image.size == (width, height):
        return image
    if width > image.width or height > image.height:
        canvas = Image.new("RGB", (max(width, image.width), max(height, image.height)), (fill, fill, fill))
        canvas.paste(image, (max(0, width - image.width) // 2, max(0, height - image.height) // 2))
        image = canvas
    x, y = center_offset(image.width, width), center_offset(image.height, height)
    return image.crop((x, y, x + width, y + height))


def decode_image(data: bytes, limits: DecodeLimits = DEFAULT_LIMITS) -> Image.Image:
    """Decode to RGB as a browser shows it: first frame, upright, transparency on white, 16 bits scaled to 8."""
    if not data:
        raise DecodeError("corrupt", "the file is empty")
    if len(data) > limits.max_bytes:
        raise DecodeError("too_large", f"{len(data):,} bytes, above the limit of {limits.max_bytes:,}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of odd metadata, but browsers show such files
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:
                check_pixel_count(image.size, limits)
                image.load()
                transposition, upright = TRANSPOSITIONS.get(read_orientation(image)), convert_to_rgb(image)
                return upright if transposition is None else upright.transpose(transposition)
    except DecodeError:
        raise
    except Image.DecompressionBombError as error:
        raise DecodeError("too_large", str(error)) from error
    except MemoryError as error:
        raise DecodeError("too_large", "the image does not fit in memory") from error
    except UnidentifiedImageError as error:
        raise DecodeError("corrupt", "the content is of no known format") from error
    except Exception as error:  # damaged files make Pillow raise SyntaxError, KeyError, struct.error and more
        raise DecodeError("corrupt", f"{type(error).__name__}: {error}") from error


def decode_and_fit(data: bytes, spec: PixelSpec, limits: DecodeLimits) -> tuple[Pixels, Size]:
    """The fitted pixels (H, W, 3) of an image file, and its (width, height) as displayed before fitting."""
    image = decode_image(data, limits)
    return fit_image(spec, image), image.size


def check_pixel_count(size: Size, limits: DecodeLimits) -> None:
    width, height = size
    if width < 1 or height < 1:
        raise DecodeError("corrupt", f"an image of {width} x {height} pixels")
    if width * height > limits.max_pixels:
        raise DecodeError("too_large", f"{width} x {height} pixels, above the limit of {limits.max_pixels:,}")


def read_orientation(source: Image.Image) -> int:
    """The EXIF orientation, 1 to 8; 1 (upright) if it is missing or damaged. Pillow rotates TIFF itself."""
    block = source.info.get("exif")
    if not block or source.format == "TIFF":
        return 1
    exif = Image.Exif()
    try:
        exif.load(block)
        number = exif.get(ORIENTATION, 1)
        return number if number in TRANSPOSITIONS else 1
    except (OSError, SyntaxError, ValueError, KeyError, TypeError, struct.error):
        return 1


def convert_to_rgb(image: Image.Image) -> Image.Image:
    """Convert any mode to RGB, with transparent parts on white."""
    if image.mode == "RGB" and "transparency" not in image.info:
        return image.copy()  # the caller closes the source
    if image.mode.startswith(("I", "F")):
        return convert_deep_gray(image)
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        layer = image.convert("RGBA")
        white = Image.new("RGB", image.size, (255, 255, 255))
        white.paste(layer, mask=layer.getchannel("A"))
        return white
    return image.convert("RGB")


def convert_deep_gray(image: Image.Image) -> Image.Image:
    """Scale 16-bit, 32-bit and float gray to 8 bits by the range of its type. Pillow's own conversion would clip."""
    values = np.asarray(image).astype(np.float32)
    values = values / find_white_level(image, values) * 255.0
    if image.format == "TIFF" and image.getexif().get(262) == 0:  # white is zero
        values = 255.0 - values
    key = image.info.get("transparency")
    if isinstance(key, int):
        values[np.asarray(image) == key] = 255.0
    return Image.fromarray(np.rint(np.clip(np.nan_to_num(values), 0.0, 255.0)).astype(np.uint8)).convert("RGB")


def find_white_level(image: Image.Image, values: npt.NDArray[np.float32]) -> float:
    if image.mode.startswith("I;16"):
        bits = image.getexif().get(258, 16) if image.format == "TIFF" else 16
        return float((1 << int(bits[0] if isinstance(bits, tuple) else bits)) - 1)
    # 32-bit integers and floats do not state their range: take the smallest common one that holds the values.
    top = float(np.nanmax(values, initial=0.0))
    return next((level for level in (1.0, 255.0, 65535.0) if top <= level), top)

"""The planted defects: what each is, what an audit should say of it, and the damage done to media."""

import io
import random
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFilter


@dataclass(frozen=True, slots=True)
class Defect:
    """`found` is the SQL condition under which an audit has found it; `share` how much of the corpus gets it."""

    share: float
    applies: tuple[str, ...]  # kinds of media
    found: str
    words: str


DEFECTS = {
    "swapped": Defect(0.08, ("image", "video"), "mismatch", "the caption of another sample"),
    "vague": Defect(0.03, ("image", "video"), "ambiguous_text", "a caption that fits everything"),
    "blurred": Defect(0.015, ("image",), "sharpness < 0.15", "blurred beyond recognition"),
    "occluded": Defect(0.015, ("image",), "entropy < 3", "mostly covered"),
    "near_blank": Defect(0.01, ("image",), "contrast < 0.02", "almost nothing to see"),
    "multi_scene": Defect(0.08, ("video",), "cuts > 0", "three scenes cut together"),
    "undecodable": Defect(0.008, ("image", "video"), "status = 'corrupt'", "not a picture or video at all"),
    "truncated": Defect(0.008, ("image", "video"), "status = 'corrupt'", "cut off in the middle of the file"),
    "missing_caption": Defect(0.008, ("image", "video"), "status = 'missing_caption'", "no caption"),
    "missing_media": Defect(0.006, ("image",), "status = 'missing_media'", "no picture"),
    "duplicate_key": Defect(0.006, ("image",), "status = 'duplicate_key'", "a key used twice in its shard"),
    "duplicate_media": Defect(0.012, ("image",), "duplicate_of IS NOT NULL", "the same file under another key"),
}

COVER = (58, 44, 40)
NOT_FOUND = b"<!DOCTYPE html><html><head><title>404 Not Found</title></head><body>Not Found</body></html>\n"


def blurred(picture: Image.Image) -> Image.Image:
    return picture.filter(ImageFilter.GaussianBlur(picture.width / 5))


def occluded(picture: Image.Image, rng: random.Random) -> Image.Image:
    """A hand before the lens: one dark soft shape over nearly everything."""
    side = picture.width
    mask = Image.new("L", picture.size, 0)
    x, y = rng.uniform(0.4, 0.6) * side, rng.uniform(0.5, 0.6) * side
    ImageDraw.Draw(mask).ellipse((x - 0.62 * side, y - 0.56 * side, x + 0.62 * side, y + 0.7 * side), fill=255)
    mask = mask.filter(ImageFilter.GaussianBlur(side / 40))
    return Image.composite(Image.new("RGB", picture.size, COVER), picture, mask)


def near_blank(picture: Image.Image, rng: random.Random) -> Image.Image:
    """An overexposed frame: two hundredths of the picture are left."""
    white = Image.new("RGB", picture.size, (rng.randint(238, 250),) * 3)
    return Image.blend(white, picture, 0.02)


def undecodable(rng: random.Random) -> bytes:
    """What crawlers save in place of a picture: an error page, noise, or nothing."""
    return rng.choice((NOT_FOUND, np.random.default_rng(rng.randrange(2**32)).bytes(3000), b""))


def truncated(data: bytes, rng: random.Random) -> bytes:
    return data[: int(len(data) * rng.uniform(0.25, 0.6))]


def damaged(picture: Image.Image, defect: str | None, rng: random.Random) -> Image.Image:
    """The picture with a visible defect; unchanged where the defect is not one of the picture."""
    if defect == "blurred":
        return blurred(picture)
    if defect == "occluded":
        return occluded(picture, rng)
    if defect == "near_blank":
        return near_blank(picture, rng)
    return picture


def encode_image(picture: Image.Image, extension: str) -> bytes:
    buffer = io.BytesIO()
    options = {"jpg": {"quality": 88}, "webp": {"quality": 85}, "png": {}}[extension]
    picture.save(buffer, {"jpg": "JPEG", "webp": "WEBP", "png": "PNG"}[extension], **options)
    return buffer.getvalue()

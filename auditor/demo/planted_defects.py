"""The planted defects: their meaning, the sign that an audit should show, and the damage to the media."""

import io
import random
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFilter


@dataclass(frozen=True, slots=True)
class Defect:
    """A kind of defect. `sign` is the SQL condition on the audit's rows that detects it."""

    share: float  # of the corpus
    applies: tuple[str, ...]  # kinds of media
    sign: str
    meaning: str


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


def blur_picture(picture: Image.Image) -> Image.Image:
    return picture.filter(ImageFilter.GaussianBlur(picture.width / 5))


def occlude_picture(picture: Image.Image, rng: random.Random) -> Image.Image:
    """Cover most of the picture with a dark soft shape, like a hand in front of the lens."""
    side = picture.width
    mask = Image.new("L", picture.size, 0)
    x, y = rng.uniform(0.4, 0.6) * side, rng.uniform(0.5, 0.6) * side
    ImageDraw.Draw(mask).ellipse((x - 0.62 * side, y - 0.56 * side, x + 0.62 * side, y + 0.7 * side), fill=255)
    mask = mask.filter(ImageFilter.GaussianBlur(side / 40))
    return Image.composite(Image.new("RGB", picture.size, COVER), picture, mask)


def overexpose_picture(picture: Image.Image, rng: random.Random) -> Image.Image:
    """Overexpose the picture: two percent of it remain visible."""
    white = Image.new("RGB", picture.size, (rng.randint(238, 250),) * 3)
    return Image.blend(white, picture, 0.02)


def make_undecodable_file(rng: random.Random) -> bytes:
    """A file that crawlers save instead of a picture: an error page, noise, or an empty file."""
    return rng.choice((NOT_FOUND, np.random.default_rng(rng.randrange(2**32)).bytes(3000), b""))


def truncate_file(data: bytes, rng: random.Random) -> bytes:
    return data[: int(len(data) * rng.uniform(0.25, 0.6))]


def damage_picture(picture: Image.Image, defect: str | None, rng: random.Random) -> Image.Image:
    """Apply a visible defect to a picture. Other defects leave it unchanged."""
    if defect == "blurred":
        return blur_picture(picture)
    if defect == "occluded":
        return occlude_picture(picture, rng)
    if defect == "near_blank":
        return overexpose_picture(picture, rng)
    return picture


def encode_image(picture: Image.Image, extension: str) -> bytes:
    buffer = io.BytesIO()
    options = {"jpg": {"quality": 88}, "webp": {"quality": 85}, "png": {}}[extension]
    picture.save(buffer, {"jpg": "JPEG", "webp": "WEBP", "png": "PNG"}[extension], **options)
    return buffer.getvalue()

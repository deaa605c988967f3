"""The planted defects: their meaning, the sign that an audit should show, and the damage to the media."""

import io
import random
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from auditor.corpus.sample import Kind


@dataclass(frozen=True, slots=True)
class Defect:
    """A kind of defect. `sign` is the SQL condition on the audit's rows that detects it."""

    share: float  # of the corpus
    applies: tuple[Kind, ...]
    sign: str
    meaning: str


BOTH: tuple[Kind, ...] = ("image", "video")
DEFECTS = {
    "swapped": Defect(0.08, BOTH, "mismatch", "the caption of another sample"),
    "vague": Defect(0.03, BOTH, "ambiguous_text", "a caption that fits everything"),
    "blurred": Defect(0.015, ("image",), "ambiguous_visual", "blurred beyond recognition"),
    "occluded": Defect(0.015, ("image",), "ambiguous_visual", "mostly covered"),
    "near_blank": Defect(0.01, ("image",), "ambiguous_visual", "almost nothing to see"),
    "multi_scene": Defect(0.08, ("video",), "ambiguous_visual", "three scenes cut together"),
    "undecodable": Defect(0.008, BOTH, "status = 'corrupt'", "not a picture or video at all"),
    "truncated": Defect(0.008, BOTH, "status = 'corrupt'", "cut off in the middle of the file"),
    "missing_caption": Defect(0.008, BOTH, "status = 'missing_caption'", "no caption"),
    "missing_media": Defect(0.006, ("image",), "status = 'missing_media'", "no picture"),
    "duplicate_key": Defect(0.006, ("image",), "status = 'duplicate_key'", "a key used twice in its shard"),
    "duplicate_media": Defect(0.012, ("image",), "duplicate_of IS NOT NULL", "the same file under another key"),
}

COVER = (58, 44, 40)
NOT_FOUND = b"<!DOCTYPE html><html><head><title>404 Not Found</title></head><body>Not Found</body></html>\n"


def occlude_picture(picture: Image.Image, rng: random.Random) -> Image.Image:
    """Cover most of the picture with a dark soft shape, like a hand in front of the lens."""
    side = picture.width
    mask = Image.new("L", picture.size, 0)
    x, y = rng.uniform(0.4, 0.6) * side, rng.uniform(0.5, 0.6) * side
    ImageDraw.Draw(mask).ellipse((x - 0.62 * side, y - 0.56 * side, x + 0.62 * side, y + 0.7 * side), fill=255)
    mask = mask.filter(ImageFilter.GaussianBlur(side / 40))
    return Image.composite(Image.new("RGB", picture.size, COVER), picture, mask)


def make_undecodable_file(rng: random.Random) -> bytes:
    """A file that crawlers save instead of a picture: an error page, noise, or an empty file."""
    return rng.choice((NOT_FOUND, np.random.default_rng(rng.randrange(2**32)).bytes(3000), b""))


def truncate_file(data: bytes, rng: random.Random) -> bytes:
    return data[: int(len(data) * rng.uniform(0.25, 0.6))]


def damage_picture(picture: Image.Image, defect: str | None, rng: random.Random) -> Image.Image:
    """Apply a visible defect to a picture. Other defects leave it unchanged."""
    if defect == "blurred":
        return picture.filter(ImageFilter.GaussianBlur(picture.width / 5))
    if defect == "occluded":
        return occlude_picture(picture, rng)
    if defect == "near_blank":  # overexposed: two percent remain visible
        return Image.blend(Image.new("RGB", picture.size, (rng.randint(238, 250),) * 3), picture, 0.02)
    return picture


def encode_image(picture: Image.Image, extension: str) -> bytes:
    buffer = io.BytesIO()
    form, options = {"jpg": ("JPEG", {"quality": 88}), "webp": ("WEBP", {"quality": 85}), "png": ("PNG", {})}[extension]
    picture.save(buffer, form, **options)
    return buffer.getvalue()

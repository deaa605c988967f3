"""Altered copies of pictures, and pictures of one template with other text, for tests of near-duplicates."""

import io
import re
from collections.abc import Callable

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance, ImageOps

Alteration = Callable[[Image.Image, np.random.Generator], Image.Image]


def reencode(picture: Image.Image, generator: np.random.Generator) -> Image.Image:
    data = io.BytesIO()
    picture.save(data, "JPEG", quality=int(generator.integers(30, 76)))
    return Image.open(data).convert("RGB")


def resize(picture: Image.Image, generator: np.random.Generator) -> Image.Image:
    share = generator.uniform(0.25, 0.5)
    return picture.resize((round(picture.width * share), round(picture.height * share)), Image.Resampling.LANCZOS)


def crop(picture: Image.Image, generator: np.random.Generator) -> Image.Image:
    """Cut off 10 to 20% of each side, at a random place."""
    width, height = (round(side * generator.uniform(0.8, 0.9)) for side in picture.size)
    x, y = generator.integers(0, picture.width - width + 1), generator.integers(0, picture.height - height + 1)
    return picture.crop((int(x), int(y), int(x) + width, int(y) + height))


def mirror(picture: Image.Image, generator: np.random.Generator) -> Image.Image:
    return ImageOps.mirror(picture)


def shift_colors(picture: Image.Image, generator: np.random.Generator) -> Image.Image:
    for enhance in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
        picture = enhance(picture).enhance(float(generator.uniform(0.7, 1.3)))
    gains = generator.uniform(0.85, 1.15, 3)
    return Image.fromarray(np.clip(np.asarray(picture) * gains, 0, 255).astype(np.uint8))


def remove_colors(picture: Image.Image, generator: np.random.Generator) -> Image.Image:
    return picture.convert("L").convert("RGB")


def add_border(picture: Image.Image, generator: np.random.Generator) -> Image.Image:
    color = [(0, 0, 0), (255, 255, 255), (127, 127, 127)][generator.integers(3)]
    return ImageOps.expand(picture, round(max(picture.size) * generator.uniform(0.04, 0.1)), color)


def add_watermark(picture: Image.Image, generator: np.random.Generator) -> Image.Image:
    picture, layer = picture.convert("RGBA"), Image.new("RGBA", picture.size)
    size = picture.width * generator.uniform(0.07, 0.11)
    place = (generator.uniform(0, 0.3) * picture.width, generator.uniform(0.05, 0.85) * picture.height)
    ImageDraw.Draw(layer).text(place, "stock photo 2026", fill=(255, 255, 255, 200), font_size=size)
    return Image.alpha_composite(picture, layer).convert("RGB")


def rotate(picture: Image.Image, generator: np.random.Generator) -> Image.Image:
    angle = generator.uniform(1.5, 5) * generator.choice([-1, 1])
    return picture.rotate(angle, Image.Resampling.BICUBIC)


ALTERATIONS: dict[str, Alteration] = {
    "re-encoded": reencode,
    "resized": resize,
    "cropped": crop,
    "mirrored": mirror,
    "other colors": shift_colors,
    "gray": remove_colors,
    "border": add_border,
    "watermark": add_watermark,
    "rotated": rotate,
}

WORDS = re.findall(
    r"\w+",
    "order invoice total shipping address customer weekly report winter travel recipe garden engine update",
)


def draw_screenshot(template: int, generator: np.random.Generator, size: tuple[int, int] = (640, 480)) -> Image.Image:
    """A page of one of several layouts (its frame, menu and colors) with random text."""
    layout = np.random.default_rng(template)
    picture = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(picture)
    bar, side = int(layout.integers(30, 70)), int(layout.integers(80, 180))
    draw.rectangle((0, 0, size[0], bar), fill=tuple(layout.integers(0, 200, 3).tolist()))
    draw.rectangle((0, bar, side, size[1]), fill=tuple(layout.integers(180, 245, 3).tolist()))
    for row in range(6):
        draw.rectangle((12, bar + 20 + row * 45, side - 20, bar + 40 + row * 45), fill="lightsteelblue")
    font = float(layout.integers(14, 26))
    draw.text((10, 8), " ".join(layout.choice(WORDS, 3)), fill="white", font_size=bar * 0.5)
    for y in np.arange(bar + 20, size[1] - font, font * 1.6):
        words = generator.choice(WORDS, int(generator.integers(2, 9)))
        draw.text((side + 20, float(y)), " ".join(words), fill="black", font_size=font)
    return picture

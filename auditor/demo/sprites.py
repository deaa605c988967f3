"""Draw the things that stand, swim and fly in a scene, from the shapes in sprites.json.

`draw_sprite("horse", "brown", 90)` gives an RGBA picture 90 pixels wide, drawn larger, reduced and softly shaded.
Sprites are cached, because thousands of scenes show the same few hundred sprites.

A line of sprites.json is OPERATION COLOR NUMBER..., in coordinates of a unit square whose lower edge is the ground:
`box` x0 y0 x1 y1 [radius of the corners], `blob` x y rx ry, `wheel` x y r, `legs` top width x..., `shape` points,
`slice` x y r angle angle, and `line` width points. A color is a factor of the thing's own color (`shade_color`), a
name, or #rrggbb.
"""

import json
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageColor, ImageDraw

RGB = tuple[int, int, int]
Point = tuple[float, float]

COLORS: dict[str, RGB] = {
    "red": (208, 44, 46),
    "orange": (240, 134, 36),
    "yellow": (246, 207, 62),
    "green": (58, 154, 74),
    "blue": (42, 98, 204),
    "purple": (134, 66, 172),
    "pink": (242, 138, 178),
    "white": (243, 241, 235),
    "black": (44, 44, 50),
    "brown": (132, 84, 48),
    "grey": (142, 146, 152),
}
PAINTS: dict[str, RGB] = {**COLORS, "dark": (46, 42, 44), "glass": (176, 214, 232), "cream": (246, 232, 204)}
OUTLINE_SCALE = 3  # of the drawing to the reduced sprite
SPRITES: dict[str, list[str]] = json.loads(Path(__file__).with_name("sprites.json").read_text(encoding="utf-8"))


def shade_color(color: RGB, factor: float) -> RGB:
    """Darken a color by a factor below 1, or mix it with white by a factor above 1."""
    mix = max(factor - 1, 0)
    r, g, b = (int(c * factor) if factor <= 1 else int(c + (255 - c) * mix) for c in color)
    return (r, g, b)


def choose_paint(name: str, color: RGB) -> RGB:
    """The color of a shape of a thing of this color. A mane and patches contrast with it."""
    if name == "mane":
        return shade_color(color, 0.45) if sum(color) > 150 else (110, 104, 100)
    if name == "patch":
        return (248, 246, 240) if sum(color) < 400 else (62, 54, 54)
    if name[0].isdigit():
        return shade_color(color, float(name))
    return PAINTS.get(name) or ImageColor.getrgb(name)[:3]


def draw_shape(draw: ImageDraw.ImageDraw, pixels: int, operation: str, fill: RGB, numbers: list[float]) -> None:
    if operation == "wheel":
        x, y, r = numbers
        draw_shape(draw, pixels, "blob", fill, [x, y, r, r])
        draw_shape(draw, pixels, "blob", (190, 190, 194), [x, y, r * 0.5, r * 0.5])
    elif operation == "legs":
        top, width, *lefts = numbers
        for i, x in enumerate(lefts):
            shade = shade_color(fill, 0.72 if i % 2 else 0.95)
            draw_shape(draw, pixels, "box", shade, [x, top, x + width, 1.0, width / 3])
    elif operation == "blob":
        x, y, rx, ry = numbers
        draw.ellipse([v * pixels for v in (x - rx, y - ry, x + rx, y + ry)], fill=fill)
    elif operation == "slice":
        x, y, r, start, end = numbers
        draw.pieslice([v * pixels for v in (x - r, y - r, x + r, y + r)], start, end, fill=fill)
    elif operation == "box":
        *corners, radius = numbers if len(numbers) == 5 else (*numbers, 0.0)
        draw.rounded_rectangle([v * pixels for v in corners], radius * pixels, fill=fill)
    elif operation == "line":
        width = max(1, round(numbers[0] * pixels))
        draw.line([v * pixels for v in numbers[1:]], fill=fill, width=width, joint="curve")
    else:
        draw.polygon([v * pixels for v in numbers], fill=fill)


def shade_from_above(image: Image.Image) -> Image.Image:
    """Add light from above: brighten the top, darken the foot."""
    array = np.asarray(image).astype(np.float32)
    light = np.linspace(1.12, 0.84, array.shape[0], dtype=np.float32)[:, None, None]
    array[..., :3] = np.clip(array[..., :3] * light, 0, 255)
    return Image.fromarray(array.astype(np.uint8), "RGBA")


@lru_cache(maxsize=4096)
def draw_sprite(kind: str, color: str, pixels: int, flipped: bool = False) -> Image.Image:
    """A thing as an RGBA picture, `pixels` wide and high. Callers must not modify it: it is cached."""
    side = pixels * OUTLINE_SCALE
    image = Image.new("RGBA", (side, side), (0, 0, 0, 0))
    draw = ImageDraw.Draw(image)
    for operation, paint, *numbers in map(str.split, SPRITES[kind]):
        draw_shape(draw, side, operation, choose_paint(paint, COLORS[color]), [float(number) for number in numbers])
    image = shade_from_above(image.reduce(OUTLINE_SCALE))
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if flipped else image

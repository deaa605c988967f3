"""Draw the things that stand, swim and fly in a scene: one function per thing, in unit coordinates.

`draw_sprite("horse", "brown", 90)` gives an RGBA picture 90 pixels wide, drawn larger, reduced and softly shaded.
Sprites are cached, because thousands of scenes show the same few hundred sprites.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from PIL import Image, ImageDraw

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
OUTLINE_SCALE = 3  # of the drawing to the reduced sprite
DARK: RGB = (46, 42, 44)
GLASS: RGB = (176, 214, 232)
CREAM: RGB = (246, 232, 204)


def shade_color(color: RGB, factor: float) -> RGB:
    """Darken a color by a factor below 1, or mix it with white by a factor above 1."""
    if factor <= 1:
        return (int(color[0] * factor), int(color[1] * factor), int(color[2] * factor))
    mix = factor - 1
    r, g, b = (int(c + (255 - c) * mix) for c in color)
    return (r, g, b)


class Brush:
    """Draws on a unit square whose lower edge is the ground."""

    def __init__(self, pixels: int) -> None:
        self.pixels = pixels
        self.image = Image.new("RGBA", (pixels, pixels), (0, 0, 0, 0))
        self.draw = ImageDraw.Draw(self.image)

    def scaled(self, points: Sequence[Point]) -> list[Point]:
        return [(x * self.pixels, y * self.pixels) for x, y in points]

    def blob(self, x: float, y: float, rx: float, ry: float, fill: RGB) -> None:
        self.draw.ellipse(self.scaled([(x - rx, y - ry), (x + rx, y + ry)]), fill=fill)

    def box(self, x0: float, y0: float, x1: float, y1: float, fill: RGB, radius: float = 0.0) -> None:
        self.draw.rounded_rectangle(self.scaled([(x0, y0), (x1, y1)]), radius * self.pixels, fill=fill)

    def shape(self, points: Sequence[Point], fill: RGB) -> None:
        self.draw.polygon(self.scaled(points), fill=fill)

    def line(self, points: Sequence[Point], width: float, fill: RGB) -> None:
        self.draw.line(self.scaled(points), fill=fill, width=max(1, round(width * self.pixels)), joint="curve")

    def slice(self, x: float, y: float, r: float, start: float, end: float, fill: RGB) -> None:
        self.draw.pieslice(self.scaled([(x - r, y - r), (x + r, y + r)]), start, end, fill=fill)

    def wheel(self, x: float, y: float, r: float) -> None:
        self.blob(x, y, r, r, DARK)
        self.blob(x, y, r * 0.5, r * 0.5, (190, 190, 194))


def house(b: Brush, c: RGB) -> None:
    b.box(0.66, 0.14, 0.76, 0.45, shade_color(c, 0.6))
    b.box(0.14, 0.46, 0.86, 1.0, c)
    b.shape([(0.04, 0.5), (0.5, 0.12), (0.96, 0.5)], (112, 66, 56))
    b.box(0.42, 0.68, 0.58, 1.0, shade_color(c, 0.45), 0.02)
    for x in (0.21, 0.65):
        b.box(x, 0.58, x + 0.14, 0.74, (255, 236, 160))
        b.line([(x + 0.07, 0.58), (x + 0.07, 0.74)], 0.015, DARK)


def lighthouse(b: Brush, c: RGB) -> None:
    b.shape([(0.36, 0.26), (0.64, 0.26), (0.72, 1.0), (0.28, 1.0)], (246, 244, 238))
    for top in (0.32, 0.56, 0.8):
        low = top + 0.12
        a, z = 0.108 * (top - 0.26), 0.108 * (low - 0.26)  # widening of the tower
        b.shape([(0.36 - a, top), (0.64 + a, top), (0.64 + z, low), (0.36 - z, low)], c)
    b.box(0.3, 0.22, 0.7, 0.27, DARK)
    b.box(0.39, 0.1, 0.61, 0.22, (255, 232, 130))
    b.shape([(0.34, 0.11), (0.5, 0.0), (0.66, 0.11)], c)


def windmill(b: Brush, c: RGB) -> None:
    b.shape([(0.36, 0.4), (0.64, 0.4), (0.74, 1.0), (0.26, 1.0)], c)
    b.slice(0.5, 0.41, 0.15, 180, 360, (112, 66, 56))
    b.box(0.44, 0.8, 0.56, 1.0, shade_color(c, 0.45))
    for dx, dy in ((0.36, 0.2), (-0.2, 0.36), (-0.36, -0.2), (0.2, -0.36)):
        tip = (0.5 + dx, 0.4 + dy)
        side = (-dy * 0.28, dx * 0.28)
        b.shape([(0.5, 0.4), tip, (tip[0] + side[0], tip[1] + side[1]), (0.5 + side[0], 0.4 + side[1])], CREAM)
        b.line([(0.5, 0.4), tip], 0.025, (96, 70, 54))
    b.blob(0.5, 0.4, 0.04, 0.04, DARK)


def tent(b: Brush, c: RGB) -> None:
    b.shape([(0.02, 1.0), (0.5, 0.36), (0.98, 1.0)], c)
    b.shape([(0.5, 0.36), (0.98, 1.0), (0.72, 1.0)], shade_color(c, 0.75))
    b.shape([(0.36, 1.0), (0.5, 0.52), (0.64, 1.0)], shade_color(c, 0.35))
    b.line([(0.5, 0.38), (0.5, 0.28)], 0.02, DARK)


def car(b: Brush, c: RGB) -> None:
    b.shape([(0.2, 0.7), (0.32, 0.5), (0.68, 0.5), (0.84, 0.7)], c)
    b.shape([(0.26, 0.69), (0.35, 0.54), (0.48, 0.54), (0.48, 0.69)], GLASS)
    b.shape([(0.52, 0.69), (0.52, 0.54), (0.66, 0.54), (0.76, 0.69)], GLASS)
    b.box(0.03, 0.67, 0.97, 0.89, c, 0.06)
    b.box(0.9, 0.72, 0.97, 0.78, (255, 240, 170))
    b.wheel(0.24, 0.89, 0.11)
    b.wheel(0.75, 0.89, 0.11)


def bus(b: Brush, c: RGB) -> None:
    b.box(0.02, 0.38, 0.98, 0.9, c, 0.06)
    b.box(0.02, 0.7, 0.98, 0.75, shade_color(c, 1.6))
    for x in (0.08, 0.26, 0.44, 0.62):
        b.box(x, 0.46, x + 0.14, 0.64, GLASS, 0.02)
    b.box(0.82, 0.46, 0.95, 0.86, GLASS, 0.02)
    b.wheel(0.22, 0.9, 0.1)
    b.wheel(0.72, 0.9, 0.1)


def tractor(b: Brush, c: RGB) -> None:
    b.box(0.4, 0.54, 0.92, 0.78, c, 0.04)
    b.box(0.78, 0.34, 0.82, 0.56, DARK)
    b.box(0.14, 0.26, 0.5, 0.32, c, 0.02)
    b.box(0.18, 0.32, 0.46, 0.62, GLASS)
    b.line([(0.46, 0.3), (0.48, 0.6)], 0.03, shade_color(c, 0.7))
    b.wheel(0.28, 0.78, 0.22)
    b.wheel(0.8, 0.88, 0.12)


def legs(b: Brush, xs: Sequence[float], top: float, width: float, color: RGB) -> None:
    for i, x in enumerate(xs):
        b.box(x, top, x + width, 1.0, shade_color(color, 0.72 if i % 2 else 0.95), width / 3)


def horse(b: Brush, c: RGB) -> None:
    mane = shade_color(c, 0.45) if sum(c) > 150 else (110, 104, 100)
    b.line([(0.12, 0.5), (0.05, 0.62), (0.06, 0.8)], 0.06, mane)
    legs(b, (0.18, 0.27, 0.58, 0.67), 0.6, 0.07, c)
    b.blob(0.42, 0.54, 0.31, 0.15, c)
    b.shape([(0.6, 0.5), (0.74, 0.16), (0.87, 0.2), (0.74, 0.6)], c)
    b.shape([(0.72, 0.16), (0.82, 0.12), (0.99, 0.33), (0.92, 0.4), (0.78, 0.32)], c)
    b.shape([(0.75, 0.17), (0.77, 0.05), (0.82, 0.14)], c)
    b.line([(0.76, 0.14), (0.66, 0.3), (0.6, 0.46)], 0.06, mane)
    b.blob(0.86, 0.22, 0.014, 0.014, DARK)


def cow(b: Brush, c: RGB) -> None:
    patch: RGB = (248, 246, 240) if sum(c) < 400 else (62, 54, 54)
    legs(b, (0.14, 0.24, 0.58, 0.68), 0.64, 0.08, c)
    b.box(0.1, 0.36, 0.76, 0.74, c, 0.14)
    b.blob(0.3, 0.48, 0.11, 0.1, patch)
    b.blob(0.56, 0.6, 0.1, 0.08, patch)
    b.line([(0.11, 0.44), (0.05, 0.7)], 0.025, shade_color(c, 0.6))
    b.box(0.7, 0.24, 0.93, 0.54, c, 0.07)
    b.blob(0.88, 0.48, 0.1, 0.07, (232, 176, 164))
    b.line([(0.74, 0.26), (0.7, 0.16)], 0.03, CREAM)
    b.line([(0.86, 0.25), (0.9, 0.15)], 0.03, CREAM)
    b.blob(0.82, 0.34, 0.018, 0.018, DARK)


def sheep(b: Brush, c: RGB) -> None:
    legs(b, (0.27, 0.36, 0.58, 0.67), 0.74, 0.06, (70, 62, 60))
    for x, y, r in ((0.28, 0.58, 0.17), (0.44, 0.5, 0.19), (0.6, 0.52, 0.18), (0.36, 0.68, 0.17), (0.58, 0.68, 0.17)):
        b.blob(x, y, r, r, c)
    b.blob(0.8, 0.5, 0.11, 0.14, (70, 62, 60))
    b.blob(0.76, 0.38, 0.1, 0.07, c)
    b.blob(0.84, 0.47, 0.018, 0.018, (250, 250, 250))


def dog(b: Brush, c: RGB) -> None:
    b.line([(0.2, 0.55), (0.08, 0.38)], 0.07, c)
    legs(b, (0.2, 0.29, 0.56, 0.65), 0.62, 0.08, c)
    b.box(0.16, 0.48, 0.74, 0.74, c, 0.12)
    b.blob(0.76, 0.42, 0.15, 0.14, c)
    b.box(0.78, 0.4, 0.97, 0.52, c, 0.05)
    b.blob(0.955, 0.43, 0.03, 0.026, DARK)
    b.blob(0.67, 0.44, 0.06, 0.13, shade_color(c, 0.6))
    b.blob(0.8, 0.38, 0.018, 0.018, DARK)
    b.line([(0.64, 0.56), (0.8, 0.57)], 0.04, COLORS["red"])


def cat(b: Brush, c: RGB) -> None:
    b.line([(0.24, 0.88), (0.1, 0.8), (0.1, 0.58), (0.17, 0.48)], 0.07, c)
    b.blob(0.45, 0.76, 0.25, 0.25, c)
    b.blob(0.58, 0.44, 0.19, 0.17, c)
    for x in (0.44, 0.62):
        b.shape([(x, 0.36), (x + 0.02, 0.16), (x + 0.12, 0.32)], c)
    for x in (0.53, 0.66):
        b.blob(x, 0.42, 0.026, 0.034, (180, 214, 84))
        b.blob(x, 0.42, 0.01, 0.03, DARK)
    b.blob(0.6, 0.5, 0.022, 0.016, (222, 120, 130))
    b.box(0.5, 0.8, 0.58, 1.0, shade_color(c, 0.85), 0.03)
    b.box(0.62, 0.8, 0.7, 1.0, shade_color(c, 0.85), 0.03)


def snowman(b: Brush, c: RGB) -> None:
    b.blob(0.5, 0.78, 0.25, 0.22, (240, 244, 250))
    b.blob(0.5, 0.46, 0.19, 0.17, (246, 249, 253))
    b.blob(0.5, 0.24, 0.14, 0.13, (250, 252, 255))
    b.box(0.34, 0.31, 0.66, 0.39, c, 0.03)
    b.box(0.56, 0.35, 0.66, 0.6, shade_color(c, 0.85), 0.02)
    b.box(0.38, 0.0, 0.62, 0.13, c)
    b.box(0.31, 0.11, 0.69, 0.15, shade_color(c, 0.7))
    b.shape([(0.5, 0.24), (0.5, 0.28), (0.68, 0.27)], COLORS["orange"])
    for x, y in ((0.45, 0.21), (0.55, 0.21), (0.5, 0.5), (0.5, 0.7)):
        b.blob(x, y, 0.018, 0.018, DARK)


def umbrella(b: Brush, c: RGB) -> None:
    """A person under an umbrella."""
    b.box(0.38, 0.78, 0.46, 1.0, (60, 62, 82), 0.02)
    b.box(0.49, 0.78, 0.57, 1.0, (50, 52, 70), 0.02)
    b.box(0.35, 0.5, 0.6, 0.84, (92, 96, 122), 0.06)
    b.blob(0.475, 0.42, 0.09, 0.09, (236, 190, 156))
    b.line([(0.58, 0.62), (0.62, 0.1)], 0.022, DARK)
    b.slice(0.56, 0.36, 0.4, 180, 360, c)
    for x in (0.36, 0.62):
        b.slice(x + 0.07, 0.36, 0.13, 180, 360, shade_color(c, 0.8))


def round_tree(b: Brush, c: RGB) -> None:
    b.box(0.45, 0.6, 0.55, 1.0, (104, 72, 48))
    for x, y, r, f in ((0.36, 0.5, 0.2, 0.82), (0.64, 0.5, 0.2, 0.82), (0.5, 0.32, 0.24, 1.0), (0.42, 0.4, 0.13, 1.12)):
        b.blob(x, y, r, r, shade_color(c, f))


def pine(b: Brush, c: RGB) -> None:
    b.box(0.46, 0.8, 0.54, 1.0, (104, 72, 48))
    for top, low, half, f in ((0.4, 0.86, 0.3, 0.8), (0.2, 0.62, 0.24, 0.92), (0.02, 0.38, 0.17, 1.05)):
        b.shape([(0.5, top), (0.5 - half, low), (0.5 + half, low)], shade_color(c, f))


def balloon(b: Brush, c: RGB) -> None:
    b.blob(0.5, 0.36, 0.34, 0.36, c)
    b.shape([(0.2, 0.5), (0.8, 0.5), (0.58, 0.8), (0.42, 0.8)], c)
    b.blob(0.5, 0.36, 0.15, 0.36, shade_color(c, 1.45))
    b.shape([(0.36, 0.5), (0.64, 0.5), (0.54, 0.8), (0.46, 0.8)], shade_color(c, 1.45))
    b.line([(0.43, 0.8), (0.45, 0.9)], 0.012, DARK)
    b.line([(0.57, 0.8), (0.55, 0.9)], 0.012, DARK)
    b.box(0.42, 0.88, 0.58, 1.0, (140, 96, 56), 0.02)


def kite(b: Brush, c: RGB) -> None:
    b.line([(0.56, 0.62), (0.5, 0.76), (0.36, 0.84), (0.3, 0.98)], 0.016, CREAM)
    for x, y in ((0.5, 0.76), (0.37, 0.84)):
        b.shape(
            [(x - 0.06, y - 0.04), (x + 0.06, y + 0.04), (x + 0.06, y - 0.04), (x - 0.06, y + 0.04)],
            shade_color(c, 1.3),
        )
    b.shape([(0.5, 0.02), (0.84, 0.28), (0.56, 0.64), (0.2, 0.3)], c)
    b.shape([(0.5, 0.02), (0.53, 0.3), (0.2, 0.3)], shade_color(c, 1.4))
    b.shape([(0.53, 0.3), (0.84, 0.28), (0.56, 0.64)], shade_color(c, 0.75))


def plane(b: Brush, c: RGB) -> None:
    b.shape([(0.06, 0.3), (0.17, 0.3), (0.27, 0.5), (0.1, 0.5)], shade_color(c, 0.75))
    b.box(0.08, 0.43, 0.94, 0.61, c, 0.09)
    b.shape([(0.4, 0.53), (0.6, 0.53), (0.44, 0.84), (0.33, 0.84)], shade_color(c, 0.7))
    b.shape([(0.42, 0.44), (0.56, 0.44), (0.46, 0.26), (0.39, 0.26)], shade_color(c, 0.8))
    for x in (0.34, 0.46, 0.58, 0.7):
        b.blob(x, 0.49, 0.024, 0.026, GLASS)
    b.shape([(0.82, 0.45), (0.9, 0.47), (0.92, 0.5), (0.82, 0.5)], GLASS)


def airship(b: Brush, c: RGB) -> None:
    b.shape([(0.03, 0.24), (0.2, 0.38), (0.2, 0.56), (0.03, 0.68)], shade_color(c, 0.7))
    b.blob(0.53, 0.46, 0.45, 0.2, c)
    b.blob(0.55, 0.4, 0.36, 0.07, shade_color(c, 1.4))
    b.box(0.42, 0.64, 0.66, 0.74, (92, 88, 92), 0.03)


def bird(b: Brush, c: RGB) -> None:
    b.shape([(0.44, 0.54), (0.1, 0.2), (0.06, 0.34), (0.36, 0.64)], c)
    b.shape([(0.5, 0.54), (0.84, 0.14), (0.9, 0.28), (0.6, 0.64)], shade_color(c, 0.85))
    b.blob(0.5, 0.58, 0.2, 0.09, c)
    b.shape([(0.68, 0.54), (0.8, 0.58), (0.68, 0.62)], COLORS["orange"])


def sailboat(b: Brush, c: RGB) -> None:
    b.line([(0.5, 0.04), (0.5, 0.78)], 0.025, (104, 72, 48))
    b.shape([(0.53, 0.06), (0.53, 0.7), (0.94, 0.7)], c)
    b.shape([(0.47, 0.16), (0.47, 0.7), (0.14, 0.7)], shade_color(c, 1.3))
    b.shape([(0.04, 0.76), (0.96, 0.76), (0.8, 0.96), (0.2, 0.96)], (126, 80, 52))
    b.line([(0.06, 0.79), (0.94, 0.79)], 0.02, CREAM)


def rowboat(b: Brush, c: RGB) -> None:
    b.box(0.44, 0.4, 0.58, 0.7, (92, 96, 122), 0.05)
    b.blob(0.51, 0.34, 0.075, 0.075, (236, 190, 156))
    b.line([(0.5, 0.56), (0.16, 0.92)], 0.025, (150, 110, 70))
    b.shape([(0.02, 0.62), (0.98, 0.62), (0.84, 0.94), (0.16, 0.94)], c)
    b.shape([(0.02, 0.62), (0.98, 0.62), (0.95, 0.69), (0.05, 0.69)], shade_color(c, 1.4))


def swan(b: Brush, c: RGB) -> None:
    b.blob(0.42, 0.76, 0.34, 0.17, c)
    b.shape([(0.08, 0.74), (0.02, 0.54), (0.36, 0.66)], c)
    b.line([(0.68, 0.76), (0.78, 0.6), (0.68, 0.44), (0.72, 0.3)], 0.1, c)
    b.blob(0.76, 0.28, 0.1, 0.075, c)
    b.shape([(0.83, 0.25), (0.97, 0.31), (0.83, 0.33)], COLORS["orange"])
    b.blob(0.78, 0.26, 0.016, 0.016, DARK)
    b.blob(0.38, 0.73, 0.22, 0.1, shade_color(c, 0.9))


DRAWERS: dict[str, Callable[[Brush, RGB], None]] = {
    f.__name__: f
    for f in (
        house, lighthouse, windmill, tent, car, bus, tractor, horse, cow, sheep, dog, cat, snowman, umbrella,
        round_tree, pine, balloon, kite, plane, airship, bird, sailboat, rowboat, swan,
    )
}  # fmt: skip


def shade_from_above(image: Image.Image) -> Image.Image:
    """Add light from above: brighten the top, darken the foot."""
    array = np.asarray(image).astype(np.float32)
    light = np.linspace(1.12, 0.84, array.shape[0], dtype=np.float32)[:, None, None]
    array[..., :3] = np.clip(array[..., :3] * light, 0, 255)
    return Image.fromarray(array.astype(np.uint8), "RGBA")


@lru_cache(maxsize=4096)
def draw_sprite(kind: str, color: str, pixels: int, flipped: bool = False) -> Image.Image:
    """A thing as an RGBA picture, `pixels` wide and high. Callers must not modify it: it is cached."""
    brush = Brush(pixels * OUTLINE_SCALE)
    DRAWERS[kind](brush, COLORS[color])
    image = shade_from_above(brush.image.reduce(OUTLINE_SCALE))
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if flipped else image

"""Draw the backdrop of a scene: sky, sun or moon, clouds, one of eight kinds of landscape, and the weather.

The canvas has twice the side of the finished picture; `scenes.paint_scene` reduces it at the end.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageFilter

from auditor.demo.sprites import RGB, Point, draw_sprite, shade_color

HORIZON = 0.56  # share of the height above the land


@dataclass(frozen=True, slots=True)
class Light:
    """Colors of a time of day, and its sun or moon. `ambient` multiplies the colors of everything on the ground."""

    top: RGB
    bottom: RGB
    ambient: tuple[float, float, float]
    height: float  # of the sun, as a share of the side, like its radius
    radius: float
    disk: RGB


LIGHTS = {
    "dawn": Light((118, 152, 206), (252, 208, 212), (1.0, 0.92, 0.94), 0.42, 0.06, (255, 236, 214)),
    "day": Light((70, 148, 224), (196, 228, 246), (1.0, 1.0, 1.0), 0.13, 0.05, (255, 246, 200)),
    "sunset": Light((96, 62, 128), (252, 150, 72), (0.95, 0.76, 0.66), 0.44, 0.07, (255, 214, 120)),
    "night": Light((10, 14, 44), (44, 58, 108), (0.46, 0.5, 0.74), 0.15, 0.045, (240, 240, 220)),
}
DARK_TIMES = (LIGHTS["sunset"], LIGHTS["night"])  # windows are lit

GROUND: dict[str, RGB] = {"summer": (112, 176, 82), "autumn": (190, 150, 72), "winter": (236, 242, 250)}
FOLIAGE = {"summer": ("green", "green"), "autumn": ("orange", "red"), "winter": ("white", "grey")}


def draw_gradient(width: int, height: int, top: RGB, bottom: RGB) -> Image.Image:
    steps = np.linspace(0, 1, height, dtype=np.float32)[:, None]
    column = np.asarray(top, np.float32) * (1 - steps) + np.asarray(bottom, np.float32) * steps
    return Image.fromarray(np.repeat(column[:, None, :], width, axis=1).astype(np.uint8), "RGB")


class Stage:
    """The canvas of one scene, with the random generator for its details."""

    def __init__(self, side: int, rng: random.Random, light: Light, season: str) -> None:
        self.side, self.rng, self.light, self.season = side, rng, light, season
        self.image = Image.new("RGB", (side, side), light.bottom)
        self.image.paste(draw_gradient(side, round(side * HORIZON), light.top, light.bottom), (0, 0))
        self.draw = ImageDraw.Draw(self.image)

    def lit(self, color: RGB) -> RGB:
        r, g, b = (int(c * a) for c, a in zip(color, self.light.ambient, strict=True))
        return (r, g, b)

    def shape(self, points: Sequence[Point], color: RGB) -> None:
        self.draw.polygon(points, fill=self.lit(color))

    def box(self, x0: float, y0: float, x1: float, y1: float, color: RGB) -> None:
        self.draw.rectangle((x0, y0, x1, y1), fill=self.lit(color))

    def disk(self, x: float, y: float, r: float, fill: RGB) -> None:
        self.draw.ellipse((x - r, y - r, x + r, y + r), fill=fill)

    def ridge(self, base: float, height: float, roughness: float) -> list[Point]:
        """A smooth or jagged skyline: the points of its upper edge, from left to right."""
        waves = [(self.rng.uniform(0.6, 1.4) * (i + 1), self.rng.uniform(0, 6.3), roughness**i) for i in range(6)]
        xs = np.linspace(0, 1, 65)
        total = sum(amplitude * np.sin(6.28 * frequency * xs + phase) for frequency, phase, amplitude in waves)
        rise = 0.5 + 0.5 * np.asarray(total) / sum(amplitude for *_, amplitude in waves)
        ys = base * self.side - height * self.side * rise
        return [(float(x * self.side), float(y)) for x, y in zip(xs, ys, strict=True)]

    def land(self, top: list[Point], color: RGB) -> None:
        self.shape([*top, (self.side, self.side), (0, self.side)], color)

    def floor(self, y: float, front: RGB, horizon: RGB) -> None:
        """Level ground or water from height `y` (a share of the side) down, with a gradient between two colors."""
        top = round(y * self.side)
        self.image.paste(draw_gradient(self.side, self.side - top, self.lit(horizon), self.lit(front)), (0, top))

    def stamp(self, kind: str, color: str, pixels: int, x: float, foot: float) -> None:
        """Paste a sprite at x with its foot at height `foot` (shares of the side), in the light of the scene."""
        picture = apply_light(draw_sprite(kind, color, pixels), self.light)
        self.image.paste(picture, (round(x * self.side - pixels / 2), round(foot * self.side - pixels)), picture)


def apply_light(picture: Image.Image, light: Light) -> Image.Image:
    """Apply about half of the ambient light, so that colors can still be named at night."""
    if light.ambient == (1.0, 1.0, 1.0):
        return picture
    *bands, alpha = picture.split()
    factors = [0.45 + 0.55 * a for a in light.ambient]
    lit = [band.point([int(i * factor) for i in range(256)]) for band, factor in zip(bands, factors, strict=True)]
    return Image.merge("RGBA", [*lit, alpha])


def draw_sun_or_moon(stage: Stage, time: str) -> None:
    light, side = stage.light, stage.side
    x, y, radius = stage.rng.uniform(0.15, 0.85) * side, light.height * side, light.radius * side
    glow = Image.new("L", (64, 64), 0)
    ImageDraw.Draw(glow).ellipse((22, 22, 42, 42), fill=210)
    reach = int(radius * 6)
    glow = glow.filter(ImageFilter.GaussianBlur(8)).resize((reach, reach))
    stage.image.paste(Image.new("RGB", glow.size, light.disk), (int(x - reach / 2), int(y - reach / 2)), glow)
    stage.disk(x, y, radius, light.disk)
    if time == "night":
        for cx, cy, r in ((-0.3, -0.2, 0.22), (0.25, 0.3, 0.16), (0.3, -0.35, 0.12)):
            spot = (x + (cx - r) * radius, y + (cy - r) * radius, x + (cx + r) * radius, y + (cy + r) * radius)
            stage.draw.ellipse(spot, fill=(214, 214, 196))


def draw_stars(stage: Stage) -> None:
    for _ in range(70):
        x, y = stage.rng.random() * stage.side, stage.rng.random() ** 1.4 * HORIZON * stage.side
        stage.disk(x, y, stage.rng.choice((1.0, 1.4, 2.2)), (236, 238, 255))


def draw_clouds(stage: Stage, count: int, color: RGB) -> None:
    """Heaps of soft disks, blurred at a quarter of the size to save time."""
    small = stage.side // 4
    mask = Image.new("L", (small, small), 0)
    pen = ImageDraw.Draw(mask)
    for _ in range(count):
        x, y = stage.rng.random() * small, stage.rng.uniform(0.03, 0.3) * small
        width = stage.rng.uniform(0.1, 0.2) * small
        for _ in range(9):
            cx = x + stage.rng.gauss(0, 0.45) * width
            r = stage.rng.uniform(0.14, 0.3) * width
            pen.ellipse((cx - 1.3 * r, y - r, cx + 1.3 * r, y + r * 0.8), fill=225)
    mask = mask.filter(ImageFilter.GaussianBlur(1.2)).resize((stage.side, stage.side), Image.Resampling.BICUBIC)
    top = tuple(int(c * (0.5 + 0.5 * a)) for c, a in zip(color, stage.light.ambient, strict=True))
    stage.image.paste(Image.new("RGB", stage.image.size, top), (0, 0), mask)


def hills(stage: Stage) -> None:
    base = GROUND[stage.season]
    for level, factor in ((0.0, 0.7), (0.05, 0.84), (0.12, 0.95)):
        stage.land(stage.ridge(HORIZON + level, 0.13, 0.45), shade_color(base, factor))
    stage.floor(0.8, base, shade_color(base, 0.95))


def meadow(stage: Stage) -> None:
    hills(stage)
    if stage.season == "winter":
        return
    palette: list[RGB] = [(250, 240, 120), (246, 246, 246), (236, 110, 130), (150, 120, 220)]
    for _ in range(90):
        x, y = stage.rng.random() * stage.side, stage.rng.uniform(0.72, 1.0) * stage.side
        stage.disk(x, y, 1.5 + 3 * (y / stage.side - 0.7), stage.lit(stage.rng.choice(palette)))


def mountains(stage: Stage) -> None:
    side, rng = stage.side, stage.rng
    foot, cap = (HORIZON + 0.08) * side, 0.34
    for shift, grey in ((0.0, (128, 138, 160)), (0.3, (102, 110, 132))):
        for i in range(4):
            x = (i / 3 + shift + rng.uniform(-0.08, 0.08)) % 1.2 * side
            height, half = rng.uniform(0.24, 0.4) * side, rng.uniform(0.2, 0.28) * side
            peak = (x, foot - height)
            stage.shape([(x - half, foot), peak, (x + half, foot)], grey)
            stage.shape([peak, (x + half, foot), (x + 0.1 * half, foot)], shade_color(grey, 0.85))
            snow_line = zip((-1, -0.5, 0, 0.5, 1), (-8, 10, -8, 10, -8), strict=True)
            edge = [(x + half * cap * t, foot - height * (1 - cap) + drop) for t, drop in snow_line]
            stage.shape([peak, *edge[::-1]], (248, 250, 255))
    base = GROUND[stage.season]
    stage.land(stage.ridge(HORIZON + 0.1, 0.06, 0.4), shade_color(base, 0.82))
    stage.floor(0.7, base, shade_color(base, 0.88))


def water(stage: Stage, top: float, bottom: float, color: RGB) -> None:
    r, g, b = (int(0.5 * sky + 0.5 * c) for sky, c in zip(stage.light.bottom, color, strict=True))
    stage.floor(top, color, (r, g, b))
    for _ in range(46):
        y = stage.rng.uniform(top + 0.01, bottom) * stage.side
        x, length = stage.rng.random() * stage.side, stage.rng.uniform(8, 40)
        stage.draw.line((x, y, x + length, y), fill=stage.lit(shade_color((r, g, b), 1.35)), width=2)


def lake(stage: Stage) -> None:
    base = GROUND[stage.season]
    stage.land(stage.ridge(HORIZON, 0.18, 0.5), shade_color(base, 0.62))
    needles = "white" if stage.season == "winter" else "green"
    for _ in range(16):
        stage.stamp("pine", needles, stage.rng.randint(34, 56), stage.rng.random(), HORIZON + 0.02)
    water(stage, HORIZON, 0.84, (58, 124, 164))
    stage.land(stage.ridge(0.88, 0.03, 0.4), base)


def seaside(stage: Stage) -> None:
    water(stage, HORIZON - 0.06, 0.8, (24, 112, 168))
    shore = stage.ridge(0.83, 0.03, 0.4)
    stage.draw.line([(x, y - 5) for x, y in shore], fill=stage.lit((246, 250, 250)), width=8)
    stage.land(shore, (240, 216, 160))


def desert(stage: Stage) -> None:
    side, rng = stage.side, stage.rng
    for _ in range(2):
        x, width, top = rng.random() * side, rng.uniform(0.1, 0.2) * side, (HORIZON - rng.uniform(0.1, 0.18)) * side
        outline = [(x - width * 0.6, top), (x + width * 0.6, top), (x + width, side), (x - width, side)]
        stage.shape(outline, (178, 98, 66))
    for level, factor in ((0.02, 0.82), (0.1, 0.92), (0.2, 1.0)):
        stage.land(stage.ridge(HORIZON + level, 0.09, 0.35), shade_color((234, 186, 112), factor))
    green = stage.lit((70, 124, 78))
    for _ in range(5):
        x, y, h = rng.random() * side, rng.uniform(0.62, 0.74) * side, rng.uniform(22, 40)
        stage.draw.line((x, y, x, y - h), fill=green, width=8)
        for reach, high, low in ((-11, 0.8, 0.45), (11, 0.7, 0.35)):
            arm = [(x + reach, y - h * high), (x + reach, y - h * low), (x, y - h * low)]
            stage.draw.line(arm, fill=green, width=6)


def village(stage: Stage) -> None:
    hills(stage)
    side, rng = stage.side, stage.rng
    windows: RGB = (255, 222, 120) if stage.light in DARK_TIMES else (96, 104, 120)
    roof: RGB = (240, 245, 252) if stage.season == "winter" else (178, 84, 62)
    for i in range(11):
        x, y = (i + rng.uniform(0.1, 0.6)) / 11 * side, (HORIZON + rng.uniform(0.0, 0.07)) * side
        w, h = rng.uniform(30, 42), rng.uniform(24, 34)
        stage.box(x, y - h, x + w, y, rng.choice([(238, 224, 200), (222, 200, 176), (230, 212, 214)]))
        stage.shape([(x - 5, y - h), (x + w / 2, y - h - 24), (x + w + 5, y - h)], roof)
        for dx in (0.2, 0.6):
            stage.draw.rectangle((x + dx * w, y - h * 0.66, x + dx * w + 7, y - h * 0.66 + 9), fill=windows)
    x, y = rng.uniform(0.2, 0.8) * side, (HORIZON + 0.03) * side
    stage.box(x - 13, y - 84, x + 13, y, (224, 214, 206))
    stage.shape([(x - 16, y - 84), (x, y - 136), (x + 16, y - 84)], (96, 84, 112))


def forest(stage: Stage) -> None:
    hills(stage)
    leaves = FOLIAGE[stage.season]
    for row, (foot, low, high) in enumerate(((HORIZON + 0.02, 100, 130), (HORIZON + 0.09, 120, 160))):
        for i in range(13):
            kind = "pine" if stage.rng.random() < 0.45 else "round_tree"
            color = ("white" if stage.season == "winter" else "green") if kind == "pine" else leaves[(i + row) % 2]
            pixels = stage.rng.randint(low // 8, high // 8) * 8  # few sizes, so that the sprite cache is effective
            stage.stamp(kind, color, pixels, (i + stage.rng.random()) / 13, foot + stage.rng.uniform(0, 0.02))


def city(stage: Stage) -> None:
    side, rng = stage.side, stage.rng
    windows: RGB = (255, 220, 120) if stage.light in DARK_TIMES else stage.lit((186, 206, 226))
    for level, tone in ((0.0, (138, 148, 170)), (0.03, (98, 106, 130))):
        x, y = -10.0, (HORIZON + level) * side
        while x < side:
            w, h = rng.uniform(38, 66), rng.uniform(0.12, 0.38 - 3 * level) * side
            stage.box(x, y - h, x + w, side, shade_color(tone, rng.uniform(0.85, 1.1)))
            for wy in range(int(y - h + 9), int(y - 8), 15):
                for wx in range(int(x + 7), int(x + w - 8), 12):
                    if rng.random() < 0.6:
                        stage.draw.rectangle((wx, wy, wx + 5, wy + 7), fill=windows)
            x += w + rng.uniform(0, 6)
    base: RGB = (232, 238, 246) if stage.season == "winter" else (128, 132, 138)
    stage.floor(HORIZON + 0.05, base, shade_color(base, 0.8))
    for i in range(6):
        x = (i + 0.3) / 6 * side
        stage.box(x, 0.795 * side, x + 40, 0.805 * side, (248, 244, 226))


PLACES = {f.__name__: f for f in (meadow, mountains, lake, seaside, desert, village, forest, city)}


def draw_weather(image: Image.Image, weather: str, rng: random.Random, drift: float = 0.0) -> Image.Image:
    """Draw rain, snow or fog in front of everything. `drift` moves it between the frames of a clip."""
    side = image.size[0]
    if weather == "fog":  # thickest at the horizon
        rise = np.interp(np.arange(side) / side, [0, HORIZON, 1], [0.3, 0.62, 0.3 * 1.2])
        mask = Image.fromarray(np.repeat((rise * 255)[:, None], side, axis=1).astype(np.uint8), "L")
        return Image.composite(Image.new("RGB", image.size, (214, 218, 224)), image, mask)
    if weather not in ("rain", "snow"):
        return image
    layer = Image.new("L", image.size, 0)
    pen = ImageDraw.Draw(layer)
    for _ in range(150 if weather == "rain" else 190):
        speed = rng.uniform(0.7, 1.3)
        x, y = rng.random() * side, (rng.random() + speed * drift) % 1.0 * side
        if weather == "rain":
            length = rng.uniform(0.035, 0.066) * side
            pen.line((x, y, x - 0.3 * length, y + length), fill=150, width=side // 256)
        else:
            r = rng.uniform(0.003, 0.009) * side
            pen.ellipse((x - r, y - r, x + r, y + r), fill=240)
    tone: RGB = (206, 220, 238) if weather == "rain" else (255, 255, 255)
    return Image.composite(Image.new("RGB", image.size, tone), image, layer)


def draw_backdrop(place: str, season: str, time: str, weather: str, side: int, rng: random.Random) -> Image.Image:
    """Draw sky and land of a scene, without its objects and the weather in front of them."""
    stage = Stage(side, rng, LIGHTS[time], season)
    if weather == "clear":
        if time == "night":
            draw_stars(stage)
        draw_sun_or_moon(stage, time)
    else:
        grey = Image.new("RGB", stage.image.size, stage.lit((176, 184, 196)))
        stage.image.paste(Image.blend(stage.image, grey, 0.3 if weather == "clouds" else 0.6))
    draw_clouds(stage, 9 if weather == "clouds" else 2, (252, 252, 252) if weather != "rain" else (128, 134, 148))
    PLACES[place](stage)
    if weather == "rain":
        stage.image = ImageChops.multiply(stage.image, Image.new("RGB", stage.image.size, (212, 216, 226)))
    return stage.image

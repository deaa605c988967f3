"""Make up random scenes and draw them.

A `Scene` is a place, a season, a time of day, the weather, and up to three groups of things in three positions.
`scene_captions.py` can name all of it, so a detailed caption identifies one scene among thousands.
`python -m auditor.demo.scenes OUT.png` draws a contact sheet.
"""

import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFilter

from auditor.demo.backdrops import LIGHTS, PLACES, apply_light, draw_backdrop, draw_weather
from auditor.demo.sprites import draw_sprite

SIDE = 256  # pixels of a finished picture
SCALE = 2  # of the canvas to the finished picture

BRIGHT = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "white", "black")
POSITIONS = {"left": 0.2, "middle": 0.5, "right": 0.8}
SEASONS = {  # that can be seen in a place
    "seaside": ("summer",),
    "desert": ("summer",),
    "city": ("summer", "winter"),
}
ALL_YEAR = ("summer", "autumn", "winter")
WEATHERS = ("clear", "clear", "clouds", "rain", "snow", "fog")


@dataclass(frozen=True, slots=True)
class Species:
    """Habitat, colors and relative size of a kind of thing."""

    habitat: str  # ground, air, water
    colors: tuple[str, ...] = BRIGHT
    size: float = 1.0


SPECIES = {
    "house": Species("ground", ("red", "yellow", "green", "blue", "pink", "white"), 1.25),
    "lighthouse": Species("ground", ("red", "blue", "green", "black"), 1.4),
    "windmill": Species("ground", ("red", "white", "blue", "brown"), 1.4),
    "tent": Species("ground", ("red", "orange", "yellow", "green", "blue", "purple")),
    "car": Species("ground"),
    "bus": Species("ground", ("red", "orange", "yellow", "green", "blue", "white"), 1.2),
    "tractor": Species("ground", ("red", "green", "blue", "yellow", "orange"), 1.1),
    "horse": Species("ground", ("brown", "white", "black", "grey"), 1.1),
    "cow": Species("ground", ("brown", "white", "black")),
    "sheep": Species("ground", ("white", "black"), 0.8),
    "dog": Species("ground", ("brown", "white", "black", "grey"), 0.8),
    "cat": Species("ground", ("orange", "white", "black", "grey"), 0.8),
    "snowman": Species("ground", ("red", "blue", "green", "black", "purple")),
    "umbrella": Species("ground", ("red", "orange", "yellow", "green", "blue", "purple", "pink", "black")),
    "balloon": Species("air", BRIGHT, 1.2),
    "kite": Species("air", BRIGHT, 0.9),
    "plane": Species("air", ("red", "orange", "yellow", "green", "blue", "white")),
    "airship": Species("air", ("red", "orange", "green", "blue", "purple", "white", "grey"), 1.2),
    "bird": Species("air", ("white", "black", "blue", "red", "brown"), 0.7),
    "sailboat": Species("water", BRIGHT, 1.1),
    "rowboat": Species("water", ("red", "orange", "yellow", "green", "blue", "white")),
    "swan": Species("water", ("white", "black"), 0.8),
}
WATERS = ("lake", "seaside")
Spot = tuple[float, float, float]  # center, foot and width, as shares of the picture's side


@dataclass(frozen=True, slots=True)
class Thing:
    """A group of `count` things of one kind and color, at one of three positions."""

    kind: str
    color: str
    count: int
    position: str
    large: bool
    flipped: bool

    @property
    def habitat(self) -> str:
        return SPECIES[self.kind].habitat


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that a caption can mention. `seed` determines other details (clouds, hills, flowers)."""

    place: str
    season: str
    time: str
    weather: str
    things: tuple[Thing, ...]
    seed: int


def imagine_thing(rng: random.Random, place: str, excluded: set[str], position: str) -> Thing:
    """Make up a thing that fits `place` and is not of an excluded kind."""
    habitats = ("ground", "ground", "air") if place not in WATERS else ("ground", "air", "water")
    habitat = rng.choice(habitats)
    kinds = [k for k, s in SPECIES.items() if s.habitat == habitat and k not in excluded]
    kinds = [k for k in kinds if k != "snowman" or place not in ("desert", "seaside")]
    kind = rng.choice(kinds)
    small = SPECIES[kind].size <= 1.0
    count = rng.choice((1, 1, 1, 2, 3)) if small else 1
    return Thing(kind, rng.choice(SPECIES[kind].colors), count, position, rng.random() < 0.5, rng.random() < 0.5)


def imagine_scene(rng: random.Random) -> Scene:
    """Make up a random scene."""
    place = rng.choice(list(PLACES))
    season = rng.choice(SEASONS.get(place, ALL_YEAR))
    weather = rng.choice(WEATHERS)
    if weather == "snow":
        season = "winter"
        if season not in SEASONS.get(place, ALL_YEAR):
            season, weather = "summer", "clouds"
    positions = list(POSITIONS)
    rng.shuffle(positions)
    things: list[Thing] = []
    for position in positions[: rng.choice((1, 2, 2, 3, 3))]:
        things.append(imagine_thing(rng, place, {t.kind for t in things}, position))
    return Scene(place, season, rng.choice(list(LIGHTS)), weather, tuple(things), rng.randrange(2**32))


def locate_members(thing: Thing, place: str, rng: random.Random) -> list[Spot]:
    """Center, foot and width of each member of a group, as shares of the picture's side."""
    width = (0.34 if thing.large else 0.25) * SPECIES[thing.kind].size
    foot = {"ground": 0.95 if place in WATERS else 0.9, "air": 0.4, "water": 0.74}[thing.habitat]
    foot = max(foot + rng.uniform(-0.03, 0.03), width + 0.01)
    x = POSITIONS[thing.position] + rng.uniform(-0.03, 0.03)
    x = min(max(x, width / 2 + 0.01), 0.99 - width / 2)
    if thing.count == 1:
        return [(x, foot, width)]
    width *= 0.62
    offsets = [(-0.1, -0.05), (0.1, 0.01)] if thing.count == 2 else [(-0.11, -0.07), (0.11, -0.05), (0.0, 0.06)]
    if thing.habitat == "ground":
        offsets = [(dx, dy * 0.7) for dx, dy in offsets]
    return [(x + dx, foot + dy, width) for dx, dy in offsets]


def paint_thing(canvas: Image.Image, thing: Thing, spot: Spot, time: str) -> None:
    """Paint one thing with its shadow or reflection."""
    side = canvas.size[0]
    x, foot, width = spot
    pixels = max(16, round(width * side / 4) * 4)  # few sizes, so that the sprite cache is effective
    x0, y0 = round(x * side - pixels / 2), round(foot * side - pixels)
    picture = apply_light(draw_sprite(thing.kind, thing.color, pixels, thing.flipped), LIGHTS[time])
    if thing.habitat == "ground":
        shadow = Image.new("L", (pixels, pixels // 5), 0)
        ImageDraw.Draw(shadow).ellipse((pixels * 0.08, 2, pixels * 0.92, pixels // 5 - 2), fill=90)
        shadow = shadow.filter(ImageFilter.BoxBlur(2))
        canvas.paste(Image.new("RGB", shadow.size, (20, 24, 40)), (x0, y0 + pixels - pixels // 9), shadow)
    elif thing.habitat == "water":
        mirror = picture.transpose(Image.Transpose.FLIP_TOP_BOTTOM).resize((pixels, pixels // 3))
        faint = mirror.getchannel("A").point([i // 4 for i in range(256)])
        canvas.paste(mirror.convert("RGB"), (x0, y0 + pixels - pixels // 20), faint)
    canvas.paste(picture, (x0, y0), picture)


def paint_backdrop(scene: Scene) -> Image.Image:
    """Paint the backdrop at the size of the canvas."""
    rng = random.Random(scene.seed)
    return draw_backdrop(scene.place, scene.season, scene.time, scene.weather, SIDE * SCALE, rng)


def draw_scene(scene: Scene) -> Image.Image:
    rng = random.Random(scene.seed + 1)
    return paint_scene(
        scene, [(thing, spot) for thing in scene.things for spot in locate_members(thing, scene.place, rng)]
    )


def paint_scene(scene: Scene, members: Sequence[tuple[Thing, Spot]]) -> Image.Image:
    """Paint backdrop, things at their positions and weather, and reduce them to the finished size."""
    canvas = paint_backdrop(scene)
    for thing, spot in sorted(members, key=lambda member: member[1][1]):  # nearer things in front
        paint_thing(canvas, thing, spot, scene.time)
    return draw_weather(canvas, scene.weather, random.Random(scene.seed + 2)).reduce(SCALE)


def draw_contact_sheet(seed: int, columns: int, rows: int) -> Image.Image:
    """Draw many scenes on one sheet."""
    rng = random.Random(seed)
    sheet = Image.new("RGB", (columns * SIDE, rows * SIDE))
    for i in range(columns * rows):
        sheet.paste(draw_scene(imagine_scene(rng)), (i % columns * SIDE, i // columns * SIDE))
    return sheet


if __name__ == "__main__":
    draw_contact_sheet(0, 6, 4).save(sys.argv[1])

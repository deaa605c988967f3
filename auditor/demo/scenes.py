"""What a drawn picture shows, and the drawing of it.

A `Scene` is a place, a season, a time of day, the weather, and up to three groups of things in three positions; all of
it can be named in words (`captions.py`), so that a detailed caption picks out one scene of thousands.
`imagine(rng)` makes one up, `draw(scene)` paints it. `python -m auditor.demo.scenes OUT.png` paints a contact sheet.
"""

import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFilter

from auditor.demo.backdrops import LIGHTS, PLACES, backdrop, in_light, in_weather
from auditor.demo.sprites import sprite

SIDE = 256  # pixels of a finished picture
SCALE = 2  # painted this much larger

BRIGHT = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "white", "black")
POSITIONS = {"left": 0.2, "middle": 0.5, "right": 0.8}
SEASONS = {  # those that show
    "seaside": ("summer",),
    "desert": ("summer",),
    "city": ("summer", "winter"),
}
ALL_YEAR = ("summer", "autumn", "winter")
WEATHERS = ("clear", "clear", "clouds", "rain", "snow", "fog")


@dataclass(frozen=True, slots=True)
class Species:
    """Where a thing belongs, the colours it comes in, and how large it is beside others."""

    habitat: str  # ground, air, water
    colours: tuple[str, ...] = BRIGHT
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
Spot = tuple[float, float, float]  # centre, foot and width, as shares of the picture's side


@dataclass(frozen=True, slots=True)
class Thing:
    """One group of like things: `count` of a species in one colour, at one of three positions."""

    kind: str
    colour: str
    count: int
    position: str
    large: bool
    flipped: bool

    @property
    def habitat(self) -> str:
        return SPECIES[self.kind].habitat


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that can be said of a picture; `seed` is the incidental rest (clouds, hills, flowers)."""

    place: str
    season: str
    time: str
    weather: str
    things: tuple[Thing, ...]
    seed: int


def imagine_thing(rng: random.Random, place: str, taken: set[str], position: str) -> Thing:
    """A thing that can be in `place` and is of no kind already there."""
    habitats = ("ground", "ground", "air") if place not in WATERS else ("ground", "air", "water")
    habitat = rng.choice(habitats)
    kinds = [k for k, s in SPECIES.items() if s.habitat == habitat and k not in taken]
    kinds = [k for k in kinds if k != "snowman" or place not in ("desert", "seaside")]
    kind = rng.choice(kinds)
    small = SPECIES[kind].size <= 1.0
    count = rng.choice((1, 1, 1, 2, 3)) if small else 1
    return Thing(kind, rng.choice(SPECIES[kind].colours), count, position, rng.random() < 0.5, rng.random() < 0.5)


def imagine(rng: random.Random) -> Scene:
    """Make up a scene."""
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


def spots(thing: Thing, place: str, rng: random.Random) -> list[Spot]:
    """Centre, foot and width of each member of a group, as shares of the picture's side."""
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


def place_thing(canvas: Image.Image, thing: Thing, where: Spot, time: str) -> None:
    """Paint one thing with the shadow it casts, or its reflection."""
    side = canvas.size[0]
    x, foot, width = where
    pixels = max(16, round(width * side / 4) * 4)  # few sizes, so that the cache of sprites helps
    left, top = round(x * side - pixels / 2), round(foot * side - pixels)
    picture = in_light(sprite(thing.kind, thing.colour, pixels, thing.flipped), LIGHTS[time])
    if thing.habitat == "ground":
        shadow = Image.new("L", (pixels, pixels // 5), 0)
        ImageDraw.Draw(shadow).ellipse((pixels * 0.08, 2, pixels * 0.92, pixels // 5 - 2), fill=90)
        shadow = shadow.filter(ImageFilter.BoxBlur(2))
        canvas.paste(Image.new("RGB", shadow.size, (20, 24, 40)), (left, top + pixels - pixels // 9), shadow)
    elif thing.habitat == "water":
        mirror = picture.transpose(Image.Transpose.FLIP_TOP_BOTTOM).resize((pixels, pixels // 3))
        faint = mirror.getchannel("A").point([i // 4 for i in range(256)])
        canvas.paste(mirror.convert("RGB"), (left, top + pixels - pixels // 20), faint)
    canvas.paste(picture, (left, top), picture)


def set_stage(scene: Scene) -> Image.Image:
    """The backdrop, at painting size."""
    rng = random.Random(scene.seed)
    return backdrop(scene.place, scene.season, scene.time, scene.weather, SIDE * SCALE, rng)


def draw(scene: Scene) -> Image.Image:
    """Paint the scene."""
    rng = random.Random(scene.seed + 1)
    return paint(scene, [(thing, where) for thing in scene.things for where in spots(thing, scene.place, rng)])


def paint(scene: Scene, members: Sequence[tuple[Thing, Spot]]) -> Image.Image:
    """Backdrop, things where they are said to be, weather; reduced to the finished size."""
    canvas = set_stage(scene)
    for thing, where in sorted(members, key=lambda member: member[1][1]):  # nearer things in front
        place_thing(canvas, thing, where, scene.time)
    return in_weather(canvas, scene.weather, random.Random(scene.seed + 2)).reduce(SCALE)


def contact_sheet(seed: int, columns: int, rows: int) -> Image.Image:
    """Many scenes on one sheet, to look at."""
    rng = random.Random(seed)
    sheet = Image.new("RGB", (columns * SIDE, rows * SIDE))
    for i in range(columns * rows):
        sheet.paste(draw(imagine(rng)), (i % columns * SIDE, i // columns * SIDE))
    return sheet


if __name__ == "__main__":
    contact_sheet(0, 6, 4).save(sys.argv[1])

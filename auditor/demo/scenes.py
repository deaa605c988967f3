"""Make up random scenes and draw them.

A `Scene` is a place, a season, a time of day, the weather, and up to three groups of things in three positions.
`scene_captions.py` can name all of it, so a detailed caption identifies one scene among thousands.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFilter

from auditor.demo.backdrops import LIGHTS, PLACES, apply_light, draw_backdrop, draw_weather
from auditor.demo.sprites import draw_sprite

SIDE = 256  # pixels of a finished picture
SCALE = 2  # of the canvas to the finished picture

BRIGHT = "red orange yellow green blue purple pink white black"
POSITIONS = {"left": 0.2, "middle": 0.5, "right": 0.8}
ALL_YEAR = ("summer", "autumn", "winter")
SEASONS = {"seaside": ("summer",), "desert": ("summer",), "city": ("summer", "winter")}  # ALL_YEAR in other places
WEATHERS = ("clear", "clear", "clouds", "rain", "snow", "fog")


@dataclass(frozen=True, slots=True)
class Species:
    """A kind of thing. Words of a list are separated by spaces (colors) or slashes (synonyms)."""

    habitat: str  # ground, air, water
    size: float
    colors: str
    names: str = ""  # by default the kind; `scene_captions` has others for things of which only a part is colored
    plurals: str = ""
    activity: str = "standing"
    motion: str = ""  # verb of a thing that can move


SPECIES = {
    "house": Species("ground", 1.25, "red yellow green blue pink white", "house/cottage", "houses/cottages"),
    "lighthouse": Species("ground", 1.4, "red blue green black"),
    "windmill": Species("ground", 1.4, "red white blue brown"),
    "tent": Species("ground", 1.0, "red orange yellow green blue purple", activity="pitched"),
    "car": Species("ground", 1.0, BRIGHT, activity="parked", motion="drives"),
    "bus": Species("ground", 1.2, "red orange yellow green blue white", "bus", "buses", "waiting", "drives"),
    "tractor": Species("ground", 1.1, "red green blue yellow orange", activity="parked", motion="drives"),
    "horse": Species("ground", 1.1, "brown white black grey", motion="gallops"),
    "cow": Species("ground", 1.0, "brown white black", activity="grazing", motion="walks"),
    "sheep": Species("ground", 0.8, "white black", "sheep", "sheep", "grazing", "walks"),
    "dog": Species("ground", 0.8, "brown white black grey", motion="runs"),
    "cat": Species("ground", 0.8, "orange white black grey", activity="sitting", motion="runs"),
    "snowman": Species("ground", 1.0, "red blue green black purple"),
    "umbrella": Species("ground", 1.0, "red orange yellow green blue purple pink black"),
    "balloon": Species("air", 1.2, BRIGHT, "hot-air balloon/balloon", "balloons", "floating", "drifts"),
    "kite": Species("air", 0.9, BRIGHT, activity="flying", motion="flies"),
    "plane": Species("air", 1.0, "red orange yellow green blue white", "plane/aeroplane", "planes", "flying", "flies"),
    "airship": Species("air", 1.2, "red orange green blue purple white grey", activity="floating", motion="drifts"),
    "bird": Species("air", 0.7, "white black blue red brown", activity="flying", motion="flies"),
    "sailboat": Species("water", 1.1, BRIGHT, "sailboat/sailing boat", "sailboats", "sailing", "sails"),
    "rowboat": Species(
        "water", 1.0, "red orange yellow green blue white", "rowing boat", "rowing boats", "drifting", "glides"
    ),
    "swan": Species("water", 0.8, "white black", activity="swimming", motion="swims"),
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
    habitat = rng.choice(("ground", "air", "water") if place in WATERS else ("ground", "ground", "air"))
    if place in ("desert", "seaside"):
        excluded = excluded | {"snowman"}
    kind = rng.choice([k for k, s in SPECIES.items() if s.habitat == habitat and k not in excluded])
    count = rng.choice((1, 1, 1, 2, 3)) if SPECIES[kind].size <= 1.0 else 1
    color = rng.choice(SPECIES[kind].colors.split())
    return Thing(kind, color, count, position, rng.random() < 0.5, rng.random() < 0.5)


def imagine_scene(rng: random.Random) -> Scene:
    place = rng.choice(list(PLACES))
    seasons = SEASONS.get(place, ALL_YEAR)
    season, weather = rng.choice(seasons), rng.choice(WEATHERS)
    if weather == "snow":
        season, weather = ("winter", "snow") if "winter" in seasons else ("summer", "clouds")
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
    rng = random.Random(scene.seed)
    return draw_backdrop(scene.place, scene.season, scene.time, scene.weather, SIDE * SCALE, rng)


def locate_things(scene: Scene, things: Sequence[Thing]) -> list[tuple[Thing, Spot]]:
    rng = random.Random(scene.seed + 1)
    return [(thing, spot) for thing in things for spot in locate_members(thing, scene.place, rng)]


def draw_scene(scene: Scene) -> Image.Image:
    return paint_scene(scene, locate_things(scene, scene.things))


def paint_scene(scene: Scene, members: Sequence[tuple[Thing, Spot]]) -> Image.Image:
    """Paint backdrop, things at their positions and weather, and reduce them to the finished size."""
    canvas = paint_backdrop(scene)
    for thing, spot in sorted(members, key=lambda member: member[1][1]):  # nearer things in front
        paint_thing(canvas, thing, spot, scene.time)
    return draw_weather(canvas, scene.weather, random.Random(scene.seed + 2)).reduce(SCALE)

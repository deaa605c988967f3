"""Captions of drawn scenes: a small grammar with synonyms, detailed enough that a caption identifies one scene.

`describe_scene` mentions all details, `describe_clip` adds the motion, `describe_in_part` omits most details, and
`write_vague_caption` fits any scene.
"""

import random
from collections.abc import Sequence

from auditor.demo.scenes import SPECIES, Scene, Thing

TIMES = {
    "dawn": ("at dawn", "at daybreak", "early in the morning"),
    "day": ("at noon", "by day", "in broad daylight"),
    "sunset": ("at sunset", "at dusk", "in the evening"),
    "night": ("at night", "after dark", "under the night sky"),
}
WEATHERS = {
    "clear": ("in clear weather", "under a clear sky"),
    "clouds": ("under many clouds", "in cloudy weather"),
    "rain": ("in the rain", "while rain falls"),
    "snow": ("in falling snow", "while it snows"),
    "fog": ("in thick fog", "in the mist"),
}
SEASONS = {"summer": ("green", "summer"), "autumn": ("autumn", "golden"), "winter": ("snowy", "snow-covered")}
PLACES = {
    "meadow": ("meadow", "field of gentle hills"),
    "mountains": ("valley below mountains", "valley with rocky peaks"),
    "lake": ("lake shore", "bank of a lake"),
    "seaside": ("sandy beach", "beach by the sea"),
    "desert": ("desert", "desert with cacti"),
    "village": ("village", "village with a church"),
    "forest": ("forest clearing", "glade in the forest"),
    "city": ("city street", "street of tall buildings"),
}
ON = ("lake", "seaside", "city")  # places with the preposition on; the others have in
POSITIONS = {
    "left": ("on the left", "at the left"),
    "middle": ("in the middle", "in the centre"),
    "right": ("on the right", "at the right"),
}
COUNTS = {1: ("a",), 2: ("two", "a pair of"), 3: ("three",)}
VAGUE = (
    ("a picture", "an image", "a photo", "a view", "a nice shot", "a beautiful picture", "a scene"),
    ("of something", "of some things", "with a few things in it", "of a place", "of the world", "from the archive"),
    ("", "outdoors", "outside", "somewhere", "on some day"),
)


def add_article(words: str) -> str:
    return ("an " if words[0] in "aeiou" else "a ") + words


def name_thing(thing: Thing, rng: random.Random) -> str:
    """Name a thing without its position: `a large red tent`, `two white sheep`."""
    size = rng.choice(("large", "big")) if thing.large else rng.choice(("small", "little"))
    if thing.kind == "snowman":
        singular, plural = f"snowman in {add_article(thing.color)} hat", f"snowmen in {thing.color} hats"
    elif thing.kind == "umbrella":
        singular, plural = f"person under {add_article(thing.color)} umbrella", f"people under {thing.color} umbrellas"
    else:
        species = SPECIES[thing.kind]
        singular = f"{thing.color} {rng.choice((species.names or thing.kind).split('/'))}"
        plural = f"{thing.color} {rng.choice((species.plurals or f'{thing.kind}s').split('/'))}"
    if thing.count == 1:
        return add_article(f"{size} {singular}" if rng.random() < 0.5 else singular)
    return f"{rng.choice(COUNTS[thing.count])} {plural}"


def describe_placed_thing(thing: Thing, rng: random.Random) -> str:
    """Name a thing with its position, and sometimes its activity."""
    verb = f" {SPECIES[thing.kind].activity}" if rng.random() < 0.3 else ""
    return f"{name_thing(thing, rng)}{verb} {rng.choice(POSITIONS[thing.position])}"


def join_with_and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def describe_setting(scene: Scene, rng: random.Random) -> str:
    """`a snowy village`, `a desert with cacti`."""
    place = rng.choice(PLACES[scene.place])
    if scene.place in ("seaside", "desert"):
        return add_article(place)
    if scene.place == "city" and scene.season == "summer":
        return add_article(f"{rng.choice(('dry', 'grey'))} {place}")
    return add_article(f"{rng.choice(SEASONS[scene.season])} {place}")


def describe_location(scene: Scene, rng: random.Random) -> str:
    """`in a snowy village`, `on a sandy beach`."""
    return f"{'on' if scene.place in ON else 'in'} {describe_setting(scene, rng)}"


def describe_circumstances(scene: Scene, rng: random.Random) -> str:
    time, weather = rng.choice(TIMES[scene.time]), rng.choice(WEATHERS[scene.weather])
    return f"{time} {weather}" if scene.weather != "clear" or rng.random() < 0.5 else time


def describe_things(things: Sequence[Thing], rng: random.Random) -> str:
    """Name all things in random order. Two things are sometimes related to each other instead of positioned."""
    order = list(things)
    rng.shuffle(order)
    if len(order) == 2 and rng.random() < 0.3:
        first, second = order
        ranks = list(POSITIONS)
        side = "left" if ranks.index(first.position) < ranks.index(second.position) else "right"
        return f"{name_thing(first, rng)} to the {side} of {name_thing(second, rng)}"
    return join_with_and([describe_placed_thing(thing, rng) for thing in order])


def describe_scene(scene: Scene, rng: random.Random) -> str:
    things, when = describe_things(scene.things, rng), describe_circumstances(scene, rng)
    frames = (
        f"{things}, {describe_location(scene, rng)} {when}",
        f"{describe_setting(scene, rng)} {when} with {things}",
        f"{when}, {things}, {describe_location(scene, rng)}",
        f"{describe_setting(scene, rng)} {when}: {things}",
    )
    return make_sentence(rng.choice(frames))


def describe_clip(scene: Scene, mover: Thing, motion: str, rng: random.Random) -> str:
    """A detailed caption of a clip: first the moving thing and its motion, then the other things."""
    still_things = [describe_placed_thing(thing, rng) for thing in scene.things if thing is not mover]
    still = f", with {join_with_and(still_things)}" if still_things else ""
    moving = f"{name_thing(mover, rng)} {motion}"
    location, circumstances = describe_location(scene, rng), describe_circumstances(scene, rng)
    return make_sentence(f"{moving} {location} {circumstances}{still}")


def describe_in_part(scene: Scene, rng: random.Random) -> str:
    """A true caption that fits many scenes: only the setting, or only one thing."""
    if rng.random() < 0.5:
        return make_sentence(f"{describe_setting(scene, rng)} {rng.choice(TIMES[scene.time])}")
    return make_sentence(name_thing(rng.choice(scene.things), rng))


def write_vague_caption(rng: random.Random) -> str:
    return make_sentence(" ".join(part for part in map(rng.choice, VAGUE) if part))


def make_sentence(words: str) -> str:
    return words[0].upper() + words[1:] + "."

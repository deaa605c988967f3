"""Words for drawn scenes: a small grammar with synonyms, detailed enough that a caption picks out one scene.

`describe` says everything that matters, `describe_clip` adds the motion, `describe_in_part` leaves most of it out, and
`vague` says nothing that tells scenes apart.
"""

import random
from collections.abc import Sequence

from auditor.demo.scenes import Scene, Thing

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
ON = ("lake", "seaside", "city")  # one is on a shore or a street, but in a desert
POSITIONS = {
    "left": ("on the left", "at the left"),
    "middle": ("in the middle", "in the centre"),
    "right": ("on the right", "at the right"),
}
# singular, plural, and what such a thing does
NAMES: dict[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {
    "house": (("house", "cottage"), ("houses", "cottages"), "standing"),
    "lighthouse": (("lighthouse",), ("lighthouses",), "standing"),
    "windmill": (("windmill",), ("windmills",), "standing"),
    "tent": (("tent",), ("tents",), "pitched"),
    "car": (("car",), ("cars",), "parked"),
    "bus": (("bus",), ("buses",), "waiting"),
    "tractor": (("tractor",), ("tractors",), "parked"),
    "horse": (("horse",), ("horses",), "standing"),
    "cow": (("cow",), ("cows",), "grazing"),
    "sheep": (("sheep",), ("sheep",), "grazing"),
    "dog": (("dog",), ("dogs",), "standing"),
    "cat": (("cat",), ("cats",), "sitting"),
    "balloon": (("hot-air balloon", "balloon"), ("balloons",), "floating"),
    "kite": (("kite",), ("kites",), "flying"),
    "plane": (("plane", "aeroplane"), ("planes",), "flying"),
    "airship": (("airship",), ("airships",), "floating"),
    "bird": (("bird",), ("birds",), "flying"),
    "sailboat": (("sailboat", "sailing boat"), ("sailboats",), "sailing"),
    "rowboat": (("rowing boat",), ("rowing boats",), "drifting"),
    "swan": (("swan",), ("swans",), "swimming"),
}
COUNTS = {1: ("a",), 2: ("two", "a pair of"), 3: ("three",)}
VAGUE = (
    ("a picture", "an image", "a photo", "a view", "a nice shot", "a beautiful picture", "a scene"),
    ("of something", "of some things", "with a few things in it", "of a place", "of the world", "from the archive"),
    ("", "outdoors", "outside", "somewhere", "on some day"),
)


def article(words: str) -> str:
    return ("an " if words[0] in "aeiou" else "a ") + words


def name(thing: Thing, rng: random.Random) -> str:
    """The thing in words, without its position: `a large red tent`, `two white sheep`."""
    large = rng.choice(("large", "big")) if thing.large else rng.choice(("small", "little"))
    if thing.kind in ("snowman", "umbrella"):
        one, many = {
            "snowman": (f"snowman in {article(thing.colour)} hat", f"snowmen in {thing.colour} hats"),
            "umbrella": (f"person under {article(thing.colour)} umbrella", f"people under {thing.colour} umbrellas"),
        }[thing.kind]
    else:
        singular, plural, _ = NAMES[thing.kind]
        one, many = f"{thing.colour} {rng.choice(singular)}", f"{thing.colour} {rng.choice(plural)}"
    if thing.count == 1:
        return article(f"{large} {one}" if rng.random() < 0.5 else one)
    return f"{rng.choice(COUNTS[thing.count])} {many}"


def doing(thing: Thing) -> str:
    return NAMES[thing.kind][2] if thing.kind in NAMES else "standing"


def placed(thing: Thing, rng: random.Random) -> str:
    """The thing with its position, and sometimes with what it does."""
    verb = f" {doing(thing)}" if rng.random() < 0.3 else ""
    return f"{name(thing, rng)}{verb} {rng.choice(POSITIONS[thing.position])}"


def joined(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def setting(scene: Scene, rng: random.Random) -> str:
    """`a snowy village`, `a desert with cacti`."""
    place = rng.choice(PLACES[scene.place])
    if scene.place in ("seaside", "desert"):
        return article(place)
    if scene.place == "city" and scene.season == "summer":
        return article(f"{rng.choice(('dry', 'grey'))} {place}")
    return article(f"{rng.choice(SEASONS[scene.season])} {place}")


def located(scene: Scene, rng: random.Random) -> str:
    """`in a snowy village`, `on a sandy beach`."""
    return f"{'on' if scene.place in ON else 'in'} {setting(scene, rng)}"


def circumstances(scene: Scene, rng: random.Random) -> str:
    time, weather = rng.choice(TIMES[scene.time]), rng.choice(WEATHERS[scene.weather])
    return f"{time} {weather}" if scene.weather != "clear" or rng.random() < 0.5 else time


def things_in_words(things: Sequence[Thing], rng: random.Random) -> str:
    """All of them, in random order; two things sometimes by their relation instead of by their positions."""
    order = list(things)
    rng.shuffle(order)
    if len(order) == 2 and rng.random() < 0.3:
        first, second = order
        ranks = list(POSITIONS)
        side = "left" if ranks.index(first.position) < ranks.index(second.position) else "right"
        return f"{name(first, rng)} to the {side} of {name(second, rng)}"
    return joined([placed(thing, rng) for thing in order])


def describe(scene: Scene, rng: random.Random) -> str:
    """A detailed caption of a scene."""
    things, when = things_in_words(scene.things, rng), circumstances(scene, rng)
    frames = (
        f"{things}, {located(scene, rng)} {when}",
        f"{setting(scene, rng)} {when} with {things}",
        f"{when}, {things}, {located(scene, rng)}",
        f"{setting(scene, rng)} {when}: {things}",
    )
    return sentence(rng.choice(frames))


def describe_clip(scene: Scene, mover: Thing, motion: str, rng: random.Random) -> str:
    """A detailed caption of a clip: what moves first, and how, then the rest as for a scene."""
    rest = [thing for thing in scene.things if thing is not mover]
    also = f", with {joined([placed(thing, rng) for thing in rest])}" if rest else ""
    return sentence(f"{name(mover, rng)} {motion} {located(scene, rng)} {circumstances(scene, rng)}{also}")


def describe_in_part(scene: Scene, rng: random.Random) -> str:
    """True, but of many scenes: only the setting, or only one of the things."""
    if rng.random() < 0.5:
        return sentence(f"{setting(scene, rng)} {rng.choice(TIMES[scene.time])}")
    return sentence(name(rng.choice(scene.things), rng))


def vague(rng: random.Random) -> str:
    """Says nothing that tells scenes apart."""
    return sentence(" ".join(part for part in map(rng.choice, VAGUE) if part))


def sentence(words: str) -> str:
    return words[0].upper() + words[1:] + "."

"""Short clips of drawn scenes in which one thing moves, encoded as MP4.

A `Clip` has one shot; one with several is the planted defect "several scenes cut together".
"""

import io
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import av
import numpy as np
from PIL import Image

from auditor.demo.backdrops import in_weather
from auditor.demo.scene_captions import describe_clip
from auditor.demo.scenes import SCALE, SIDE, WATERS, Scene, Spot, Thing, imagine, paint, place_thing, set_stage, spots

FPS = 8
FRAMES = 24
CODECS = (("libx264", {"preset": "veryfast", "crf": "24"}), ("mpeg4", {"qscale": "4"}))  # the first that there is

# what moves, and the verbs for it
VERBS = {
    "car": "drives",
    "bus": "drives",
    "tractor": "drives",
    "horse": "gallops",
    "cow": "walks",
    "sheep": "walks",
    "dog": "runs",
    "cat": "runs",
    "balloon": "drifts",
    "kite": "flies",
    "plane": "flies",
    "airship": "drifts",
    "bird": "flies",
    "sailboat": "sails",
    "rowboat": "glides",
    "swan": "swims",
}
PATHS = {"right": "from left to right", "left": "from right to left", "up": "upwards", "down": "downwards"}


@dataclass(frozen=True, slots=True)
class Shot:
    """A scene whose first thing moves along a path."""

    scene: Scene
    path: str

    @property
    def mover(self) -> Thing:
        return self.scene.things[0]


@dataclass(frozen=True, slots=True)
class Clip:
    shots: tuple[Shot, ...]


def imagine_shot(rng: random.Random) -> Shot:
    """Make up a scene in which something can move."""
    scene = imagine(rng)
    while scene.things[0].kind not in VERBS:
        scene = imagine(rng)
    mover = replace(scene.things[0], count=1)
    path = rng.choice(list(PATHS) if mover.kind in ("balloon", "kite", "airship") else ["right", "left"])
    mover = replace(mover, flipped=path == "left", position="middle")
    rest = tuple(thing for thing in scene.things[1:] if thing.position != "middle" and thing.habitat != mover.habitat)[
        :1
    ]
    return Shot(replace(scene, things=(mover, *rest)), path)


def caption(shot: Shot, rng: random.Random) -> str:
    """A detailed caption of a shot, motion included."""
    return describe_clip(shot.scene, shot.mover, f"{VERBS[shot.mover.kind]} {PATHS[shot.path]}", rng)


def position(shot: Shot, moment: float) -> Spot:
    """Where the moving thing is at a moment from 0 to 1: centre, foot and width."""
    x, foot, width = spots(shot.mover, shot.scene.place, random.Random(shot.scene.seed + 1))[0]
    reach = 0.5 - width / 2
    if shot.path in ("left", "right"):
        along = 0.5 + (moment - 0.5) * 2 * reach * (1 if shot.path == "right" else -1)
        return along, foot, width
    low, high = 0.8 if shot.scene.place not in WATERS else 0.7, width + 0.02
    return x, (low + (high - low) * moment) if shot.path == "up" else (high + (low - high) * moment), width


def frames(shot: Shot, count: int) -> Iterator[Image.Image]:
    """The pictures of a shot; what stands still is painted once."""
    scene = shot.scene
    canvas = set_stage(scene)
    rng = random.Random(scene.seed + 1)
    for thing in scene.things[1:]:
        for where in spots(thing, scene.place, rng):
            place_thing(canvas, thing, where, scene.time)
    still = canvas.reduce(SCALE)
    for i in range(count):
        moment = i / max(1, count - 1)
        frame = still.copy()
        place_thing(frame, shot.mover, position(shot, moment), scene.time)
        yield in_weather(frame, scene.weather, random.Random(scene.seed + 2), drift=moment)


def still(shot: Shot, moment: float) -> Image.Image:
    """One frame of a shot, as a picture."""
    rng = random.Random(shot.scene.seed + 1)
    members = [(thing, where) for thing in shot.scene.things[1:] for where in spots(thing, shot.scene.place, rng)]
    return paint(shot.scene, [*members, (shot.mover, position(shot, moment))])


def film(clip: Clip) -> Iterator[Image.Image]:
    """All frames of a clip; several shots share its length."""
    for shot in clip.shots:
        yield from frames(shot, FRAMES // len(clip.shots))


def encode(pictures: Iterator[Image.Image]) -> bytes:
    """MP4 with fixed settings and one thread, so that the same pictures give the same bytes."""
    buffer = io.BytesIO()
    codec, options = next((c, o) for c, o in CODECS if c in av.codecs_available)
    with av.open(buffer, "w", format="mp4", options={"fflags": "+bitexact"}) as container:
        stream = container.add_stream(codec, rate=FPS, options=options)
        stream.width = stream.height = SIDE
        stream.pix_fmt = "yuv420p"
        stream.thread_count = 1
        stream.time_base = Fraction(1, FPS)
        for i, picture in enumerate(pictures):
            frame = av.VideoFrame.from_ndarray(np.asarray(picture), format="rgb24")
            frame.pts = i
            frame.time_base = Fraction(1, FPS)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return buffer.getvalue()

"""Short clips of drawn scenes in which one thing moves, encoded as MP4.

A sound `Clip` has one shot; several shots are the planted defect "multi_scene".
"""

import io
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import av
import numpy as np
from PIL import Image

from auditor.demo.backdrops import draw_weather
from auditor.demo.scene_captions import describe_clip
from auditor.demo.scenes import (
    SCALE,
    SIDE,
    SPECIES,
    WATERS,
    Scene,
    Spot,
    Thing,
    imagine_scene,
    locate_things,
    paint_backdrop,
    paint_scene,
    paint_thing,
)

FPS = 8
FRAMES = 24
# The first available codec is used.
CODECS = (("libx264", {"preset": "veryfast", "crf": "24"}), ("mpeg4", {"qscale": "4"}))

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
    """Make up a random scene in which the first thing moves."""
    scene = imagine_scene(rng)
    while not SPECIES[scene.things[0].kind].motion:
        scene = imagine_scene(rng)
    mover = replace(scene.things[0], count=1)
    path = rng.choice(list(PATHS) if mover.kind in ("balloon", "kite", "airship") else ["right", "left"])
    mover = replace(mover, flipped=path == "left", position="middle")
    things = [thing for thing in scene.things[1:] if thing.position != "middle" and thing.habitat != mover.habitat]
    return Shot(replace(scene, things=(mover, *things[:1])), path)


def describe_shot(shot: Shot, rng: random.Random) -> str:
    return describe_clip(shot.scene, shot.mover, f"{SPECIES[shot.mover.kind].motion} {PATHS[shot.path]}", rng)


def locate_mover(shot: Shot, moment: float) -> Spot:
    """Center, foot and width of the moving thing at a moment from 0 to 1."""
    ((_, (x, foot, width)),) = locate_things(shot.scene, [shot.mover])
    reach = 0.5 - width / 2
    if shot.path in ("left", "right"):
        return 0.5 + (moment - 0.5) * 2 * reach * (1 if shot.path == "right" else -1), foot, width
    start, end = 0.7 if shot.scene.place in WATERS else 0.8, width + 0.02
    if shot.path == "down":
        start, end = end, start
    return x, start + (end - start) * moment, width


def draw_shot(shot: Shot, count: int) -> Iterator[Image.Image]:
    """The frames of a shot. Everything that does not move is painted once."""
    scene = shot.scene
    canvas = paint_backdrop(scene)
    for thing, spot in locate_things(scene, scene.things[1:]):
        paint_thing(canvas, thing, spot, scene.time)
    still = canvas.reduce(SCALE)
    for i in range(count):
        moment = i / max(1, count - 1)
        frame = still.copy()
        paint_thing(frame, shot.mover, locate_mover(shot, moment), scene.time)
        yield draw_weather(frame, scene.weather, random.Random(scene.seed + 2), drift=moment)


def draw_still(shot: Shot, moment: float) -> Image.Image:
    members = locate_things(shot.scene, shot.scene.things[1:])
    return paint_scene(shot.scene, [*members, (shot.mover, locate_mover(shot, moment))])


def draw_clip(clip: Clip) -> Iterator[Image.Image]:
    """All frames of a clip. Several shots share its length."""
    for shot in clip.shots:
        yield from draw_shot(shot, FRAMES // len(clip.shots))


def encode_mp4(pictures: Iterator[Image.Image]) -> bytes:
    """Encode as MP4 with fixed settings and one thread, so that the same pictures give the same bytes."""
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

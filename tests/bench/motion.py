"""Compare motion facts with the truth: cuts of generated films, clips of several scenes, and the cost of --motion.

    python -m tests.bench.motion [cuts] [scenes] [cost]

`cuts`: films of Flickr8k photos with pans and zooms of all speeds, objects that pass by, flashes and cuts, encoded as
H.264 and decoded again. `scenes`: the demo's clips of one scene and of three. `cost`: processor seconds on one thread
of the sweep of a video (12 frames, decoded and encoded by ViT-B-32) without and with `--motion`.
"""

import io
import random
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from PIL import Image

from auditor.console import print_table
from auditor.demo.scene_clips import Clip, encode_mp4, imagine_shot
from auditor.demo.scene_clips import draw_clip as demo_film
from model.pixels import Pixels
from model.video.video_decode import decode_frames
from model.video.video_facts import Motion
from tests.conftest import SHARED
from tests.support.clips import encode_clip

SIZE = (160, 120)
FILMS, RATE, NEAR = 120, 25, 0.1  # films; frames a second; seconds within which a cut is found
SOUND, SEVERAL, FIRST = 400, 200, 80_000  # clips of the demo, and the seed of the first


def photos() -> list[Image.Image]:
    path = SHARED / "data/flickr8k/train-00002.tar"
    if not path.is_file():
        raise SystemExit(f"{path} is not there")
    with tarfile.open(path) as tar:
        names = [name for name in tar.getnames() if name.endswith(".jpg")][:400]
        return [Image.open(io.BytesIO(tar.extractfile(name).read())).convert("RGB") for name in names]  # type: ignore[union-attr]


def scene(pool: list[Image.Image], length: int, rng: random.Random) -> Iterator[Pixels]:
    """A photo that is panned and zoomed; an object passes in a third of the scenes, a tenth has a flash."""
    wide = rng.choice(pool).resize((240, 180))
    x, y, dx, dy = rng.uniform(0, 80), rng.uniform(0, 60), rng.uniform(-4, 4), rng.uniform(-2, 2)
    zoom = rng.choice((0.0, rng.uniform(-0.004, 0.004)))
    thing = rng.choice(pool).resize((rng.randint(30, 70), rng.randint(30, 90))) if rng.random() < 1 / 3 else None
    flash = rng.randrange(3, length - 3) if rng.random() < 0.1 and length > 12 else None
    for i in range(length):
        side = min(1.0, max(0.6, 1 - zoom * i))
        width, height = 160 * side, 120 * side
        left, top = bounce(x + dx * i, 240 - width), bounce(y + dy * i, 180 - height)
        picture = wide.resize(SIZE, Image.Resampling.BILINEAR, (left, top, left + width, top + height))
        if thing:
            picture.paste(thing, (int(-70 + 5 * i), 30))
        shown = np.asarray(picture, np.float64) + (150 if i == flash else 0)
        yield np.clip(shown, 0, 255).astype(np.uint8)


def bounce(value: float, most: float) -> float:
    """Back and forth between 0 and `most`."""
    return abs((value + most) % (2 * most) - most) if most > 0 else 0.0


def looked_at(data: bytes) -> Motion:
    facts = decode_frames(data, 4, motion=True).facts
    assert facts is not None and facts.motion is not None
    return facts.motion


def cuts() -> None:
    pool, hit, false, missed, errors = photos(), 0, 0, 0, []
    for number in range(FILMS):
        rng = random.Random(f"film {number}")
        lengths = [rng.randint(12, 60) for _ in range(rng.randint(1, 6))]
        parts = (picture for length in lengths for picture in scene(pool, length, rng))
        true = [float(at) / RATE for at in np.cumsum(lengths)[:-1]]
        found = list(looked_at(encode_clip(parts, rate=RATE)).cuts or ())
        for at in true:
            near = min(found, key=lambda one: abs(one - at), default=None)
            if near is not None and abs(near - at) <= NEAR:
                hit += 1
                found.remove(near)
                errors.append(abs(near - at))
            else:
                missed += 1
        false += len(found)
    row = {"films": FILMS, "cuts": hit + missed, "found": hit, "missed": missed, "false": false}
    score = {"F1": 2 * hit / (2 * hit + false + missed), "median error, s": float(np.median(errors))}
    print_table([row | score], f"cuts of films of photos, found within {NEAR} s")


def scenes() -> None:
    found = {}
    for name, count, shots in (("one scene", SOUND, 1), ("three scenes", SEVERAL, 3)):
        clips = []
        for number in range(count):
            rng = random.Random(FIRST + 1000 * shots + number)
            clips.append(Clip(tuple(imagine_shot(rng) for _ in range(shots))))
        found[name] = [len(looked_at(encode_mp4(demo_film(clip))).cuts or ()) for clip in clips]
    rows = [{"clips": name, "of": len(n), "with a cut": f"{np.mean(np.array(n) > 0):.1%}"} for name, n in found.items()]
    exact = np.mean(np.array(found["three scenes"]) == 2)
    print_table(rows, f"clips of the demo; both cuts of three scenes are found in {exact:.1%} of the clips")


def seconds(work: Callable[[], Any], rounds: int = 3) -> float:
    times = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def cost() -> None:
    import torch

    from model.backbone import load_backbone
    from tests.bench.decoders import picture

    torch.set_num_threads(1)
    tower = load_backbone("ViT-B-32")
    pixels = np.zeros((12, 224, 224, 3), np.uint8)
    tower.encode_images(pixels)
    encoding = seconds(lambda: tower.encode_images(pixels))
    rows = []
    for name, size, length in (("240p", (320, 240), 15), ("480p", (854, 480), 10), ("1080p", (1920, 1080), 10)):
        data = encode_clip((picture(*size, number) for number in range(length * RATE)), rate=RATE)
        plain = seconds(lambda: decode_frames(data, 12, spec=tower.pixels))  # noqa: B023
        close = seconds(lambda: decode_frames(data, 12, spec=tower.pixels, motion=True))  # noqa: B023
        more = {"decode": plain, "with --motion": close, "encode": encoding}
        rows.append({"clip": f"{name}, {length} s", **more, "dearer by": f"{(close - plain) / (plain + encoding):.0%}"})
    print_table(rows, "processor seconds per video, one thread")


if __name__ == "__main__":
    for name in sys.argv[1:] or ("cuts", "scenes", "cost"):
        {"cuts": cuts, "scenes": scenes, "cost": cost}[name]()

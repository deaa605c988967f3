"""Draw a contact sheet of videos with the facts that `--motion` measures, for people to look at.

    python -m tests.bench.contact_sheet docs/screenshots/motion.jpg               # videos made here
    python -m tests.bench.contact_sheet /tmp/sheet.jpg ../shared/data/video/*.m*  # some files

One row per video: frames at the centers of twelve equal parts, a bar at frames that follow a cut, and the facts.
"""

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from auditor.demo.scene_clips import Clip, draw_shot, imagine_shot
from auditor.demo.scene_clips import draw_clip as demo_film
from model.pixels import Pixels
from model.video.video_decode import Frames, decode_frames
from tests.support.clips import encode_clip

ACROSS, WIDTH, HEIGHT, TEXT = 12, 96, 72, 26
CUT = (232, 60, 40)


def shot(seed: int, count: int) -> Iterator[Pixels]:
    return (np.asarray(picture) for picture in draw_shot(imagine_shot(random.Random(seed)), count))


def held(seed: int, count: int) -> Iterator[Pixels]:
    picture = next(shot(seed, 1))
    return (picture for _ in range(count))


def barred(seed: int, count: int) -> Iterator[Pixels]:
    for picture in shot(seed, count):
        shown = picture.copy()
        edge = len(shown) // 7
        shown[:edge] = shown[-edge:] = 0
        yield shown


def made() -> dict[str, bytes]:
    """Generated videos with known facts."""
    black = np.zeros_like(next(shot(1, 1)))
    several = Clip(tuple(imagine_shot(random.Random(seed)) for seed in (11, 12, 13)))
    plain: dict[str, Iterator[Pixels]] = {
        "one scene": shot(3, 40),
        "three scenes cut together": (np.asarray(picture) for picture in demo_film(several)),
        "a slide show": (picture for seed in (21, 22, 23, 24) for picture in held(seed, 12)),
        "a photo sold as a video": held(31, 40),
        "bars above and below": barred(41, 40),
        "half of it black": (picture for part in (shot(51, 20), iter([black] * 20)) for picture in part),
        "frozen from the middle on": (picture for part in (shot(61, 20), held(61, 20)) for picture in part),
    }
    return {name: encode_clip(pictures, rate=8) for name, pictures in plain.items()}


def words(found: Frames) -> str:
    assert found.facts is not None and found.facts.motion is not None
    motion, facts = found.facts.motion, found.facts
    cuts = ", ".join(f"{cut:.2f}" for cut in motion.cuts or ()) or "none"
    shares = ("frozen_share", "slideshow_share", "black_share", "letterbox")
    parts = [f"{name} {getattr(motion, name) or 0:.2f}" for name in shares]
    moving = f"motion {motion.motion or 0:.3f} (peak {motion.motion_peak or 0:.3f})"
    rate = f"{facts.frame_rate:.2f} frames/s{'' if facts.constant_rate else ', not constant'}"
    more = [rate, "sound" if facts.audio else "no sound", *(["still_picture"] if motion.still else [])]
    return f"{found.duration:.1f} s   cuts {cuts}   {moving}   {'   '.join([*parts, *more])}"


def row(name: str, data: bytes) -> Image.Image:
    found = decode_frames(data, ACROSS, motion=True)
    assert found.facts is not None and found.facts.motion is not None
    cuts = found.facts.motion.cuts or ()
    strip = Image.new("RGB", (ACROSS * WIDTH, HEIGHT + TEXT), "white")
    draw = ImageDraw.Draw(strip)
    draw.text((2, 1), name, fill="black")
    draw.text((2, 13), words(found), fill=(90, 90, 90))
    before = 0.0
    for place, (image, time) in enumerate(zip(found.images, found.times, strict=True)):
        picture = Image.fromarray(image)
        picture.thumbnail((WIDTH - 2, HEIGHT))
        strip.paste(picture, (place * WIDTH + 2, TEXT))
        if any(before < cut <= time for cut in cuts):
            draw.rectangle((place * WIDTH - 1, TEXT, place * WIDTH + 1, TEXT + picture.height - 1), fill=CUT)
        before = time
    return strip


def main(target: str, files: list[str]) -> None:
    videos = {Path(file).name: Path(file).read_bytes() for file in files} or made()
    strips = [row(name, data) for name, data in videos.items()]
    sheet = Image.new("RGB", (ACROSS * WIDTH, len(strips) * (HEIGHT + TEXT)), "white")
    for place, strip in enumerate(strips):
        sheet.paste(strip, (0, place * (HEIGHT + TEXT)))
    sheet.save(target, quality=60)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

"""Motion facts of generated videos with known cuts, stills, bars and black frames."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from model.pixels import Pixels
from model.video.video_decode import decode_frames
from model.video.video_facts import VideoFacts, convert_to_gray, find_cuts, measure_motion
from tests.support.clips import encode_clip

Scene = Callable[[int], Pixels]


def texture(seed: int) -> Pixels:
    """A large smooth random picture to pan over."""
    coarse = np.random.default_rng(seed).integers(0, 256, (18, 18, 3), dtype=np.uint8)
    return np.repeat(np.repeat(coarse, 16, axis=0), 16, axis=1)


def panned(seed: int, speed: float) -> Scene:
    wide = texture(seed)
    return lambda i: wide[20 : 20 + 96, abs(int(speed * i) % 280 - 140) :][:, :128]  # back and forth


def scenes(*parts: tuple[Scene, int]) -> Iterator[Pixels]:
    for scene, count in parts:
        yield from (scene(i) for i in range(count))


def facts(*parts: tuple[Scene, int]) -> VideoFacts:
    found = decode_frames(encode_clip(scenes(*parts)), 4, motion=True).facts
    assert found is not None and found.motion is not None
    return found


def test_cuts_are_found_where_they_are() -> None:
    """F1 of at least 0.95 on a hundred films of one to five scenes with pans of all speeds."""
    generator = np.random.default_rng(0)
    hit = false = missed = 0
    for number in range(100):
        lengths = generator.integers(10, 40, generator.integers(1, 6))
        speeds = generator.uniform(0, 6, len(lengths))
        each = zip(lengths.tolist(), speeds.tolist(), strict=True)
        parts = [(panned(number * 10 + i, speed), length) for i, (length, speed) in enumerate(each)]
        small = np.stack([picture[::3, ::4] for picture in scenes(*parts)])
        found, true = set(find_cuts(convert_to_gray(small)).tolist()), set(np.cumsum(lengths)[:-1].tolist())
        hit, false, missed = hit + len(found & true), false + len(found - true), missed + len(true - found)
    assert 2 * hit / (2 * hit + false + missed) >= 0.95, (hit, false, missed)


def test_cuts_of_an_encoded_film() -> None:
    found = facts((panned(1, 1), 30), (panned(2, 3), 24), (panned(3, 0), 40))
    assert found.motion is not None and found.motion.cuts == pytest.approx([30 / 25, 54 / 25], abs=0.09)
    assert not found.motion.still and (found.motion.motion or 0) > 0.01
    assert found.frame_rate == pytest.approx(25) and found.constant_rate and not found.audio


def test_a_flash_is_no_cut() -> None:
    pictures = np.stack([*scenes((panned(1, 1), 40))])[:, ::3, ::4].copy()
    pictures[20] = 255
    assert not len(find_cuts(convert_to_gray(pictures)))


def test_a_photo_stored_as_a_video() -> None:
    still = facts((panned(1, 0), 40)).motion
    assert still is not None and still.still and still.frozen_share == 1.0 and still.slideshow_share == 0.0
    few = decode_frames(encode_clip(scenes((panned(1, 0), 40))), 4).facts
    assert few is not None and few.motion is not None and few.motion.still and few.motion.cuts is None


@pytest.mark.parametrize("options", [{"crf": "18"}, {"crf": "36"}, {"codec": "mpeg4", "qscale": "8"}], ids=str)
def test_a_photo_is_still_however_it_is_coded(options: dict[str, str]) -> None:
    """Encoders refine a still picture from frame to frame, bad ones visibly."""
    soft = np.asarray(Image.fromarray(texture(1)[:96:16, :128:16]).resize((256, 192), Image.Resampling.BICUBIC))
    data = encode_clip([soft] * 40, **options)
    for motion in (False, True):
        found = decode_frames(data, 12, motion=motion).facts
        assert found is not None and found.motion is not None and found.motion.still


def test_a_small_thing_that_moves_is_no_still_picture() -> None:
    def passing(i: int) -> Pixels:
        picture = panned(1, 0)(i).copy()
        picture[40:52, i : i + 12] = 255 - picture[40:52, i : i + 12]
        return picture

    found = facts((passing, 40)).motion
    assert found is not None and not found.still and found.frozen_share == pytest.approx(0, abs=0.05)


def test_a_slide_show() -> None:
    shown = facts((panned(1, 0), 50), (panned(2, 0), 50), (panned(3, 0), 50)).motion
    assert shown is not None and not shown.still
    assert shown.slideshow_share is not None and shown.slideshow_share > 0.9 and len(shown.cuts or ()) == 2


def test_black_frames_and_bars() -> None:
    def barred(i: int) -> Pixels:
        picture = panned(1, 1)(i).copy()
        picture[:12] = picture[-12:] = 16
        return picture

    found = facts((barred, 30), (lambda i: np.full((96, 128, 3), 8, np.uint8), 10)).motion
    assert found is not None
    assert found.black_share == pytest.approx(0.25, abs=0.03) and found.letterbox == pytest.approx(0.25, abs=0.04)


def test_pictures_far_apart_give_no_motion() -> None:
    pictures = np.stack([texture(seed)[:32, :32] for seed in range(6)])
    found = measure_motion(pictures, [0.0, 10, 20, 30, 40, 50])
    assert found.cuts is None and found.motion is None and not found.still and found.frozen_share == 0.0
    frozen = measure_motion(pictures[[0, 1, 2, 2, 2, 2]], [0.0, 10, 20, 30, 40, 50])
    assert frozen.frozen_share == pytest.approx(0.6) and frozen.slideshow_share is None
    assert measure_motion(pictures[:1], [0.0]).frozen_share is None


def test_real_clips(shared: Path) -> None:
    """Checked by eye: bikes.mp4 has cuts at 1.2, 3.04, 5.5, 7.5 and 9.7 s, the pancake is one take."""
    folder = shared / "data" / "video"
    for name, cuts in (("bikes.mp4", [1.2, 3.04, 5.52, 7.52, 9.68]), ("flipping_a_pancake.mkv", [])):
        found = decode_frames((folder / name).read_bytes(), 4, motion=True).facts
        assert found is not None and found.motion is not None
        assert found.motion.cuts == pytest.approx(cuts, abs=0.09)
        assert found.motion.frozen_share == pytest.approx(0, abs=0.05)

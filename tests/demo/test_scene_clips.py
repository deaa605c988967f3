"""Clips decode, move as their captions say, and have hard cuts between scenes."""

import io
import itertools
import random

import av
import numpy as np
import pytest

from auditor.demo.scene_clips import (
    FPS,
    FRAMES,
    PATHS,
    Clip,
    Shot,
    describe_shot,
    draw_clip,
    draw_shot,
    draw_still,
    encode_mp4,
    imagine_shot,
)
from auditor.demo.scenes import SIDE, Scene, Thing

CALM = Scene("meadow", "summer", "day", "clear", (Thing("kite", "red", 1, "middle", True, False),), seed=4)


def decoded(data: bytes) -> np.ndarray:
    with av.open(io.BytesIO(data)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def find_center(picture: np.ndarray) -> np.ndarray:
    """Center (x, y) of the only red thing in the picture."""
    red = (picture[..., 0].astype(int) - picture[..., 2] > 90) & (picture[..., 1] < 120)
    return np.argwhere(red).mean(axis=0)[::-1]


def test_a_clip_decodes_to_its_frames() -> None:
    shot = imagine_shot(random.Random(0))
    data = encode_mp4(draw_clip(Clip((shot,))))
    pictures = decoded(data)
    assert pictures.shape == (FRAMES, SIDE, SIDE, 3)
    drawn = np.stack([np.asarray(frame) for frame in draw_shot(shot, FRAMES)])
    assert np.abs(pictures.astype(int) - drawn).mean() < 8
    with av.open(io.BytesIO(data)) as container:
        assert container.duration / av.time_base == pytest.approx(FRAMES / FPS)


def test_the_same_clip_has_the_same_bytes() -> None:
    clip = Clip((imagine_shot(random.Random(1)),))
    assert encode_mp4(draw_clip(clip)) == encode_mp4(draw_clip(clip))


@pytest.mark.parametrize(("path", "axis", "sign"), [("right", 0, 1), ("left", 0, -1), ("down", 1, 1), ("up", 1, -1)])
def test_the_thing_moves_along_its_path(path: str, axis: int, sign: int) -> None:
    shot = Shot(CALM, path)
    first, *_, last = [np.asarray(frame) for frame in draw_shot(shot, 6)]
    moved = find_center(last) - find_center(first)
    assert sign * moved[axis] > 0.25 * SIDE
    assert abs(moved[1 - axis]) < 0.05 * SIDE
    assert PATHS[path] in describe_shot(shot, random.Random(0))


def test_several_scenes_have_hard_cuts_between_them() -> None:
    rng = random.Random(2)
    shots = tuple(imagine_shot(rng) for _ in range(3))
    pictures = [np.asarray(frame, np.int16) for frame in draw_clip(Clip(shots))]
    steps = np.array([np.abs(a - b).mean() for a, b in itertools.pairwise(pictures)])
    cuts = np.sort(np.argsort(steps)[-2:]) + 1
    assert cuts.tolist() == [FRAMES // 3, 2 * FRAMES // 3]


def test_a_still_is_a_frame_of_its_shot() -> None:
    shot = Shot(CALM, "right")
    middle = np.asarray(list(draw_shot(shot, 3))[1], np.int16)
    assert np.abs(np.asarray(draw_still(shot, 0.5), np.int16) - middle).mean() < 2

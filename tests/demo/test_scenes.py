"""Drawings are reproducible and show what their scenes contain."""

import random
from dataclasses import replace

import numpy as np
import pytest

from auditor.demo.backdrops import LIGHTS, PLACES
from auditor.demo.scenes import POSITIONS, SIDE, SPECIES, Scene, Thing, draw_scene, imagine_scene
from auditor.demo.sprites import draw_sprite

CALM = Scene("meadow", "summer", "day", "clear", (), seed=11)


def thing(kind: str = "car", color: str = "red", count: int = 1, position: str = "left") -> Thing:
    return Thing(kind, color, count, position, large=True, flipped=False)


def difference(a: Scene, b: Scene) -> np.ndarray:
    return np.abs(np.asarray(draw_scene(a), np.int16) - np.asarray(draw_scene(b), np.int16)).sum(axis=2)


def test_the_same_seed_imagines_and_draws_the_same() -> None:
    first, again, other = (imagine_scene(random.Random(seed)) for seed in (5, 5, 6))
    assert first == again != other
    assert draw_scene(first).tobytes() == draw_scene(again).tobytes() != draw_scene(other).tobytes()


@pytest.mark.parametrize("kind", SPECIES)
def test_every_species_has_a_shape_in_every_color_it_comes_in(kind: str) -> None:
    pictures = [np.asarray(draw_sprite(kind, color, 48)) for color in SPECIES[kind].colors.split()]
    for picture in pictures:
        assert picture.shape == (48, 48, 4)
        assert 0.1 < (picture[..., 3] > 128).mean() < 0.95
    assert len({picture.tobytes() for picture in pictures}) == len(pictures)


@pytest.mark.parametrize("position", POSITIONS)
def test_a_thing_is_drawn_where_the_scene_says(position: str) -> None:
    changed = difference(CALM, replace(CALM, things=(thing(position=position),)))
    columns = np.nonzero(changed.max(axis=0) > 30)[0]
    assert abs(columns.mean() / SIDE - POSITIONS[position]) < 0.1
    assert np.nonzero(changed.max(axis=1) > 30)[0].mean() > SIDE / 2  # a car stands on the ground


def test_things_in_the_air_are_above_things_on_the_ground() -> None:
    balloon, car = (
        np.nonzero(difference(CALM, replace(CALM, things=(thing(kind),))).max(axis=1) > 30)[0].mean()
        for kind in ("balloon", "car")
    )
    assert balloon < 0.4 * SIDE < 0.6 * SIDE < car


def test_more_things_change_more_of_the_picture() -> None:
    one, three = (
        (difference(CALM, replace(CALM, things=(replace(thing("sheep", "white", count), large=False),))) > 30).sum()
        for count in (1, 3)
    )
    assert three > one


def test_every_place_looks_different_at_every_time_and_in_every_weather() -> None:
    weathers = ["clear", "clouds", "rain", "snow", "fog"]
    pictures = {
        draw_scene(Scene(place, "winter", time, weathers[(i + j) % 5], (), seed=1)).tobytes()
        for i, place in enumerate(PLACES)
        for j, time in enumerate(LIGHTS)
    }
    assert len(pictures) == len(PLACES) * len(LIGHTS)


def test_imagined_scenes_make_sense() -> None:
    rng = random.Random(0)
    for _ in range(2000):
        scene = imagine_scene(rng)
        assert 1 <= len(scene.things) <= 3
        assert len({t.kind for t in scene.things}) == len({t.position for t in scene.things}) == len(scene.things)
        assert scene.weather != "snow" or scene.season == "winter"
        assert scene.season == "summer" or scene.place not in ("desert", "seaside")
        assert all(t.habitat != "water" or scene.place in ("lake", "seaside") for t in scene.things)

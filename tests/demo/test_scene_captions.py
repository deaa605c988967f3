"""Captions mention every detail that distinguishes scenes, and vague captions mention none."""

import random
import re

from auditor.demo import scene_captions
from auditor.demo.scenes import SPECIES, imagine_scene
from auditor.demo.sprites import COLORS


def test_a_caption_names_color_and_count_of_everything() -> None:
    rng = random.Random(1)
    for _ in range(500):
        scene = imagine_scene(rng)
        words = scene_captions.describe_scene(scene, rng)
        for thing in scene.things:
            assert thing.color in words
            if thing.count > 1:
                assert any(count in words.lower() for count in scene_captions.COUNTS[thing.count]), words
        assert any(phrase in words.lower() for phrase in scene_captions.TIMES[scene.time]), words
        assert any(phrase in words.lower() for phrase in scene_captions.PLACES[scene.place]), words


def test_one_scene_has_many_captions_and_two_scenes_hardly_ever_share_one() -> None:
    rng = random.Random(2)
    scene = imagine_scene(rng)
    assert len({scene_captions.describe_scene(scene, rng) for _ in range(20)}) > 10
    assert len({scene_captions.describe_scene(imagine_scene(rng), rng) for _ in range(2000)}) >= 1999


def test_captions_are_sentences() -> None:
    rng = random.Random(3)
    for _ in range(300):
        words = scene_captions.describe_scene(imagine_scene(rng), rng)
        assert re.fullmatch(r"[A-Z][a-z0-9 ,:;'-]+\.", words), words
        assert not re.search(r"\b[Aa] [aeio]|\b[Aa]n [^aeiou]", words), words


def test_vague_captions_name_nothing() -> None:
    rng = random.Random(4)
    names = {word for kind, s in SPECIES.items() for word in (kind, f"{kind}s", *f"{s.names}/{s.plurals}".split("/"))}
    said = {scene_captions.write_vague_caption(rng) for _ in range(500)}
    assert len(said) > 100
    for words in said:
        assert not set(words.lower().strip(".").split()) & (names | set(COLORS))

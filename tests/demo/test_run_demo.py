"""The demo model: its context fits the captions, and a short training gives useful recall."""

import json
import random

import open_clip

from auditor.demo import scene_clips
from auditor.demo.run_demo import ARCHITECTURE, TOKENS
from auditor.demo.scene_captions import describe_scene
from auditor.demo.scenes import imagine_scene
from tests.support.tiny import tiny


def test_no_caption_of_the_grammar_is_cut_off() -> None:
    context = json.loads(ARCHITECTURE.read_text())["model_cfg"]["text_cfg"]["context_length"]
    rng = random.Random(0)
    words = [describe_scene(imagine_scene(rng), rng) for _ in range(2000)]
    words += [scene_clips.describe_shot(scene_clips.imagine_shot(rng), rng) for _ in range(500)]
    lengths = (open_clip.SimpleTokenizer(context_length=100)(words) != 0).sum(dim=1)
    assert int(lengths.max()) <= TOKENS == context


def test_the_briefly_trained_model_beats_chance_by_far() -> None:
    measured = [json.loads(line) for line in (tiny().model.parent / "metrics.jsonl").read_text().splitlines()]
    validation = [line["validation"] for line in measured if "validation" in line]
    chance = 100 / validation[-1]["visual_to_text"]["queries"]
    assert max(found["visual_to_text"]["R@1"] for found in validation) > 10 * chance

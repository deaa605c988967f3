"""Plan the generated corpus before anything is drawn: scenes, captions, and the defect of each sample.

The plan depends only on the seed and the size. Each planned sample states its own defects.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from auditor.corpus.sample import Kind
from auditor.demo import scene_captions, scene_clips
from auditor.demo.planted_defects import DEFECTS
from auditor.demo.scene_clips import Clip, Shot, imagine_shot
from auditor.demo.scenes import Scene, imagine_scene

Split = Literal["train", "val", "audit"]
STILLS = 0.25  # share of stills of clips in the training pictures, so that the model learns words of motion
CLIPS = 0.2  # share of clips in the audited samples
# Real training data have unclear samples. A model that has never seen any cannot recognize one.
UNCLEAR_CAPTIONS = 0.06  # vague captions, and as many again that describe only a part
UNCLEAR_PICTURES = 0.06
CAPTION_DEFECTS = ("swapped", "vague")
REPETITIONS = ("duplicate_key", "duplicate_media")


@dataclass(frozen=True, slots=True)
class PlannedSample:
    """A sample to generate. `defects` has one entry per caption, None if the pair is sound."""

    key: str
    kind: Kind
    content: Scene | Shot | Clip  # a Shot is a still of a clip
    captions: tuple[str, ...]
    defects: tuple[str | None, ...]
    extension: str
    seed: str

    @property
    def defect(self) -> str | None:
        """The defect of the medium or of the whole sample; None if only captions have defects."""
        return next((defect for defect in self.defects if defect not in (None, *CAPTION_DEFECTS)), None)


def plan_split(split: Split, count: int, seed: int) -> list[PlannedSample]:
    """Plan a split. All pairs of train and val match, though a few of train are unclear."""
    if split != "audit":
        return [plan_still(split, i, seed) for i in range(count)]
    clips = round(count * CLIPS)
    samples = [plan_image(i, seed) for i in range(count - clips)] + [plan_clip(i, seed) for i in range(clips)]
    rng = random.Random(f"{seed}/defects")
    plant_media_defects(samples, rng)
    plant_vague_captions(samples, rng)
    plant_swaps(samples, rng)
    rng.shuffle(samples)
    return insert_repetitions(samples, rng)


def draw_caption_count(rng: random.Random) -> int:
    return rng.choice((1, 1, 1, 2, 3))


def plan_still(split: str, index: int, seed: int) -> PlannedSample:
    """Plan a training picture with three captions. Only split `train` has unclear pictures and captions."""
    name = f"{seed}/{split}/{index}"
    rng = random.Random(name)
    content: Scene | Shot = imagine_shot(rng) if rng.random() < STILLS else imagine_scene(rng)
    clear = split != "train"
    captions = tuple(write_training_caption(content, rng, clear) for _ in range(3))
    unclear = rng.random() < UNCLEAR_PICTURES and not clear
    damage = rng.choice(("blurred", "occluded", "near_blank")) if unclear else None
    return PlannedSample(f"{split}-{index:06d}", "image", content, captions, (damage,) * 3, "jpg", name)


def write_training_caption(content: Scene | Shot, rng: random.Random, clear: bool) -> str:
    chance = 1.0 if clear else rng.random()
    if chance < UNCLEAR_CAPTIONS:
        return scene_captions.write_vague_caption(rng)
    if chance < 2 * UNCLEAR_CAPTIONS:
        return scene_captions.describe_in_part(content.scene if isinstance(content, Shot) else content, rng)
    if isinstance(content, Shot):
        return scene_clips.describe_shot(content, rng)
    return scene_captions.describe_scene(content, rng)


def plan_image(index: int, seed: int) -> PlannedSample:
    name = f"{seed}/image/{index}"
    rng = random.Random(name)
    scene = imagine_scene(rng)
    captions = tuple(scene_captions.describe_scene(scene, rng) for _ in range(draw_caption_count(rng)))
    extension = rng.choice(("jpg",) * 8 + ("png", "webp"))
    return PlannedSample(f"scene-{index:06d}", "image", scene, captions, (None,) * len(captions), extension, name)


def plan_clip(index: int, seed: int) -> PlannedSample:
    name = f"{seed}/clip/{index}"
    rng = random.Random(name)
    shot = imagine_shot(rng)
    captions = tuple(scene_clips.describe_shot(shot, rng) for _ in range(draw_caption_count(rng)))
    return PlannedSample(f"clip-{index:06d}", "video", Clip((shot,)), captions, (None,) * len(captions), "mp4", name)


def plant_media_defects(samples: list[PlannedSample], rng: random.Random) -> None:
    """Give each defect of a medium or whole sample to its share of the samples, at least one. None gets two defects."""
    free = list(range(len(samples)))
    rng.shuffle(free)
    for name, defect in DEFECTS.items():
        if name in CAPTION_DEFECTS:
            continue
        fitting = [i for i in free if samples[i].kind in defect.applies]
        base = len(samples) if name != "multi_scene" else sum(s.kind == "video" for s in samples)
        for i in fitting[: max(1, round(base * defect.share))]:
            samples[i] = add_defect(samples[i], name, rng)
            free.remove(i)


def add_defect(sample: PlannedSample, defect: str, rng: random.Random) -> PlannedSample:
    """The sample with a defect. It keeps one caption, so that each defect is in one row."""
    content = sample.content
    if defect == "multi_scene" and isinstance(content, Clip):
        content = Clip((*content.shots, imagine_shot(rng), imagine_shot(rng)))
    return replace(sample, content=content, captions=sample.captions[:1], defects=(defect,))


def list_sound_captions(samples: Sequence[PlannedSample], kind: Kind) -> list[tuple[int, int]]:
    """Captions without any defect so far, as (sample, caption) indices."""
    sound = [(i, sample) for i, sample in enumerate(samples) if sample.kind == kind]
    return [(i, j) for i, sample in sound for j, defect in enumerate(sample.defects) if defect is None]


def replace_caption(sample: PlannedSample, index: int, caption: str, defect: str) -> PlannedSample:
    captions, defects = list(sample.captions), list(sample.defects)
    captions[index], defects[index] = caption, defect
    return replace(sample, captions=tuple(captions), defects=tuple(defects))


def plant_vague_captions(samples: list[PlannedSample], rng: random.Random) -> None:
    for kind in DEFECTS["vague"].applies:
        rows = list_sound_captions(samples, kind)
        for i, j in rng.sample(rows, max(1, round(len(rows) * DEFECTS["vague"].share))):
            samples[i] = replace_caption(samples[i], j, scene_captions.write_vague_caption(rng), "vague")


def plant_swaps(samples: list[PlannedSample], rng: random.Random) -> None:
    """Rotate captions among different samples of one kind, so that each gets a true caption of another."""
    for kind in DEFECTS["swapped"].applies:
        rows = list_sound_captions(samples, kind)
        count = max(2, round(len(rows) * DEFECTS["swapped"].share))
        rng.shuffle(rows)
        chosen = list({i: (i, j) for i, j in rows}.values())[:count]  # at most one caption of a sample
        captions = [samples[i].captions[j] for i, j in chosen]
        for (i, j), caption in zip(chosen, captions[1:] + captions[:1], strict=True):
            samples[i] = replace_caption(samples[i], j, caption, "swapped")


def insert_repetitions(samples: Sequence[PlannedSample], rng: random.Random) -> list[PlannedSample]:
    """Insert repeated keys and files right after a sound sample that they repeat.

    A repeated key has its own picture and caption. A repeated file has its own key and caption.
    """
    repeats = [s for s in samples if s.defect in REPETITIONS]
    originals = [s for s in samples if s.defect not in REPETITIONS]
    sound = [s for s in originals if s.kind == "image" and not any(s.defects)]
    out: dict[str, list[PlannedSample]] = {s.key: [s] for s in originals}
    for repeat, original in zip(repeats, rng.sample(sound, len(repeats)), strict=True):
        if repeat.defect == "duplicate_key":
            twin = replace(repeat, key=original.key)
        else:
            assert isinstance(original.content, Scene)
            caption = scene_captions.describe_scene(original.content, rng)
            twin = replace(original, key=repeat.key, captions=(caption,), defects=repeat.defects)
        out[original.key].append(twin)
    return [sample for group in out.values() for sample in group]

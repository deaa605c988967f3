"""What the generated corpus will hold, decided before anything is drawn: scenes, captions, and who gets which defect.

The plan depends on the seed and the size alone. A specimen carries the truth about itself.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from auditor.corpus.sample import Kind
from auditor.demo import scene_captions, scene_clips
from auditor.demo.planted_defects import DEFECTS
from auditor.demo.scene_clips import Clip, Shot, imagine_shot
from auditor.demo.scenes import Scene, imagine

Split = Literal["train", "val", "audit"]
STILLS = 0.25  # share of the training pictures that are stills of clips, so that motion words are learned
CLIPS = 0.2  # share of the audited samples
# Training data as they are in the world: a model that has never met an unclear sample cannot know that it is unclear.
UNCLEAR_CAPTIONS = 0.06  # vague, and as many again that tell a part only
UNCLEAR_PICTURES = 0.06


@dataclass(frozen=True, slots=True)
class Specimen:
    """One sample to be made. `defects` has one entry per caption: None where the pair is sound."""

    key: str
    kind: Kind
    content: Scene | Shot | Clip  # a Shot is a still of a clip
    captions: tuple[str, ...]
    defects: tuple[str | None, ...]
    extension: str
    seed: str

    @property
    def defect(self) -> str | None:
        """The defect of the medium or of the whole sample; None where only captions may have one."""
        return next((d for d in self.defects if d not in (None, "swapped", "vague")), None)


def plan(split: Split, count: int, seed: int) -> list[Specimen]:
    """The specimens of a split. No pair of train and val is wrong, though a few of train are unclear."""
    if split != "audit":
        return [still_specimen(split, i, seed) for i in range(count)]
    films = round(count * CLIPS)
    sound = [image_specimen(i, seed) for i in range(count - films)] + [clip_specimen(i, seed) for i in range(films)]
    rng = random.Random(f"{seed}/defects")
    flawed = plant_media_defects(sound, rng)
    flawed = plant_vague(flawed, rng)
    flawed = plant_swaps(flawed, rng)
    rng.shuffle(flawed)
    return with_repetitions(flawed, rng)


def several_captions(rng: random.Random) -> int:
    return rng.choice((1, 1, 1, 2, 3))


def still_specimen(split: str, index: int, seed: int) -> Specimen:
    """A picture to learn from, with three captions. The few unclear ones are those of `train` only."""
    name = f"{seed}/{split}/{index}"
    rng = random.Random(name)
    content: Scene | Shot = imagine_shot(rng) if rng.random() < STILLS else imagine(rng)
    clear = split != "train"
    words = tuple(training_caption(content, rng, clear) for _ in range(3))
    damage = (
        rng.choice(("blurred", "occluded", "near_blank")) if rng.random() < UNCLEAR_PICTURES and not clear else None
    )
    return Specimen(f"{split}-{index:06d}", "image", content, words, (damage,) * 3, "jpg", name)


def training_caption(content: Scene | Shot, rng: random.Random, clear: bool) -> str:
    chance = 1.0 if clear else rng.random()
    if chance < UNCLEAR_CAPTIONS:
        return scene_captions.vague(rng)
    scene = content.scene if isinstance(content, Shot) else content
    if chance < 2 * UNCLEAR_CAPTIONS:
        return scene_captions.describe_in_part(scene, rng)
    return scene_clips.caption(content, rng) if isinstance(content, Shot) else scene_captions.describe(scene, rng)


def image_specimen(index: int, seed: int) -> Specimen:
    name = f"{seed}/image/{index}"
    rng = random.Random(name)
    scene = imagine(rng)
    words = tuple(scene_captions.describe(scene, rng) for _ in range(several_captions(rng)))
    extension = rng.choice(("jpg",) * 8 + ("png", "webp"))
    return Specimen(f"scene-{index:06d}", "image", scene, words, (None,) * len(words), extension, name)


def clip_specimen(index: int, seed: int) -> Specimen:
    name = f"{seed}/clip/{index}"
    rng = random.Random(name)
    shot = imagine_shot(rng)
    words = tuple(scene_clips.caption(shot, rng) for _ in range(several_captions(rng)))
    return Specimen(f"clip-{index:06d}", "video", Clip((shot,)), words, (None,) * len(words), "mp4", name)


def plant_media_defects(specimens: Sequence[Specimen], rng: random.Random) -> list[Specimen]:
    """Give each defect of a medium or a whole sample to its share of the corpus, at least one; none gets two."""
    out = list(specimens)
    free = list(range(len(out)))
    rng.shuffle(free)
    for defect, meaning in DEFECTS.items():
        if defect in ("swapped", "vague"):
            continue
        fitting = [i for i in free if out[i].kind in meaning.applies]
        base = len(specimens) if defect != "multi_scene" else sum(s.kind == "video" for s in specimens)
        for i in fitting[: max(1, round(base * meaning.share))]:
            out[i] = afflict(out[i], defect, rng)
            free.remove(i)
    return out


def afflict(specimen: Specimen, defect: str, rng: random.Random) -> Specimen:
    """The specimen with a defect. It keeps one caption, so that one row tells of one defect."""
    content = specimen.content
    if defect == "multi_scene" and isinstance(content, Clip):
        content = Clip((*content.shots, imagine_shot(rng), imagine_shot(rng)))
    return replace(specimen, content=content, captions=specimen.captions[:1], defects=(defect,))


def sound_rows(specimens: Sequence[Specimen], kind: Kind) -> list[tuple[int, int]]:
    """Captions without any defect so far, as (specimen, caption)."""
    return [
        (i, j)
        for i, specimen in enumerate(specimens)
        for j, defect in enumerate(specimen.defects)
        if specimen.kind == kind and defect is None
    ]


def with_caption(specimen: Specimen, index: int, words: str, defect: str) -> Specimen:
    words_, defects = list(specimen.captions), list(specimen.defects)
    words_[index], defects[index] = words, defect
    return replace(specimen, captions=tuple(words_), defects=tuple(defects))


def plant_vague(specimens: Sequence[Specimen], rng: random.Random) -> list[Specimen]:
    out = list(specimens)
    for kind in DEFECTS["vague"].applies:
        rows = sound_rows(out, kind)  # type: ignore[arg-type]
        for i, j in rng.sample(rows, max(1, round(len(rows) * DEFECTS["vague"].share))):
            out[i] = with_caption(out[i], j, scene_captions.vague(rng), "vague")
    return out


def plant_swaps(specimens: Sequence[Specimen], rng: random.Random) -> list[Specimen]:
    """Hand captions round a circle of different samples of one kind: each gets a true caption of another."""
    out = list(specimens)
    for kind in DEFECTS["swapped"].applies:
        rows = sound_rows(out, kind)  # type: ignore[arg-type]
        wanted = max(2, round(len(rows) * DEFECTS["swapped"].share))
        rng.shuffle(rows)
        chosen = list({i: (i, j) for i, j in rows}.values())[:wanted]  # one caption of a sample at most
        words = [out[i].captions[j] for i, j in chosen]
        for (i, j), given in zip(chosen, words[1:] + words[:1], strict=True):
            out[i] = with_caption(out[i], j, given, "swapped")
    return out


def with_repetitions(specimens: Sequence[Specimen], rng: random.Random) -> list[Specimen]:
    """Repeated keys and files stand right behind a sound sample of which they are the repetition.

    A repeated key has its own picture and caption; a repeated file has its own key and caption.
    """
    repeats = [s for s in specimens if s.defect in ("duplicate_key", "duplicate_media")]
    rest = [s for s in specimens if s.defect not in ("duplicate_key", "duplicate_media")]
    sound = [s for s in rest if s.kind == "image" and not any(s.defects)]
    out: dict[str, list[Specimen]] = {s.key: [s] for s in rest}
    for repeat, original in zip(repeats, rng.sample(sound, len(repeats)), strict=True):
        if repeat.defect == "duplicate_key":
            twin = replace(repeat, key=original.key)
        else:
            twin = replace(
                original,
                key=repeat.key,
                captions=(scene_captions.describe(original.content, rng),)
                if isinstance(original.content, Scene)
                else (),
                defects=repeat.defects,
            )
        out[original.key].append(twin)
    return [specimen for group in out.values() for specimen in group]

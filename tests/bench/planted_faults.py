"""Measure how many planted faults are found, and how accurate their ends and repairs are.

    python -m tests.bench.planted_faults --shared ../shared

Faults are planted in stored embeddings: generated corpora and Flickr8k photos of the validation shard, with one caption
each unless --captions 5. Half of the photos served to choose the settings (seeds below 100); the seeds here are others.
"""

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from auditor.demo.scenes import draw_scene, imagine_scene
from auditor.faults.corpus_window import average_captions
from auditor.faults.find_faults import mark_explained
from auditor.faults.mixed_blocks import find_blocks
from auditor.faults.pairing_evidence import (
    ReferencePairs,
    SampleVectors,
    fit_evidence,
    score_own_pairs,
    score_random_pairs,
)
from auditor.faults.repair import assign_with_confidence
from auditor.faults.shifted_stretches import (
    FaultCalibration,
    ShiftedStretch,
    compute_band,
    estimate_chance,
    find_shard_stretches,
    join_stretches,
    select_significant,
)
from auditor.vectors import Floats, Ints
from tests.support.planted import SCALE, make_embeddings

LENGTHS = (8, 12, 20, 50)
Pairs = tuple[Floats, Floats]


@dataclass(frozen=True)
class Corpus:
    """Media, the mean of their captions, and the scale of the model."""

    name: str
    visual: Floats
    text: Floats
    scale: float

    def shuffled(self, seed: int) -> "Corpus":
        order = np.random.default_rng([seed, 7]).permutation(len(self.visual))
        return Corpus(self.name, self.visual[order], self.text[order], self.scale)


def photos(shared: Path, captions: int) -> Corpus:
    from tests.bench.flickr8k import load_photos

    found = load_photos(shared)
    rank = np.arange(len(found.media)) - np.searchsorted(found.media, found.media)
    chosen = rank < captions
    text = average_captions(found.text[chosen], found.media[chosen], len(found.visual))
    return Corpus(f"photos, {captions} caption(s) each", found.visual, text, found.scale)


def look(corpus: Corpus, source: Ints) -> tuple[list[ShiftedStretch], list[tuple[str, int, int]]]:
    """Runs and blocks of the corpus as one shard, in which sample i has the captions of source[i]."""
    scene = SampleVectors(corpus.visual, corpus.text[source], np.ones(len(source), bool))
    reference = ReferencePairs(scene.visual, scene.text, corpus.scale)
    evidence = fit_evidence(score_own_pairs(scene, reference), score_random_pairs(scene, reference))
    chance = estimate_chance(scene, reference, evidence, times=4)
    ratios = compute_band(scene, reference, evidence)
    shard = find_shard_stretches(ratios)
    explained = mark_explained(shard, ratios, chance)
    blocks = find_blocks(scene, ratios, explained, FaultCalibration(reference, evidence, chance))
    runs = select_significant(join_stretches([shard]), chance, len(scene))
    return runs, [(block.pattern, block.first, block.last) for block in blocks]


def planted(kind: str, size: int, generator: np.random.Generator) -> tuple[Ints, list[tuple[int, int, int]]]:
    """The source of each caption, and (first, last, offset) of the planted faults: three of a kind per corpus."""
    source = np.arange(size)
    placed = []
    for start in (size // 8, 3 * size // 8, 5 * size // 8):
        first = start + int(generator.integers(0, size // 10))
        length = 2 if kind == "exchanged" else 30 if kind in ("reversed", "permuted") else int(kind)
        offset = int(generator.integers(1, 51)) * int(generator.choice([-1, 1])) if kind.isdigit() else 0
        rows = np.arange(first, first + length)
        if kind == "permuted":
            source[rows] = generator.permutation(rows)
        else:
            source[rows] = rows + offset if offset else rows[::-1]
        placed.append((first, first + length - 1, offset))
    return source, placed


def score_runs(corpus: Corpus, length: int, trials: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for seed in range(100, 100 + trials):
        source, placed = planted(str(length), len(corpus.visual), np.random.default_rng([seed, length]))
        runs, _ = look(corpus.shuffled(seed), source)
        hits = [[r for r in runs if r.offset == k and r.first <= b and r.last >= a] for a, b, k in placed]
        found["planted"] += len(placed)
        found["found"] += sum(map(bool, hits))
        ends = zip(placed, hits, strict=True)
        found["ends"] += sum(any(abs(r.first - a) <= 1 and abs(r.last - b) <= 1 for r in h) for (a, b, _), h in ends)
        found["false"] += len(runs) - sum(map(len, hits))
    return found


def score_blocks(corpus: Corpus, kind: str, trials: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for seed in range(100, 100 + trials):
        source, placed = planted(kind, len(corpus.visual), np.random.default_rng([seed, len(kind)]))
        _, blocks = look(corpus.shuffled(seed), source)
        hits = [any(p == kind and f <= b and last >= a for p, f, last in blocks) for a, b, _ in placed]
        found["planted"] += len(placed)
        found["found"] += sum(hits)
        right = [any(f <= b and last >= a for a, b, _ in placed) and p == kind for p, f, last in blocks]
        found["false"] += sum(1 for (p, _, _), good in zip(blocks, right, strict=True) if not good and p != "lost")
    return found


def score_repair(corpus: Corpus, sizes: tuple[int, ...]) -> Iterator[dict[str, object]]:
    """Learn the probabilities on half of the samples, and permute blocks of the other half."""
    half = len(corpus.visual) // 2
    for size in sizes:
        mixed = corpus.shuffled(123)
        scene = SampleVectors(mixed.visual, mixed.text, np.ones(len(mixed.visual), bool))
        reference = ReferencePairs(scene.visual[:half], scene.text[:half], corpus.scale)
        block = scene.take(slice(half, half + size))
        yield repaired(corpus.name, block, scene.take(slice(0, half)), reference)


def repaired(name: str, block: SampleVectors, sound: SampleVectors, reference: ReferencePairs) -> dict[str, object]:
    """How right a repaired block is, and how right the repair says it is."""
    found, sure = assign_with_confidence(block, sound, reference)
    right = found.medium == np.arange(len(block))
    kept = sure >= 0.9
    return {
        "corpus": name, "block": len(block), "right of all": float(right.mean()),
        "expected": float(sure.mean()), "kept at 0.9": float(kept.mean()),
        "right of kept": float(right[kept].mean()) if kept.any() else None,
        "expected of kept": float(sure[kept].mean()) if kept.any() else None,
    }  # fmt: skip


def drawn(checkpoint: str, captions: int, count: int = 1500) -> Corpus:
    """Scenes that the demo's model has not seen, encoded by it."""
    from auditor.demo.scene_captions import describe_scene
    from model.checkpoint import load_model
    from model.pixels import fit_image

    backbone = load_model(checkpoint, "cpu").backbone
    pixels, text = [], []
    for number in range(count):
        generator = random.Random(f"planted faults/{number}")
        scene = imagine_scene(generator)
        pixels.append(fit_image(backbone.pixels, draw_scene(scene)))
        text += [describe_scene(scene, generator) for _ in range(captions)]
    parts = [backbone.encode_images(np.stack(pixels[at : at + 50])).numpy() for at in range(0, count, 50)]
    media = np.repeat(np.arange(count), captions)
    vectors = average_captions(backbone.encode_texts(text).numpy(), media, count)
    return Corpus(f"demo, {captions} caption(s) each", np.concatenate(parts), vectors, backbone.logit_scale)


def score_shard(corpus: Corpus, size: int, sound: int) -> dict[str, object]:
    """Repair a shard that is permuted as a whole, with this many sound pairs to learn from."""
    scene = SampleVectors(corpus.visual, corpus.text, np.ones(len(corpus.visual), bool))
    others = scene.take(slice(size, size + sound))
    reference = ReferencePairs(others.visual, others.text, corpus.scale)
    return repaired(corpus.name, scene.take(slice(0, size)), others, reference)


@click.command()
@click.option("--shared", type=click.Path(path_type=Path, exists=True))
@click.option("--trials", default=10, show_default=True, help="Number of corpora of each kind, with three faults each.")
@click.option("--demo", help="Measure only the repair of a permuted shard of the demo's scenes, with this checkpoint.")
def main(shared: Path | None, trials: int, demo: str | None) -> None:
    """Print one JSON object per line."""
    if demo:
        for captions in (1, 3):
            scenes = drawn(demo, captions)
            for size, sound in ((1000, 500), (600, 280), (200, 500)):
                print(json.dumps(score_shard(scenes, size, sound)), flush=True)
        return
    corpora = [
        Corpus("generated", *make_embeddings(1000, 50), SCALE),
        Corpus("generated, hard", *make_embeddings(1000, 51, noise=2.0), SCALE),
    ]
    corpora += [photos(shared, captions) for captions in (1, 5)] if shared else []
    for corpus in corpora:
        clean = [look(corpus.shuffled(seed), np.arange(len(corpus.visual))) for seed in range(100, 120)]
        runs, blocks = sum(len(runs) for runs, _ in clean), Counter(p for _, some in clean for p, _, _ in some)
        print(json.dumps({"corpus": corpus.name, "clean corpora": 20, "runs": runs, "blocks": blocks}), flush=True)
        for length in LENGTHS:
            print(json.dumps({"corpus": corpus.name, "run": length, **score_runs(corpus, length, trials)}), flush=True)
        for kind in ("exchanged", "reversed", "permuted"):
            print(json.dumps({"corpus": corpus.name, "block": kind, **score_blocks(corpus, kind, trials)}), flush=True)
        for row in score_repair(corpus, (50, 200, 500)):
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()

"""Random embeddings of pairs with known mismatches, hubs and several captions per medium, for tests of statistics."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from auditor.score.statistics.rivals import ReferenceSample
from auditor.score.statistics.siblings import collect_siblings
from auditor.vectors import Floats, MediaVectors


@dataclass(frozen=True)
class PlantedPairs:
    reference: ReferenceSample
    spoiled: npt.NDArray[np.bool_]  # (R,) mismatched pairs


def normalize_rows(vectors: npt.NDArray[np.floating]) -> Floats:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True), np.float32)


def make_planted_pairs(
    media: int, rate: float, seed: int = 0, *, captions: int = 1, dim: int = 24, noise: float = 1.1, scale: float = 20.0
) -> PlantedPairs:
    """Captions are their medium plus noise plus a hub direction of random strength. A share of them is swapped."""
    generator = np.random.default_rng(seed)
    group = np.repeat(np.arange(media), captions)
    visual = normalize_rows(generator.normal(size=(media, dim)))[group]
    hub = normalize_rows(generator.normal(size=dim)) * generator.gamma(1.0, 0.3, size=(len(group), 1))
    text = normalize_rows(visual + noise * normalize_rows(generator.normal(size=visual.shape)) + hub)
    spoiled = np.zeros(len(group), bool)
    spoiled[generator.permutation(len(group))[: round(rate * len(group))]] = True
    mixed = text.copy()
    for i in np.flatnonzero(spoiled):
        mixed[i] = text[generator.choice(np.flatnonzero(group != group[i]))]
    group = group.astype(np.int64)
    siblings = collect_siblings(group, MediaVectors(visual), mixed)
    return PlantedPairs(ReferenceSample(MediaVectors(visual), mixed, group, scale=scale, siblings=siblings), spoiled)


def convert_to_video(reference: ReferenceSample, frames: int = 4, seed: int = 0) -> ReferenceSample:
    """The same pairs as clips: frames scattered around the medium, with the last frames missing in some."""
    generator = np.random.default_rng(seed)
    _, first, of = np.unique(reference.group, return_index=True, return_inverse=True)
    around = normalize_rows(generator.normal(size=(len(first), frames, reference.visual.shape[1])))
    clip = normalize_rows(reference.visual[first][:, None] + 0.5 * around)
    mask = np.arange(frames)[None] < generator.integers(1, frames + 1, len(first))[:, None]
    clip = np.where(mask[..., None], clip, 0).astype(np.float32)
    return replace(reference, media=MediaVectors(normalize_rows(clip.sum(axis=1)), clip, mask).take(of))


def make_gap_pairs(pairs: int, rate: float, seed: int = 0, *, dim: int = 64, noise: float = 2.0) -> PlantedPairs:
    """Another geometry: random features with a modality gap between media and captions. A share is swapped."""
    generator = np.random.default_rng(seed)
    shared, of_visual, of_text = generator.normal(size=(3, pairs, dim))
    towards_visual, towards_text = generator.normal(size=(2, dim)) * 2
    visual = normalize_rows(shared + noise * of_visual / 2 + towards_visual)
    text = normalize_rows(shared + noise * of_text / 2 + towards_text)
    spoiled = np.zeros(pairs, bool)
    chosen = generator.permutation(pairs)[: round(rate * pairs)]
    spoiled[chosen] = True
    text[chosen] = text[np.roll(chosen, 1)]
    return PlantedPairs(ReferenceSample(MediaVectors(visual), text, np.arange(pairs), scale=20.0), spoiled)

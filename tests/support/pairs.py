"""Invented embeddings of pairs with known mismatches, hubs and several captions per medium, for tests of statistics."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from auditor.score.statistics.rivals import Reference
from auditor.score.statistics.siblings import siblings_of
from auditor.vectors import Floats, MediaVectors


@dataclass(frozen=True)
class Planted:
    reference: Reference
    spoiled: npt.NDArray[np.bool_]  # (R,) which pairs are mismatched


def unit(vectors: npt.NDArray[np.floating]) -> Floats:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True), np.float32)


def planted(
    media: int, rate: float, seed: int = 0, *, captions: int = 1, dim: int = 24, noise: float = 1.1, scale: float = 20.0
) -> Planted:
    """Captions are their medium plus noise and a hub direction of varying strength; a share is swapped at random."""
    generator = np.random.default_rng(seed)
    group = np.repeat(np.arange(media), captions)
    visual = unit(generator.normal(size=(media, dim)))[group]
    hub = unit(generator.normal(size=dim)) * generator.gamma(1.0, 0.3, size=(len(group), 1))
    text = unit(visual + noise * unit(generator.normal(size=visual.shape)) + hub)
    spoiled = np.zeros(len(group), bool)
    spoiled[generator.permutation(len(group))[: round(rate * len(group))]] = True
    mixed = text.copy()
    for i in np.flatnonzero(spoiled):
        mixed[i] = text[generator.choice(np.flatnonzero(group != group[i]))]
    group = group.astype(np.int64)
    siblings = siblings_of(group, mixed, MediaVectors(visual).own_similarity(mixed))
    return Planted(Reference(MediaVectors(visual), mixed, group, scale, siblings=siblings), spoiled)


def as_video(reference: Reference, frames: int = 4, seed: int = 0) -> Reference:
    """The same pairs as clips: frames scattered around the medium, the last ones missing in some."""
    generator = np.random.default_rng(seed)
    _, first, of = np.unique(reference.group, return_index=True, return_inverse=True)
    around = unit(generator.normal(size=(len(first), frames, reference.visual.shape[1])))
    clip = unit(reference.visual[first][:, None] + 0.5 * around)
    mask = np.arange(frames)[None] < generator.integers(1, frames + 1, len(first))[:, None]
    clip = np.where(mask[..., None], clip, 0).astype(np.float32)
    return replace(reference, media=MediaVectors(unit(clip.sum(axis=1)), clip, mask).take(of))


def gap_pairs(pairs: int, rate: float, seed: int = 0, *, dim: int = 64, noise: float = 2.0) -> Planted:
    """Another geometry: normalised random features, media and captions apart by a modality gap; a share is swapped."""
    generator = np.random.default_rng(seed)
    shared, of_visual, of_text = generator.normal(size=(3, pairs, dim))
    towards_visual, towards_text = generator.normal(size=(2, dim)) * 2
    visual = unit(shared + noise * of_visual / 2 + towards_visual)
    text = unit(shared + noise * of_text / 2 + towards_text)
    spoiled = np.zeros(pairs, bool)
    chosen = generator.permutation(pairs)[: round(rate * pairs)]
    spoiled[chosen] = True
    text[chosen] = text[np.roll(chosen, 1)]
    return Planted(Reference(MediaVectors(visual), text, np.arange(pairs), 20.0), spoiled)

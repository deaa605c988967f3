"""Shards whose captions fit none of their own media: do they belong to another shard, or to no medium of the corpus?

Some captions of each such shard are compared with the media of every shard, one shard at a time. Captions that belong
to one other shard find their best medium there far more often than its share of the media explains.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from auditor.faults.evidence import Scene
from auditor.vectors import Floats, Ints

CAPTIONS = 128  # of a shard that are compared with all others
P_VALUE = 1e-3


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the captions of a shard come from: another shard, its own (mixed up), or None."""

    shard: str
    source: str | None
    p_value: float


def some_captions(scene: Scene, seed: int = 0) -> Floats:
    """Captions of a shard, chosen at random but always the same."""
    there = np.flatnonzero(scene.present)
    chosen = np.random.default_rng(seed).permutation(there)[:CAPTIONS]
    found: Floats = scene.text[chosen]
    return found


def best_fits(captions: Sequence[Floats], scene: Scene) -> list[Floats]:
    """For each shard's captions the cosine of the best medium of `scene`, above what that medium has with all of them.

    The level of the reference would not do: it holds the captions that most media belong to, but not those of media
    that lost theirs, which would then look like everybody's partner.
    """
    media = scene.visual[scene.present]
    if not len(media):
        return [np.full(len(text), -np.inf, np.float32) for text in captions]
    cosines = (text @ media.T for text in captions)
    return [(cosine - cosine.mean(axis=0)).max(axis=1) for cosine in cosines]


def origins(
    names: Sequence[str],
    captions: Sequence[Floats],
    shards: Sequence[str],
    media: Sequence[int],
    fits: Iterable[list[Floats]],
) -> list[Origin]:
    """The origin of the captions of each shard in `names`, from the best fits of all shards in order."""
    top = [np.full(len(text), -np.inf, np.float32) for text in captions]
    where: list[Ints] = [np.zeros(len(text), np.int64) for text in captions]
    for number, found in enumerate(fits):
        for mine, place, new in zip(top, where, found, strict=True):
            better = new > mine
            mine[better], place[better] = new[better], number
    share = np.asarray(media, np.float64) / max(sum(media), 1)
    return [_origin(name, place, share, shards) for name, place in zip(names, where, strict=True)]


def _origin(name: str, place: Ints, share: "np.typing.NDArray[np.float64]", shards: Sequence[str]) -> Origin:
    from scipy.stats import binom

    hits = np.bincount(place, minlength=len(shards))
    p_values = np.minimum(1, len(shards) * binom.sf(hits - 1, len(place), share))
    best = int(p_values.argmin())
    found = p_values[best] <= P_VALUE and hits[best] == hits.max()
    return Origin(name, shards[best] if found else None, float(p_values[best]))


Read = Callable[[str], Scene]

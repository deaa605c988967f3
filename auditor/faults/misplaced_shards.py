"""Shards whose captions fit none of their own media: do they belong to another shard, or to no medium of the corpus?

Some captions of each such shard are compared with the media of every shard, one shard at a time. Captions that belong
to one other shard find their best medium there far more often than its share of the media explains. Captions that
belong to no medium at all find worse ones than the captions of sound shards do; else they are scattered.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from auditor.faults.mixed_blocks import distinct, greater
from auditor.faults.pairing_evidence import Scene
from auditor.vectors import Floats, Ints

CAPTIONS = 128  # of a shard that are compared with all others
FEWEST = 20  # captions; below, nothing is said
P_VALUE = 1e-3


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the captions of a shard come from: another shard, its own (mixed up), or None: from no single one.

    `nowhere`: they belong to no medium of the corpus. `p_value` is that of what is said; None where nothing is proven.
    """

    shard: str
    source: str | None
    nowhere: bool
    p_value: float | None


def some_captions(text: Floats, seed: int = 0) -> Floats:
    """Captions chosen at random but always the same, each once."""
    different = distinct(text)
    chosen = np.random.default_rng(seed).permutation(different)[:CAPTIONS]
    found: Floats = text[chosen]
    return found


def best_fits(captions: Sequence[Floats], scene: Scene) -> list[Floats]:
    """For each shard's captions the cosine of the best medium of `scene`, above what that medium has with all of them.

    The level of the reference would not do: it holds the captions that most media belong to, but not those of media
    that lost theirs, which would then look like everybody's partner.
    """
    media = scene.visual[scene.present]
    return [_best_fit(text, media) for text in captions]


def _best_fit(text: Floats, media: Floats) -> Floats:
    if not (len(media) and len(text)):
        return np.full(len(text), -np.inf, np.float32)
    cosine = text @ media.T
    found: Floats = (cosine - cosine.mean(axis=0)).max(axis=1)
    return found


def origins(
    names: Sequence[str],
    captions: Sequence[Floats],
    shards: Sequence[str],
    media: Sequence[int],
    fits: Iterable[list[Floats]],
) -> list[Origin]:
    """The origin of the captions of each shard in `names`, from the best fits of all shards in order.

    The last of `captions` are not of a shard but usual ones, of shards that are not looked at; there may be none.
    """
    top = [np.full(len(text), -np.inf, np.float32) for text in captions]
    where: list[Ints] = [np.zeros(len(text), np.int64) for text in captions]
    for number, found in enumerate(fits):
        for mine, place, new in zip(top, where, found, strict=True):
            better = new > mine
            mine[better], place[better] = new[better], number
    share = np.asarray(media, np.float64) / max(sum(media), 1)
    usual = top[-1]
    return [
        _origin(name, place, mine, usual, share, shards) for name, place, mine in zip(names, where, top, strict=False)
    ]


def _origin(
    name: str, place: Ints, top: Floats, usual: Floats, share: "np.typing.NDArray[np.float64]", shards: Sequence[str]
) -> Origin:
    from scipy.stats import binom

    hits = np.bincount(place, minlength=len(shards))
    p_values = np.minimum(1, len(shards) * binom.sf(hits - 1, len(place), share))
    best = int(p_values.argmin())
    if p_values[best] <= P_VALUE and hits[best] == hits.max():
        return Origin(name, shards[best], False, float(p_values[best]))
    p_value = greater(usual, top) if min(len(usual), len(top)) >= FEWEST else 1.0
    nowhere = p_value <= P_VALUE
    return Origin(name, None, nowhere, p_value if nowhere else None)

"""Find where the captions of a shard come from if they fit none of its media: another shard, or no medium at all.

A sample of each such shard's captions is compared with the media of every shard, one shard at a time. Captions of one
other shard have their best medium there far more often than its share of the media explains. Captions of no medium
have worse best media than the captions of sound shards. Otherwise the captions are scattered.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from auditor.faults.mixed_blocks import find_distinct_vectors, welch_p_value
from auditor.faults.pairing_evidence import SampleVectors
from auditor.score.group_shares import compute_binomial_tail
from auditor.vectors import Floats, Ints

CAPTIONS = 128  # captions of a shard that are compared with all shards
FEWEST = 20  # captions; with fewer, nothing is reported
P_VALUE = 1e-3


@dataclass(frozen=True, slots=True)
class CaptionOrigin:
    """The source of a shard's captions: another shard, the shard itself (permuted), or None if there is no single one.

    If `nowhere`, they belong to no medium of the corpus. `p_value` is None if nothing is proven.
    """

    shard: str
    source: str | None
    nowhere: bool
    p_value: float | None


def sample_captions(text: Floats) -> Floats:
    """A reproducible random sample of distinct captions."""
    chosen: Ints = np.random.default_rng(0).permutation(find_distinct_vectors(text))[:CAPTIONS]
    return text[chosen]


def find_best_fits(captions: Sequence[Floats], samples: SampleVectors) -> list[Floats]:
    """For each shard's captions, the best cosine with a medium of `samples`, minus the medium's mean over the captions.

    The level of the reference would not work: it includes captions of most media, but not of media that lost theirs,
    and these would then look like the best partner of every caption.
    """
    media = samples.visual[samples.present]
    cosines = (text @ media.T for text in captions)
    return [(x - x.mean(axis=0)).max(axis=1) if x.size else np.full(len(x), -np.inf, np.float32) for x in cosines]


def find_origins(
    names: Sequence[str],
    captions: Sequence[Floats],
    shards: Sequence[str],
    media: Sequence[int],
    fits: Iterable[list[Floats]],
) -> list[CaptionOrigin]:
    """The origin of the captions of each shard in `names`, from the best fits of all shards in order.

    The last of `captions` are captions of sound shards, for comparison; there may be none.
    """
    top = [np.full(len(text), -np.inf, np.float32) for text in captions]
    best_shard: list[Ints] = [np.zeros(len(text), np.int64) for text in captions]
    for number, shard_fits in enumerate(fits):
        for best, place, new in zip(top, best_shard, shard_fits, strict=True):
            better = new > best
            best[better], place[better] = new[better], number
    share = np.asarray(media, np.float64) / max(sum(media), 1)
    return [_find_origin(*origin, top[-1], share, shards) for origin in zip(names, best_shard, top, strict=False)]


def _find_origin(
    name: str, place: Ints, top: Floats, sound_fits: Floats, share: npt.NDArray[np.float64], shards: Sequence[str]
) -> CaptionOrigin:
    hits = np.bincount(place, minlength=len(shards))
    p_values = np.minimum(1, len(shards) * compute_binomial_tail(hits, len(place), share))
    best = int(p_values.argmin())
    if p_values[best] <= P_VALUE and hits[best] == hits.max():
        return CaptionOrigin(name, shards[best], False, float(p_values[best]))
    p_value = welch_p_value(sound_fits, top) if min(len(sound_fits), len(top)) >= FEWEST else 1.0
    nowhere = p_value <= P_VALUE
    return CaptionOrigin(name, None, nowhere, p_value if nowhere else None)

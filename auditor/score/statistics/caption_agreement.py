"""Agreement of a caption with other captions: those of the nearest reference media and the medium's own.

A person who doubts a caption looks at what else is said of this picture and of similar pictures. Both sources are
weighted by trust: how surely each of those captions belongs to its own medium, given its similarity and the null
distribution of similarities. The null distribution is estimated from random re-pairings of the corpus itself, so that
no constant depends on a model's range of cosines. NumPy only; linear in the number of pairs.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from auditor.score.statistics.rivals import PairEmbeddings, ReferenceSample, iterate_blocks, multiply_blocks
from auditor.score.statistics.siblings import NEARLY_EQUAL
from auditor.vectors import ROWS_AT_ONCE, Floats, Ints, Rows, multiply_rows

NEIGHBORS = 30
POOL = 2048  # reference pairs searched for neighbors: more of them gain little and cost time
PRIOR_TRUST = 0.5  # pseudo-count that the trust in siblings must outweigh
TRUST_CENTER, TRUST_SLOPE = 2.0, 2.0  # trust is one half at two null deviations above the null mean
LEAST_WEIGHT = 0.05  # of the neighbors with other captions, below which they say nothing
NEUTRAL = 2.5  # null deviations at which the similarity of two captions is evidence neither for nor against


@dataclass(frozen=True, slots=True)
class NullCosines:
    """Mean and standard deviation of cosines over random re-pairings: the null distribution."""

    pair: float  # medium and caption
    pair_deviation: float
    media_deviation: float  # two media
    text: float  # two captions
    text_deviation: float

    def trust(self, similarity: Floats) -> Floats:
        """Logistic function of the standardized similarity: how surely pairs belong together, 0 to 1."""
        z = (similarity - self.pair) / self.pair_deviation
        return np.asarray(1 / (1 + np.exp(np.clip(TRUST_SLOPE * (TRUST_CENTER - z), -30, 30))), np.float32)

    @property
    def neutral(self) -> float:
        """Cosine of two captions that is evidence neither for nor against."""
        return self.text + NEUTRAL * self.text_deviation


def fit_null_cosines(reference: ReferenceSample, i: Ints, j: Ints) -> NullCosines:
    text, visual = reference.text, reference.visual
    blocks = [slice(start, start + ROWS_AT_ONCE) for start in range(0, max(1, len(i)), ROWS_AT_ONCE)]
    pair = np.concatenate([reference.media.take(i[rows]).own_similarity(text[j[rows]]) for rows in blocks])
    captions, media = multiply_rows(text, i, text, j), multiply_rows(visual, i, visual, j)
    return NullCosines(
        float(pair.mean()),
        max(float(pair.std()), 1e-6),
        max(float(media.std()), 1e-6),
        float(captions.mean()),
        max(float(captions.std()), 1e-6),
    )


@dataclass(frozen=True, slots=True)
class SiblingProfile:
    """Trust-weighted mean sibling caption of N pairs, shrunk toward zero if trust is low."""

    vector: Floats  # (N, D)
    mass: Floats  # (N,) 0 to 1

    def agreement(self, text: Floats, neutral: float, rows: Rows = slice(None)) -> Floats:
        """Agreement of captions with the profile: 0 if there are no siblings or they are neutral."""
        cosine: Floats = np.einsum("nd,nd->n", self.vector[rows], text)
        return cosine - np.float32(neutral) * self.mass[rows]


def build_sibling_profile(pairs: PairEmbeddings, null_cosines: NullCosines) -> SiblingProfile | None:
    """The profiles of pairs; None if no pair has siblings."""
    if pairs.siblings is None:
        return None
    siblings, (count, dim) = pairs.siblings, pairs.text.shape
    trust = null_cosines.trust(siblings.similarity)
    total = np.zeros((count, dim), np.float32)
    for rows in iterate_blocks(len(siblings.owner), dim):
        owner, row = siblings.owner[rows], siblings.row[rows]
        first = np.flatnonzero(np.diff(owner, prepend=-1))
        total[owner[first]] += np.add.reduceat(siblings.text[row] * trust[row, None], first, axis=0)
    mass = np.bincount(siblings.owner, trust[siblings.row], count).astype(np.float32)
    prior = np.float32(PRIOR_TRUST)
    return SiblingProfile(total / (mass + prior)[:, None], mass / (mass + prior))


class NearestMedia(NamedTuple):
    """The nearest reference media of N media and the weights of their captions; the weights of a row sum to 1."""

    rows: Ints  # (N, K) of the pool
    weight: Floats  # (N, K)


@dataclass(frozen=True, slots=True)
class NeighborPool:
    """The part of the reference that is searched for neighbors."""

    rows: Ints  # (P,) of the reference
    visual: Floats  # (P, D)
    text: Floats  # (P, D)
    group: Ints  # (P,)
    trust: Floats  # (P,) divided by the number of nearly equal captions: those that repeat count once
    sharpness: float

    def find_nearest(self, visual: Floats, group: Ints) -> NearestMedia:
        import faiss

        count = min(NEIGHBORS, len(self.rows))
        largest_group = int(np.unique(self.group, return_counts=True)[1].max())  # hits that may have to be skipped
        index = faiss.IndexFlatIP(self.visual.shape[1])
        index.add(self.visual)
        candidates = min(count + largest_group, len(self.rows))
        blocks = iterate_blocks(len(visual), candidates)
        parts = [self._search_block(index, visual[rows], group[rows], candidates, count) for rows in blocks]
        return NearestMedia(*map(np.concatenate, zip(*parts, strict=True)))

    def _search_block(self, index: Any, visual: Floats, group: Ints, candidates: int, count: int) -> NearestMedia:
        cosine, pool_row = index.search(np.ascontiguousarray(visual), candidates)
        foreign = self.group[pool_row] != group[:, None]
        order = np.argsort(~foreign, axis=1, kind="stable")[:, :count]  # stays best first, with the own group last
        cosine = np.take_along_axis(np.where(foreign, cosine, np.float32(-2)), order, 1)
        pool_row = np.take_along_axis(pool_row, order, 1)
        weight = np.exp(self.sharpness * (cosine - cosine.max(axis=1, keepdims=True)))
        weight *= self.trust[pool_row] * (cosine > -2)
        weight /= np.maximum(weight.sum(axis=1, keepdims=True), 1e-12)
        return NearestMedia(pool_row, weight.astype(np.float32))

    def agreement(self, nearest: NearestMedia, text: Floats, media: Ints) -> Floats:
        """Agreement of captions (N, D) with those of the nearest media; `media` (N,) are rows of `nearest`."""
        parts = [
            average_cosines(np.take_along_axis(cosine, nearest.rows[media[rows]], 1), nearest, media[rows])
            for rows, cosine in multiply_blocks(text, self.text)
        ]
        return np.concatenate(parts)


def average_cosines(cosines: Floats, nearest: NearestMedia, media: Rows) -> Floats:
    """Weighted mean of cosines (N, K) to the captions of the nearest media; NaN if almost all of them are the same.

    A neighbor with the same caption is no evidence: boilerplate would vouch for itself. Neither is the caption itself,
    which is left in its old place when it is re-paired.
    """
    weight = nearest.weight[media] * (cosines < NEARLY_EQUAL)
    mass = weight.sum(axis=1)
    mean: Floats = np.where(mass >= LEAST_WEIGHT, (weight * cosines).sum(axis=1) / np.maximum(mass, 1e-12), np.nan)
    return mean


def build_neighbor_pool(reference: ReferenceSample, null_cosines: NullCosines) -> NeighborPool:
    rows = np.unique(np.linspace(0, len(reference) - 1, min(POOL, len(reference))).astype(np.int64))
    similarity = reference.media.own_similarity(reference.text)
    text = np.ascontiguousarray(reference.text[rows])
    repeats = np.maximum(np.count_nonzero(text @ text.T >= NEARLY_EQUAL, axis=1), 1).astype(np.float32)
    return NeighborPool(
        rows,
        np.ascontiguousarray(reference.visual[rows]),
        text,
        reference.group[rows],
        null_cosines.trust(similarity[rows]) / repeats,
        1 / null_cosines.media_deviation,
    )

"""Do other captions speak for this one? Those of the nearest media of the reference, and the medium's own others.

A person who doubts a caption looks at what else is said of this picture and of pictures like it. Both sources are
weighed by trust: how surely each of those captions belongs to its own medium, judged by its similarity against what
random re-pairings reach. Chance is measured in the corpus itself, so that nothing here depends on a model's range of
cosines. NumPy only; linear in the number of pairs.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from auditor.score.statistics.rivals import Reference, blocks
from auditor.score.statistics.siblings import Siblings
from auditor.vectors import Floats, Ints, Rows

NEIGHBOURS = 30
POOL = 2048  # reference pairs that neighbours are looked for among: more gains little and costs time
DOUBT = 0.5  # trust that must be outweighed before siblings count in full
SURE, STEEP = 2.0, 2.0  # trust is one half at two deviations above chance
MIDDLE = 2.5  # deviations above chance where the similarity of two captions speaks neither for nor against


@dataclass(frozen=True, slots=True)
class Chance:
    """Mean and deviation of the cosine of things that do not belong together."""

    pair: float  # of a medium and a caption
    pair_deviation: float
    media_deviation: float  # of two media
    text: float  # of two captions
    text_deviation: float

    def trust(self, similarity: Floats) -> Floats:
        """How surely pairs with these similarities belong together, 0 to 1."""
        z = (similarity - self.pair) / self.pair_deviation
        found: Floats = (1 / (1 + np.exp(np.clip(STEEP * (SURE - z), -30, 30)))).astype(np.float32)
        return found

    @property
    def middle(self) -> float:
        return self.text + MIDDLE * self.text_deviation


def chance_of(reference: Reference, i: Ints, j: Ints) -> Chance:
    """Chance as found in re-pairings (i, j) of the reference."""
    text, visual = reference.text, reference.visual
    pair = reference.media.take(i).own_similarity(text[j])
    captions = np.einsum("nd,nd->n", text[i], text[j])
    media = np.einsum("nd,nd->n", visual[i], visual[j])
    return Chance(
        float(pair.mean()),
        max(float(pair.std()), 1e-6),
        max(float(media.std()), 1e-6),
        float(captions.mean()),
        max(float(captions.std()), 1e-6),
    )


@dataclass(frozen=True, slots=True)
class Profile:
    """What the siblings of N pairs say together: a weighted mean caption, shrunk towards nothing where trust is low."""

    vector: Floats  # (N, D)
    mass: Floats  # (N,) 0 to 1

    def agreement(self, text: Floats, middle: float, rows: Rows = slice(None)) -> Floats:
        """How far captions agree with it: 0 where there is nothing to agree with, or as much for as against."""
        near: Floats = np.einsum("nd,nd->n", self.vector[rows], text)
        return near - np.float32(middle) * self.mass[rows]


def sibling_profile(siblings: Siblings, count: int, dim: int, chance: Chance) -> Profile:
    """The profile of each of `count` pairs, of width `dim`."""
    trust = chance.trust(siblings.similarity)
    total = np.zeros((count, dim), np.float32)
    for rows in blocks(len(siblings), dim):
        owner, row = siblings.owner[rows], siblings.row[rows]
        first = np.flatnonzero(np.diff(owner, prepend=-1))
        total[owner[first]] += np.add.reduceat(siblings.text[row] * trust[row, None], first, axis=0)
    mass = np.bincount(siblings.owner, trust[siblings.row], count).astype(np.float32)
    return Profile(total / (mass + np.float32(DOUBT))[:, None], mass / (mass + np.float32(DOUBT)))


@dataclass(frozen=True, slots=True)
class Near:
    """The nearest reference media of N media and how much their captions count; the weights of a row add up to 1."""

    rows: Ints  # (N, K) of the pool
    weight: Floats  # (N, K)


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """The part of the reference among which neighbours are looked for."""

    rows: Ints  # (P,) of the reference
    visual: Floats  # (P, D)
    text: Floats  # (P, D)
    group: Ints  # (P,)
    trust: Floats  # (P,)
    sharpness: float

    def near(self, visual: Floats, group: Ints) -> Near:
        """The nearest media of other groups."""
        import faiss

        count = min(NEIGHBOURS, len(self.rows))
        if not count:
            return Near(np.empty((len(visual), 0), np.int64), np.empty((len(visual), 0), np.float32))
        most = int(np.unique(self.group, return_counts=True)[1].max())  # of one group: so many may not count
        index = faiss.IndexFlatIP(self.visual.shape[1])
        index.add(self.visual)
        asked = min(count + most, len(self.rows))
        parts = [self._near(index, visual[rows], group[rows], asked, count) for rows in blocks(len(visual), asked)]
        rows = np.concatenate([np.empty((0, count), np.int64), *(part.rows for part in parts)])
        return Near(rows, np.concatenate([np.empty((0, count), np.float32), *(part.weight for part in parts)]))

    def _near(self, index: Any, visual: Floats, group: Ints, asked: int, count: int) -> Near:
        """From the `asked` nearest of any group."""
        cosine, at = index.search(np.ascontiguousarray(visual), asked)
        other = self.group[at] != group[:, None]
        order = np.argsort(~other, axis=1, kind="stable")[:, :count]  # best first as they are, its own group last
        found = np.take_along_axis(np.where(other, cosine, np.float32(-2)), order, 1)
        at = np.take_along_axis(at, order, 1)
        weight = np.exp(self.sharpness * (found - found.max(axis=1, keepdims=True)))
        weight *= self.trust[at] * (found > -2)
        weight /= np.maximum(weight.sum(axis=1, keepdims=True), 1e-12)
        return Near(at, weight.astype(np.float32))

    def profile(self, near: Near) -> Floats:
        """Weighted mean of the captions of the neighbours: (N, D)."""
        found = np.empty((len(near.rows), self.text.shape[1]), np.float32)
        for rows in blocks(len(found), near.rows.shape[1] * self.text.shape[1]):
            found[rows] = np.matmul(near.weight[rows, None, :], self.text[near.rows[rows]])[:, 0]
        return found


def neighbourhood(reference: Reference, chance: Chance) -> Neighbourhood:
    rows = np.unique(np.linspace(0, len(reference) - 1, min(POOL, len(reference))).astype(np.int64))
    own = reference.media.own_similarity(reference.text)
    return Neighbourhood(
        rows,
        np.ascontiguousarray(reference.visual[rows]),
        np.ascontiguousarray(reference.text[rows]),
        reference.group[rows],
        chance.trust(own[rows]),
        1 / chance.media_deviation,
    )

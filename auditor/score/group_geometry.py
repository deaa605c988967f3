"""Captions that belong to the geometry of another group: moved into that of their pair's group before they are judged.

If media and captions of one group lie apart from those of another (a modality gap of its own), a caption that was
swapped in from the other group can be closer to a medium than the medium's own caption, and no re-pairing within the
group looks like it. Such captions are recognized by their vectors where the groups hardly overlap, and moved by the
difference of the mean vectors; then they are compared like all others. Groups that differ in topics overlap too much,
and captions of a topic are less similar to media of another one, not more: both are left alone. NumPy only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from auditor.score.statistics.rivals import PairEmbeddings
from auditor.vectors import Floats, Ints

APART = 8.0  # deviations between the mean vectors of two groups of captions; topics reach 5
MORE_SIMILAR = 1.0  # deviations of re-pairings by which captions of the other group are more similar to the media
SIDE = 1000  # captions and media whose similarities show which are more similar
ROUNDS = 3  # of k-means with the groups as start: swapped captions belong to the mean of their own geometry
Pairs = TypeVar("Pairs", bound=PairEmbeddings)


@dataclass(frozen=True, slots=True)
class TextGeometry:
    """The mean vectors of the captions of a group (first) and of those that are moved into it."""

    means: Floats  # (G, D)

    def move(self, pairs: Pairs) -> Pairs:
        """The pairs, with the captions of other groups in the geometry of this one."""
        nearest = find_nearest_means(pairs.text, self.means)
        rows = np.flatnonzero(nearest)
        if not len(rows):
            return pairs
        text = pairs.text.copy()
        text[rows] = move_vectors(text[rows], self.means[0] - self.means[nearest[rows]])
        return replace(pairs, text=text)


def move_vectors(vectors: Floats, shift: Floats) -> Floats:
    """Unit vectors (N, D) with their parts along the shifts (N, D) increased by these; the rest makes the norm 1."""
    length = np.linalg.norm(shift, axis=1, keepdims=True)
    direction = shift / length
    along = np.einsum("nd,nd->n", vectors, direction)[:, None]
    across = vectors - along * direction
    along = np.clip(along + length, -1, 1)
    return np.asarray(
        along * direction + across * np.sqrt(1 - along**2) / np.linalg.norm(across, axis=1, keepdims=True)
    )


def find_nearest_means(text: Floats, means: Floats) -> Ints:
    return np.asarray((text @ means.T - (means**2).sum(axis=1) / 2).argmax(axis=1))


def fit_geometries(groups: Mapping[str, PairEmbeddings]) -> dict[str, TextGeometry]:
    """The geometries of the groups whose captions lie apart from those of other groups; most corpora have none."""
    if len(groups) < 2:
        return {}
    texts = [pairs.text for pairs in groups.values()]
    everything = np.concatenate(texts)
    number = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    for _ in range(ROUNDS):
        means = np.stack([everything[number == group].mean(axis=0) for group in range(len(texts))])
        number = find_nearest_means(everything, means)
        if len(np.unique(number)) < len(texts):
            return {}
    geometries = {}
    for group, (name, pairs) in enumerate(groups.items()):
        members = everything[number == group]
        foreign = [i for i in range(len(texts)) if i != group and is_closer(pairs, members, everything[number == i])]
        if foreign:
            geometries[name] = TextGeometry(means[[group, *foreign]])
    return geometries


def is_closer(pairs: PairEmbeddings, members: Floats, foreign: Floats) -> bool:
    """Whether captions of another geometry can be told from the members, and are closer to the media."""
    return measure_gap(members, foreign) >= APART and measure_advantage(pairs, members, foreign) >= MORE_SIMILAR


def measure_gap(first: Floats, second: Floats) -> float:
    """How far two groups of vectors are apart along the line through their means, in the larger deviation."""
    direction = second.mean(axis=0) - first.mean(axis=0)
    sides = first @ direction, second @ direction
    return float((sides[1].mean() - sides[0].mean()) / max(*(side.std() for side in sides), 1e-9))


def measure_advantage(pairs: PairEmbeddings, members: Floats, foreign: Floats) -> float:
    """How much more similar to the media the foreign captions are on average, in deviations of re-pairings."""
    similarity = pairs.visual[:SIDE] @ members[:SIDE].T
    return float(
        ((pairs.visual[:SIDE] @ foreign.mean(axis=0)).mean() - similarity.mean()) / max(similarity.std(), 1e-9)
    )

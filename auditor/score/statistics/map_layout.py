"""A map of a corpus: a bounded sample of vectors laid out in two dimensions, the rest placed among them. NumPy only.

Neighbours attract and random others repel, from a start by principal components (the cost of UMAP, with the gradient
written out); every step is seeded and every sum is taken in a fixed order, so the same vectors give the same map.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

NEIGHBOURS = 12
STEPS = 200
OTHERS = 6  # repelling points for each attracting one
PLACING = 5  # neighbours that a new vector is placed among
SPREAD_A, SPREAD_B = 1.577, 0.895  # UMAP's curve for a smallest distance of 0.1
SHARPNESS = 30.0  # of the weights of a new vector's neighbours, per unit of cosine
SHORT = 128  # numbers of a vector that is placed
BLOCK = 512


@dataclass(frozen=True)
class Layout:
    """The sample on the map: what others are placed by."""

    vectors: Floats  # (S, D), unit length
    position: Floats  # (S, 2), within -1 and 1

    def place(self, vectors: Floats) -> Floats:
        """Positions (N, 2) of any vectors: the mean of their nearest of the sample, weighted by nearness."""
        sample = self._short(self.vectors)
        parts = [self._place(vectors[at : at + BLOCK], sample) for at in range(0, len(vectors), BLOCK)]
        return np.concatenate([np.empty((0, 2), np.float32), *parts])

    @cached_property
    def axes(self) -> Floats | None:
        """(D, SHORT) in which the sample lies best; None where its vectors are no longer than that."""
        if self.vectors.shape[1] <= SHORT:
            return None
        _, axes = np.linalg.eigh((self.vectors.T @ self.vectors).astype(np.float64))
        return np.ascontiguousarray(axes[:, -SHORT:], np.float32)

    def _short(self, vectors: Floats) -> Floats:
        """Along the axes, of unit length: a quarter of the work, and neighbours stay neighbours."""
        if self.axes is None:
            return vectors
        short = vectors @ self.axes
        unit: Floats = short / np.maximum(np.linalg.norm(short, axis=1, keepdims=True), 1e-12)
        return unit

    def _place(self, vectors: Floats, sample: Floats) -> Floats:
        near, similarity = few_nearest(self._short(vectors) @ sample.T, min(PLACING, len(sample)))
        weight = np.exp(SHARPNESS * (similarity - similarity.max(axis=1, keepdims=True)))
        weight /= weight.sum(axis=1, keepdims=True)
        placed: Floats = np.einsum("nk,nkd->nd", weight, self.position[near]).astype(np.float32)
        return placed


def fit_layout(vectors: Floats, seed: int = 0) -> Layout:
    """Lay out a sample; duplicates lie on top of each other, and fewer than four vectors on a line."""
    start = principal(vectors)
    if len(vectors) < 4:
        return Layout(vectors, scaled(start))
    generator = np.random.default_rng(seed)
    jitter = generator.normal(scale=1e-3, size=start.shape)
    head, tail, weight = edges(vectors, min(NEIGHBOURS, len(vectors) - 1))
    position = 10 * scaled(start) + jitter
    for step in range(STEPS):
        pull(position, head, tail, weight, generator, rate=1 - step / STEPS)
    return Layout(vectors, scaled(position))


def principal(vectors: Floats) -> npt.NDArray[np.float64]:
    """The first two principal components, with a sign that does not depend on the machine."""
    if len(vectors) < 2 or vectors.shape[1] < 2:
        return np.zeros((len(vectors), 2))
    centred = vectors.astype(np.float64) - vectors.mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    first = axes[:, [-1, -2]]
    first = first * np.sign(first[np.abs(first).argmax(axis=0), [0, 1]])
    return np.asarray(centred @ first)


def nearest(vectors: Floats, among: Floats, count: int) -> tuple[Ints, Floats]:
    """The `count` most similar of `among` for each vector, best first, and their similarities."""
    similarity = vectors @ among.T
    if count < len(among):
        near = np.argpartition(-similarity, count - 1, axis=1)[:, :count]
    else:
        near = np.tile(np.arange(len(among)), (len(vectors), 1))
    found = np.take_along_axis(similarity, near, 1)
    order = np.lexsort((near, -found), axis=1)
    return np.take_along_axis(near, order, 1), np.take_along_axis(found, order, 1)


def few_nearest(similarity: Floats, count: int) -> tuple[Ints, Floats]:
    """The `count` largest of each row, best first, by looking for the largest so often; `similarity` is used up.

    For a handful this takes a third of the time of a partition, and equal ones always come in the same order.
    """
    rows = np.arange(len(similarity))
    near = np.empty((len(similarity), count), np.int64)
    found = np.empty((len(similarity), count), np.float32)
    for one in range(count):
        near[:, one] = similarity.argmax(axis=1)
        found[:, one] = similarity[rows, near[:, one]]
        similarity[rows, near[:, one]] = -np.inf
    return near, found


def edges(vectors: Floats, neighbours: int) -> tuple[Ints, Ints, npt.NDArray[np.float64]]:
    """Who attracts whom and how strongly: nearest neighbours, weighted by how near they are for the one that looks."""
    near, similarity = nearest_others(vectors, neighbours)
    distance = np.maximum(1 - similarity.astype(np.float64), 0)
    beyond = distance - distance[:, :1]
    width = np.maximum(beyond.mean(axis=1, keepdims=True), 1e-6)
    weight = np.exp(-beyond / width)
    head = np.repeat(np.arange(len(vectors)), neighbours)
    return head, near.reshape(-1), weight.reshape(-1)


def nearest_others(vectors: Floats, count: int) -> tuple[Ints, Floats]:
    parts = []
    for start in range(0, len(vectors), BLOCK):
        near, similarity = nearest(vectors[start : start + BLOCK], vectors, count + 1)
        own = near == np.arange(start, start + len(near))[:, None]
        own[~own.any(axis=1), -1] = True  # a duplicate took its place: leave out the last
        keep = ~own
        shape = (len(near), count)
        parts.append((near[keep].reshape(shape), similarity[keep].reshape(shape)))
    return np.concatenate([near for near, _ in parts]), np.concatenate([found for _, found in parts])


def pull(
    position: npt.NDArray[np.float64],
    head: Ints,
    tail: Ints,
    weight: npt.NDArray[np.float64],
    generator: np.random.Generator,
    rate: float,
) -> None:
    """One step: neighbours draw near, random others push away; all at once, so that no order matters."""
    apart = position[head] - position[tail]
    square = (apart**2).sum(axis=1)
    power = np.power(square, SPREAD_B - 1, out=np.zeros_like(square), where=square > 0)
    attract = -2 * SPREAD_A * SPREAD_B * power / (1 + SPREAD_A * square * power) * weight
    force = np.clip(attract[:, None] * apart, -4, 4)
    moved = scatter(head, force, len(position)) - scatter(tail, force, len(position))

    pushed = np.repeat(np.arange(len(position)), OTHERS * 3)
    other = generator.integers(0, len(position), len(pushed))
    apart = position[pushed] - position[other]
    square = (apart**2).sum(axis=1)
    repel = 2 * SPREAD_B / ((0.001 + square) * (1 + SPREAD_A * np.power(square, SPREAD_B)))
    force = np.clip(repel[:, None] * apart, -4, 4)
    moved += scatter(pushed, force, len(position)) * (weight.sum() * OTHERS / len(pushed))
    position += rate * np.clip(moved / NEIGHBOURS, -2, 2)


def scatter(at: Ints, force: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.float64]:
    return np.stack([np.bincount(at, force[:, axis], count) for axis in (0, 1)], axis=1)


def scaled(position: npt.NDArray[np.float64]) -> Floats:
    """Centred, and shrunk so that all but a few outliers lie within -1 and 1; those are drawn to the edge."""
    if not len(position):
        return np.empty((0, 2), np.float32)
    centred = position - np.median(position, axis=0)
    reach = np.quantile(np.abs(centred), 0.998) or 1.0
    return np.clip(centred / reach, -1, 1).astype(np.float32)

"""Layout of a map: a bounded sample of vectors in two dimensions, with other vectors placed among them. NumPy only.

Neighbors attract and random others repel, starting from principal components (the loss of UMAP, with the gradient
written out). Every step is seeded and every sum has a fixed order, so the same vectors give the same map.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from auditor.score.statistics.rivals import multiply_blocks
from auditor.vectors import Floats, Ints

Doubles = npt.NDArray[np.float64]

NEIGHBORS = 12
STEPS = 200
REPELLING = 6  # repelling points for each attracting one
PLACING = 5  # neighbors among which a new vector is placed
SPREAD_A, SPREAD_B = 1.577, 0.895  # UMAP's curve for a minimum distance of 0.1
SHARPNESS = 30.0  # of the weights of a new vector's neighbors, per unit of cosine
PLACING_WIDTH = 128  # dimensions of a vector that is placed
BLOCK = 512


@dataclass(frozen=True)
class Layout:
    """The sample and its positions on the map."""

    vectors: Floats  # (S, D), unit length
    position: Floats  # (S, 2), within -1 and 1

    def place(self, vectors: Floats) -> Floats:
        """Positions (N, 2) of vectors: the mean position of their nearest sample vectors, weighted by similarity."""
        blocks = multiply_blocks(self._project(vectors), self._project(self.vectors))
        return np.concatenate([np.empty((0, 2), np.float32), *(self._place_block(block) for _, block in blocks)])

    @cached_property
    def axes(self) -> Floats | None:
        """The leading eigenvectors (D, PLACING_WIDTH) of the sample; None if its vectors are not wider than that."""
        if self.vectors.shape[1] <= PLACING_WIDTH:
            return None
        _, axes = np.linalg.eigh((self.vectors.T @ self.vectors).astype(np.float64))
        return np.ascontiguousarray(axes[:, -PLACING_WIDTH:], np.float32)

    def _project(self, vectors: Floats) -> Floats:
        """Project on the axes and normalize: a quarter of the work, and neighbors remain neighbors."""
        if self.axes is None:
            return vectors
        projected = vectors @ self.axes
        unit: Floats = projected / np.maximum(np.linalg.norm(projected, axis=1, keepdims=True), 1e-12)
        return unit

    def _place_block(self, similarity: Floats) -> Floats:
        """Positions from the similarities (B, S) to the sample, which are overwritten."""
        neighbors, similarity = pick_largest(similarity, min(PLACING, similarity.shape[1]))
        weight = np.exp(SHARPNESS * (similarity - similarity.max(axis=1, keepdims=True)))
        weight /= weight.sum(axis=1, keepdims=True)
        position: Floats = np.einsum("nk,nkd->nd", weight, self.position[neighbors]).astype(np.float32)
        return position


def fit_layout(vectors: Floats, seed: int = 0) -> Layout:
    """Lay out a sample; duplicates coincide, and fewer than four vectors lie on a line."""
    start = project_principal(vectors)
    if len(vectors) < 4:
        return Layout(vectors, scale_positions(start))
    generator = np.random.default_rng(seed)
    jitter = generator.normal(scale=1e-3, size=start.shape)
    head, tail, weight = build_neighbor_graph(vectors, min(NEIGHBORS, len(vectors) - 1))
    position = np.ascontiguousarray((10 * scale_positions(start) + jitter).T)
    for step in range(STEPS):
        update_positions(position, head, tail, weight, generator, rate=1 - step / STEPS)
    return Layout(vectors, scale_positions(position.T))


def project_principal(vectors: Floats) -> Doubles:
    """The first two principal components, with a sign that does not depend on the machine."""
    if len(vectors) < 2 or vectors.shape[1] < 2:
        return np.zeros((len(vectors), 2))
    centered = vectors.astype(np.float64) - vectors.mean(axis=0)
    _, axes = np.linalg.eigh(centered.T @ centered)
    first = axes[:, [-1, -2]]
    first = first * np.sign(first[np.abs(first).argmax(axis=0), [0, 1]])
    return np.asarray(centered @ first)


def find_most_similar(vectors: Floats, candidates: Floats, count: int) -> tuple[Ints, Floats]:
    """The `count` most similar candidates of each vector, best first, and their similarities."""
    similarity = vectors @ candidates.T
    rows = np.argpartition(-similarity, min(count, len(candidates)) - 1, axis=1)[:, :count]
    values = np.take_along_axis(similarity, rows, 1)
    order = np.lexsort((rows, -values), axis=1)
    return np.take_along_axis(rows, order, 1), np.take_along_axis(values, order, 1)


def pick_largest(similarity: Floats, count: int) -> tuple[Ints, Floats]:
    """The columns and values of the `count` largest of each row, best first; `similarity` is overwritten.

    Repeated argmax takes a third of the time of a partition for a few columns, and ties have a fixed order.
    """
    rows = np.arange(len(similarity))
    columns = np.empty((len(similarity), count), np.int64)
    values = np.empty((len(similarity), count), np.float32)
    for rank in range(count):
        columns[:, rank] = similarity.argmax(axis=1)
        values[:, rank] = similarity[rows, columns[:, rank]]
        similarity[rows, columns[:, rank]] = -np.inf
    return columns, values


def build_neighbor_graph(vectors: Floats, count: int) -> tuple[Ints, Ints, Doubles]:
    """Edges (head, tail, weight) from each vector to its nearest neighbors, weighted by relative distance."""
    neighbors, similarity = find_nearest_others(vectors, count)
    distance = np.maximum(1 - similarity.astype(np.float64), 0)
    excess = distance - distance[:, :1]
    width = np.maximum(excess.mean(axis=1, keepdims=True), 1e-6)
    weight = np.exp(-excess / width)
    head = np.repeat(np.arange(len(vectors)), count)
    return head, neighbors.reshape(-1), weight.reshape(-1)


def find_nearest_others(vectors: Floats, count: int) -> tuple[Ints, Floats]:
    """The nearest neighbors of each vector without the vector itself, and their similarities."""
    rows, values = [], []
    for start in range(0, len(vectors), BLOCK):
        neighbors, similarity = find_most_similar(vectors[start : start + BLOCK], vectors, count + 1)
        itself = neighbors == np.arange(start, start + len(neighbors))[:, None]
        itself[~itself.any(axis=1), -1] = True  # a duplicate took its place: leave out the last
        shape = (len(neighbors), count)
        rows.append(neighbors[~itself].reshape(shape))
        values.append(similarity[~itself].reshape(shape))
    return np.concatenate(rows), np.concatenate(values)


def update_positions(
    position: Doubles, head: Ints, tail: Ints, weight: Doubles, generator: np.random.Generator, rate: float
) -> None:
    """One gradient step on the coordinates (2, S): neighbors attract, random others repel.

    All points move at once, so that their order does not matter.
    """
    count = position.shape[1]
    apart = position.take(head, axis=1) - position.take(tail, axis=1)
    square = apart[0] ** 2 + apart[1] ** 2
    power = np.power(np.maximum(square, 1e-12), SPREAD_B - 1)  # of a point and its copy, the force is 0 anyway
    attract = -2 * SPREAD_A * SPREAD_B * power / (1 + SPREAD_A * square * power) * weight
    force = np.clip(attract * apart, -4, 4)
    gradient = sum_forces(head, force, count) - sum_forces(tail, force, count)

    pushed = np.repeat(np.arange(count), REPELLING * 3)
    other = generator.integers(0, count, len(pushed))
    apart = np.repeat(position, REPELLING * 3, axis=1) - position.take(other, axis=1)
    square = apart[0] ** 2 + apart[1] ** 2
    repel = 2 * SPREAD_B / ((0.001 + square) * (1 + SPREAD_A * np.power(square, SPREAD_B)))
    force = np.clip(repel * apart, -4, 4)
    gradient += sum_forces(pushed, force, count) * (weight.sum() * REPELLING / len(pushed))
    position += rate * np.clip(gradient / NEIGHBORS, -2, 2)


def sum_forces(point: Ints, force: Doubles, count: int) -> Doubles:
    return np.stack([np.bincount(point, along, count) for along in force])


def scale_positions(position: Doubles) -> Floats:
    """Center, and scale so that all but a few outliers lie within -1 and 1; outliers are clipped to the edge."""
    if not len(position):
        return np.empty((0, 2), np.float32)
    centered = position - np.median(position, axis=0)
    reach = np.quantile(np.abs(centered), 0.998) or 1.0
    return np.clip(centered / reach, -1, 1).astype(np.float32)

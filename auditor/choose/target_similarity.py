"""Similarity of media to a target set (NormSim of Wang et al. 2024), from stored vectors.

The infinity norm is the highest cosine to a vector of the target. The 2-norm is the root mean square of the cosines to
all of them, which needs only the second moment of the target. A small target is compared as a whole. A large one is
partitioned into cells by k-means, and each medium is compared with the cells whose centroids are nearest to it; the
highest cosine is then exact or slightly too low (tests/bench/choose_million.py measures by how much).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from auditor.corpus.corpus_files import digest
from auditor.errors import AuditError
from auditor.score.statistics.duplicates import assign_cells, fit_cells
from auditor.score.statistics.rivals import iterate_blocks
from auditor.vectors import Floats, Ints

Norm = Literal["inf", "2"]
MOST_VECTORS = 200_000  # of a target that are compared one by one; of a larger target a random sample
COMPARED_WHOLE = 16_384  # vectors up to which a target has no cells
PROBES = 16  # cells that a medium is compared with
BLOCK = 16_384  # media compared at once


class TargetError(AuditError):
    """A target that media cannot be compared with."""


@dataclass(frozen=True)
class TargetSet:
    """The unit vectors of a target, or a sample of them, and the second moment of all of them."""

    vectors: Floats  # (T, D)
    moment: npt.NDArray[np.float64]  # (D, D) mean of the outer products
    count: int  # vectors of the whole target

    @property
    def mark(self) -> str:
        return digest(self.vectors.tobytes() + self.moment.tobytes())


def collect_target(parts: Iterable[Floats], seed: int = 0) -> TargetSet:
    """Build a target from its vectors, part by part; memory is bounded by MOST_VECTORS and a part."""
    generator = np.random.default_rng(seed)
    vectors, turns, moment, count = np.zeros((0, 0), np.float32), np.zeros(0), np.zeros((0, 0)), 0
    for part in parts:
        lengths = np.linalg.norm(part, axis=1, keepdims=True)
        part = (part / np.where(lengths > 0, lengths, 1))[lengths[:, 0] > 0].astype(np.float32)
        if not len(part):
            continue
        if not count:
            vectors, moment = part[:0], np.zeros((part.shape[1],) * 2)
        moment += part.T @ part
        count += len(part)
        vectors, turns = np.concatenate([vectors, part]), np.concatenate([turns, generator.random(len(part))])
        if len(vectors) > MOST_VECTORS:
            chosen = np.sort(np.argpartition(turns, MOST_VECTORS)[:MOST_VECTORS])
            vectors, turns = vectors[chosen], turns[chosen]
    if not count:
        raise TargetError("the target is empty: it has no vector to compare with")
    return TargetSet(vectors, moment / count, count)


def find_highest_cosine(visual: Floats, vectors: Floats) -> Floats:
    highest = np.empty(len(visual), np.float32)
    for rows in iterate_blocks(len(visual), len(vectors)) if len(visual) else ():
        highest[rows] = (visual[rows] @ vectors.T).max(axis=1)
    return highest


@dataclass(frozen=True)
class TargetCells:
    """A large target in cells."""

    centroids: Floats  # (C, D)
    vectors: Floats  # (T, D), sorted by cell
    starts: Ints  # (C + 1,)

    def search(self, visual: Floats, probes: int) -> Floats:
        """The highest cosine of each of N media to the vectors in its `probes` nearest cells."""
        nearest_cells = np.argpartition(visual @ self.centroids.T, -probes, axis=1)[:, -probes:]  # (N, probes)
        order = np.argsort(nearest_cells, axis=None, kind="stable")
        ends = np.searchsorted(nearest_cells.ravel()[order], np.arange(len(self.centroids) + 1))
        highest = np.full(len(visual), -1, np.float32)
        for cell in np.flatnonzero(np.diff(ends)).tolist():
            rows = order[ends[cell] : ends[cell + 1]] // probes
            cosine = find_highest_cosine(visual[rows], self.vectors[self.starts[cell] : self.starts[cell + 1]])
            highest[rows] = np.maximum(highest[rows], cosine)
        return highest


def divide_target(vectors: Floats, probes: int = PROBES, whole: int = COMPARED_WHOLE) -> TargetCells:
    """Divide a large target so that a medium is compared with as many centroids as vectors; a small one is one cell."""
    if len(vectors) <= whole:
        return TargetCells(vectors[:1], vectors, np.array([0, len(vectors)]))
    centroids = fit_cells(vectors, round((probes * len(vectors)) ** 0.5))
    _, cell, is_own = assign_cells(vectors, centroids, threshold=1.0)
    sizes = np.bincount(cell[is_own], minlength=len(centroids))
    filled = np.flatnonzero(sizes)
    starts = np.concatenate([[0], np.cumsum(sizes[filled])])
    return TargetCells(centroids[filled], vectors[np.argsort(cell[is_own], kind="stable")], starts)


@dataclass(frozen=True)
class HighestCosine:
    """The infinity norm; can be sent to a worker."""

    cells: TargetCells
    probes: int = PROBES

    def __call__(self, visual: Floats) -> Floats:
        probes = min(self.probes, len(self.cells.centroids))
        parts = [self.cells.search(visual[at : at + BLOCK], probes) for at in range(0, len(visual), BLOCK)]
        return np.concatenate([np.zeros(0, np.float32), *parts])


@dataclass(frozen=True)
class MeanSquareCosine:
    """The 2-norm; can be sent to a worker."""

    moment: Floats  # (D, D)

    def __call__(self, visual: Floats) -> Floats:
        mean_square = np.einsum("nd,nd->n", visual @ self.moment, visual)
        return np.asarray(np.sqrt(np.maximum(mean_square, 0)), np.float32)


def build_similarity(target: TargetSet, norm: Norm) -> HighestCosine | MeanSquareCosine:
    if norm == "2":
        return MeanSquareCosine(target.moment.astype(np.float32))
    return HighestCosine(divide_target(target.vectors))

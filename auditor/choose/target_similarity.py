"""Similarity of media to a target set (NormSim of Wang et al. 2024), from stored vectors.

The infinity norm is the highest cosine to a vector of the target. The 2-norm is the root mean square of the cosines to
all of them, which needs only the second moment of the target. A small target is compared as a whole. A large one is
partitioned into cells by k-means; the codes of the nearest cells choose the vectors that a medium is compared with. The
highest cosine is then exact or slightly too low (tests/bench/choose_million.py measures by how much).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from auditor.corpus.corpus_files import digest
from auditor.errors import AuditError
from auditor.vectors import Floats

Norm = Literal["inf", "2"]
MOST_VECTORS = 200_000  # of a target that are compared one by one; of a larger target a random sample
COMPARED_WHOLE = 8_192  # vectors up to which a target has no cells
CELLS = 2  # times the square root of the number of vectors
PROBES = 32  # cells whose codes a medium is compared with
COMPARED_EXACTLY = 64  # vectors of these cells that are the nearest by their codes
ROUNDS, SAMPLE_PER_CELL = 10, 40  # of the k-means
BLOCK = 16_384  # media compared together


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


def build_index(vectors: Floats, whole: int = COMPARED_WHOLE) -> Any:
    """A faiss index of unit vectors; of more than `whole`, 4-bit codes in cells choose those that are compared."""
    import faiss

    count, width = vectors.shape
    if count <= whole:
        index: Any = faiss.IndexFlatIP(width)
    else:
        parts = next(parts for parts in range(-(-width // 4), width + 1) if width % parts == 0)  # with a code each
        cells = round(CELLS * count**0.5)
        index = faiss.index_factory(width, f"IVF{cells},PQ{parts}x4fs,RFlat", faiss.METRIC_INNER_PRODUCT)
        index.k_factor, in_cells = COMPARED_EXACTLY, faiss.extract_index_ivf(index)
        in_cells.nprobe, in_cells.cp.niter, in_cells.cp.spherical = PROBES, ROUNDS, True
        in_cells.cp.min_points_per_centroid, in_cells.cp.max_points_per_centroid = 1, SAMPLE_PER_CELL
        index.train(vectors[:: max(1, count // (SAMPLE_PER_CELL * cells))])
    index.add(vectors)
    return index


@dataclass(frozen=True)
class HighestCosine:
    """The infinity norm; can be sent to a worker."""

    index: Any

    def __call__(self, visual: Floats) -> Floats:
        blocks = [visual[start : start + BLOCK] for start in range(0, len(visual), BLOCK)]
        return np.concatenate([np.zeros(0, np.float32), *(self.index.search(block, 1)[0][:, 0] for block in blocks)])


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
    return HighestCosine(build_index(target.vectors))

"""The nearest of many stored vectors to a query, exactly: float16 read in blocks, compared as float32. NumPy only.

Memory is that of a block per thread, whatever the number of vectors; a million of width 512 take about half a second on
two cores (tests/bench/search_million.py).
"""

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Halves = npt.NDArray[np.float16]
Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

BLOCK = 2048  # vectors converted at once: with width 512 they stay in a core's cache
CHUNK = 32 * BLOCK  # vectors of which a thread keeps the best
THREADS = max(1, min(4, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1))


@dataclass(frozen=True, slots=True)
class Nearest:
    """Places of vectors and their similarity to the query, best first; equal ones in the order they are stored."""

    place: Ints
    similarity: Floats

    def __len__(self) -> int:
        return len(self.place)


def nearest(vectors: Halves, query: Floats, n: int, allowed: Bools | None = None, threads: int = THREADS) -> Nearest:
    """The n vectors with the largest inner product; `allowed` leaves out all others."""

    def best_of(start: int) -> Nearest:
        mask = None if allowed is None else allowed[start : start + CHUNK]
        return best_of_chunk(vectors[start : start + CHUNK], query, n, mask, start)

    with ThreadPoolExecutor(threads) as pool:
        return merged(pool.map(best_of, range(0, len(vectors), CHUNK)), n)


def best_of_chunk(vectors: Halves, query: Floats, n: int, allowed: Bools | None, offset: int) -> Nearest:
    similarity = np.empty(len(vectors), np.float32)
    block = np.empty((min(BLOCK, len(vectors)), vectors.shape[1]), np.float32)
    for start in range(0, len(vectors), BLOCK):
        part = vectors[start : start + BLOCK]
        held = block[: len(part)]
        np.copyto(held, part)
        # not matmul: BLAS would start threads of its own in each of ours, and take three times as long
        np.einsum("nd,d->n", held, query, out=similarity[start : start + len(part)])
    if allowed is not None:
        similarity[~allowed] = -np.inf
    return best(np.arange(offset, offset + len(vectors)), similarity, n)


def best(place: Ints, similarity: Floats, n: int) -> Nearest:
    """The n largest, best first; -inf is no candidate, and ties go to the smaller place."""
    if n < len(similarity):
        least = np.partition(similarity, len(similarity) - n)[len(similarity) - n]
        chosen = np.flatnonzero(similarity >= least)  # ties at the end are settled below
    else:
        chosen = np.arange(len(similarity))
    chosen = chosen[np.isfinite(similarity[chosen])]
    order = chosen[np.lexsort((place[chosen], -similarity[chosen]))][:n]
    return Nearest(place[order], similarity[order])


def merged(parts: Iterable[Nearest], n: int) -> Nearest:
    found = Nearest(np.empty(0, np.int64), np.empty(0, np.float32))
    for part in parts:
        places = np.concatenate([found.place, part.place])
        found = best(places, np.concatenate([found.similarity, part.similarity]), n)
    return found

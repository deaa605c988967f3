"""The vectors of an audit in one flat file (search/visual.f16 or search/text.f16), and exact nearest-neighbor search.

Decoding Parquet takes longer than a search should. The flat file is mapped into memory and read at the speed of the
disk cache: float16, in blocks, compared as float32. It is derived data: it may be deleted at any time, and it is built
again if the embeddings have changed. If an audit is remote or read-only, the file is a temporary one. A million vectors
of width 512 take about half a second on two cores (tests/bench/search_million.py).
"""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import numpy.typing as npt

from auditor.audit_folder.audit_files import find_swept_shards
from auditor.audit_folder.embeddings import name_embeddings_file
from auditor.audit_folder.folder import Folder, StorageError
from auditor.cores import count_cores
from auditor.vectors import Bools, Floats, Halves, Ints
from auditor.workers.encoder_client import SearchError

Places = npt.NDArray[np.int32]

BLOCK = 2048  # vectors converted at once: with width 512 they stay in a core's cache
CHUNK = 32 * BLOCK  # vectors that a thread searches at a time
THREADS = max(1, min(4, count_cores()))


@dataclass(frozen=True, slots=True)
class Nearest:
    """Places of vectors and their similarity to the query, best first; ties in stored order."""

    place: Ints
    similarity: Floats


def find_nearest(
    vectors: Halves, query: Floats, n: int, allowed: Bools | None = None, threads: int = THREADS
) -> Nearest:
    """Return the n vectors with the largest inner product, among the `allowed` ones."""

    def best_of(start: int) -> Nearest:
        mask = None if allowed is None else allowed[start : start + CHUNK]
        return find_best_of_chunk(vectors[start : start + CHUNK], query, n, mask, start)

    with ThreadPoolExecutor(threads) as pool:
        parts = list(pool.map(best_of, range(0, len(vectors), CHUNK)))
    place = np.concatenate([np.empty(0, np.int64), *(part.place for part in parts)])
    return select_best(place, np.concatenate([np.empty(0, np.float32), *(part.similarity for part in parts)]), n)


def find_best_of_chunk(vectors: Halves, query: Floats, n: int, allowed: Bools | None, offset: int) -> Nearest:
    similarity = np.empty(len(vectors), np.float32)
    block = np.empty((min(BLOCK, len(vectors)), vectors.shape[1]), np.float32)
    for start in range(0, len(vectors), BLOCK):
        part = vectors[start : start + BLOCK]
        held = block[: len(part)]
        np.copyto(held, part)
        # not matmul: BLAS would start more threads in each thread, and take three times as long
        np.einsum("nd,d->n", held, query, out=similarity[start : start + len(part)])
    if allowed is not None:
        similarity[~allowed] = -np.inf
    return select_best(np.arange(offset, offset + len(vectors)), similarity, n)


def select_best(place: Ints, similarity: Floats, n: int) -> Nearest:
    """Return the n largest, best first; -inf is excluded, and ties go to the smaller place."""
    if n < len(similarity):
        threshold = np.partition(similarity, len(similarity) - n)[len(similarity) - n]
        chosen = np.flatnonzero(similarity >= threshold)  # the sort below resolves ties
    else:
        chosen = np.arange(len(similarity))
    chosen = chosen[np.isfinite(similarity[chosen])]
    order = chosen[np.lexsort((place[chosen], -similarity[chosen]))][:n]
    return Nearest(place[order], similarity[order])


Side = Literal["visual", "text"]
SIDES: dict[str, Side] = {"media": "visual", "captions": "text"}
BATCH = 4096  # rows


@dataclass(frozen=True)
class VectorIndex:
    """All vectors of one side, each with the number of its shard and its row in that shard."""

    matrix: Halves  # (N, D), memory-mapped
    shard: Places  # (N,)
    row: Places  # (N,); for media, the row of the first caption
    shards: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.row)


def open_vectors(folder: Folder, side: Side) -> VectorIndex:
    """Open the flat file of a side; build it first if it is missing or the embeddings have changed."""
    shards = find_swept_shards(folder)
    if not shards:
        raise SearchError(f"{folder.url} has no embeddings, so it cannot be searched")
    mark = compute_index_fingerprint(folder, shards)
    if folder.local:
        place = Path(folder.path("search"))
        if index := read_index(place, side, shards, mark):
            return index
        with contextlib.suppress(PermissionError, StorageError):
            return build_index(folder, shards, side, place, mark)
    return build_index(folder, shards, side, Path(tempfile.mkdtemp(prefix="auditor-search-")), mark)


def compute_index_fingerprint(folder: Folder, shards: list[str]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for shard in shards:
        digest.update(shard.encode())
        if folder.local:
            status = os.stat(folder.path(name_embeddings_file(shard)))
            digest.update(f"{status.st_size} {status.st_mtime_ns}".encode())
    return digest.hexdigest()


def read_index(place: Path, side: Side, shards: list[str], mark: str) -> VectorIndex | None:
    """Open an existing index; None if it is missing or the embeddings have changed."""
    try:
        with np.load(place / f"{side}.npz") as places:
            if str(places["mark"]) != mark:
                return None
            shard, row, width = places["shard"], places["row"], int(places["width"])
        return VectorIndex(map_vectors(place / f"{side}.f16", len(row), width), shard, row, tuple(shards))
    except (OSError, ValueError, KeyError):
        return None


def map_vectors(path: Path, rows: int, width: int) -> Halves:
    if not rows:
        return np.empty((0, width), np.float16)
    return np.memmap(path, np.float16, "r", shape=(rows, width))


def build_index(folder: Folder, shards: list[str], side: Side, place: Path, mark: str) -> VectorIndex:
    """Copy the vectors from Parquet in batches; the .npz file is written last and marks a complete index."""
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{side}.npz").unlink(missing_ok=True)
    numbers, rows, width = [np.empty(0, np.int32)], [np.empty(0, np.int32)], 0
    handle, temporary = tempfile.mkstemp(dir=place)
    with os.fdopen(handle, "wb") as file:
        for number, shard in enumerate(shards):
            for row_numbers, vector_width in copy_vectors(folder, shard, side, file):
                width = vector_width
                rows.append(row_numbers)
                numbers.append(np.full(len(row_numbers), number, np.int32))
    os.replace(temporary, place / f"{side}.f16")
    shard_of, row_of = np.concatenate(numbers), np.concatenate(rows)
    handle, temporary = tempfile.mkstemp(dir=place, suffix=".npz")
    with os.fdopen(handle, "wb") as places:
        np.savez(places, shard=shard_of, row=row_of, width=width, mark=mark)
    os.replace(temporary, place / f"{side}.npz")
    return VectorIndex(map_vectors(place / f"{side}.f16", len(row_of), width), shard_of, row_of, tuple(shards))


def copy_vectors(folder: Folder, shard: str, side: Side, file: IO[bytes]) -> Iterator[tuple[Places, int]]:
    """Append the vectors of a shard to a file; yield their row numbers and their width."""
    with folder.open_table(name_embeddings_file(shard)) as opened:
        start = 0
        for batch in opened.iter_batches(BATCH, columns=[side]):
            column: Any = batch.column(0)
            valid_rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
            values = column.flatten().to_numpy(zero_copy_only=False)  # only of rows that have a vector
            file.write(np.ascontiguousarray(np.nan_to_num(values)).tobytes())
            yield (valid_rows + start).astype(np.int32), column.type.list_size
            start += len(column)

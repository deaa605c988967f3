"""The vectors of an audit in one flat file, search/visual.f16 or search/text.f16, made on the first search.

Parquet takes longer to decode than a search may take; a flat file is mapped into memory and read at the speed of the
disk cache. It is derived data: it may be deleted at any time, and is made anew when the embeddings have changed. An
audit that cannot be written (or is remote) is searched through a temporary file that lives as long as the process.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import numpy.typing as npt

from auditor.audit_folder.audit_files import swept_shards
from auditor.audit_folder.embeddings import file_name
from auditor.audit_folder.folder import Folder, StorageError
from auditor.query.vector_scan import Halves
from auditor.workers.encoder_client import SearchError

Side = Literal["visual", "text"]
SIDES: dict[str, Side] = {"media": "visual", "captions": "text"}
BATCH = 4096  # rows


@dataclass(frozen=True)
class Vectors:
    """All vectors of one side, and where each stands: the number of its shard, and its row there."""

    matrix: Halves  # (N, D), mapped
    shard: npt.NDArray[np.int32]  # (N,)
    row: npt.NDArray[np.int32]  # (N,) of the first caption, for media
    shards: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.row)


def open_vectors(folder: Folder, side: Side) -> Vectors:
    """The flat file of a side; made first where it is not there or is of other embeddings."""
    shards = swept_shards(folder)
    if not shards:
        raise SearchError(f"{folder.url} keeps no embeddings, so it cannot be searched")
    mark = mark_of(folder, shards)
    if not folder.local:
        return build(folder, shards, side, Path(tempfile.mkdtemp(prefix="auditor-search-")), mark)
    place = Path(folder.path("search"))
    known = read(place, side, shards, mark)
    if known is None:
        try:
            known = build(folder, shards, side, place, mark)
        except (PermissionError, StorageError):
            known = build(folder, shards, side, Path(tempfile.mkdtemp(prefix="auditor-search-")), mark)
    return known


def mark_of(folder: Folder, shards: list[str]) -> str:
    """Changes when an embeddings file does."""
    mark = hashlib.blake2b(digest_size=16)
    for shard in shards:
        mark.update(shard.encode())
        if folder.local:
            known = os.stat(folder.path(file_name(shard)))
            mark.update(f"{known.st_size} {known.st_mtime_ns}".encode())
    return mark.hexdigest()


def read(place: Path, side: Side, shards: list[str], mark: str) -> Vectors | None:
    """What was made before; None where it is missing or of other embeddings."""
    try:
        with np.load(place / f"{side}.npz") as places:
            if str(places["mark"]) != mark:
                return None
            shard, row, width = places["shard"], places["row"], int(places["width"])
        return Vectors(mapped(place / f"{side}.f16", len(row), width), shard, row, tuple(shards))
    except (OSError, ValueError, KeyError):
        return None


def mapped(path: Path, rows: int, width: int) -> Halves:
    if not rows:
        return np.empty((0, width), np.float16)
    return np.memmap(path, np.float16, "r", shape=(rows, width))


def build(folder: Folder, shards: list[str], side: Side, place: Path, mark: str) -> Vectors:
    """Copy the vectors out of Parquet, a batch at a time; the places, written last, are the mark of a whole file."""
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{side}.npz").unlink(missing_ok=True)
    numbers: list[npt.NDArray[np.int32]] = []
    rows: list[npt.NDArray[np.int32]] = []
    width = 0
    handle, temporary = tempfile.mkstemp(dir=place)
    with os.fdopen(handle, "wb") as file:
        for number, shard in enumerate(shards):
            for at, found in copy(folder, shard, side, file):
                width = found
                rows.append(at)
                numbers.append(np.full(len(at), number, np.int32))
    os.replace(temporary, place / f"{side}.f16")
    shard_of = np.concatenate([np.empty(0, np.int32), *numbers])
    row_of = np.concatenate([np.empty(0, np.int32), *rows])
    handle, temporary = tempfile.mkstemp(dir=place, suffix=".npz")
    with os.fdopen(handle, "wb") as places:
        np.savez(places, shard=shard_of, row=row_of, width=width, mark=mark)
    os.replace(temporary, place / f"{side}.npz")
    return Vectors(mapped(place / f"{side}.f16", len(row_of), width), shard_of, row_of, tuple(shards))


def copy(folder: Folder, shard: str, side: Side, file: IO[bytes]) -> Iterator[tuple[npt.NDArray[np.int32], int]]:
    """Append the vectors of a shard; yields the rows they stand in and their width."""
    with folder.open_table(file_name(shard)) as opened:
        start = 0
        for batch in opened.iter_batches(BATCH, columns=[side]):
            column: Any = batch.column(0)
            there = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
            values = column.flatten().to_numpy(zero_copy_only=False)  # of rows that have a vector only
            file.write(np.ascontiguousarray(np.nan_to_num(values)).tobytes())
            yield (there + start).astype(np.int32), column.type.list_size
            start += len(column)

"""What a user's function is given: batches of a shard's usable rows, by the names of its columns.

| name             | what a batch has                                                                             |
|------------------|----------------------------------------------------------------------------------------------|
| any column       | texts as a list, numbers as an array                                                         |
| `visual`, `text` | stored embeddings of media and captions, (n, D) float32                                      |
| `image`          | decoded pictures, each (H, W, 3) uint8, resized and cropped as for CLIP; of a video its middle |
| `media`          | the bytes of the medium as they are                                                          |

Pictures are decoded in processes that can be killed. A row whose medium cannot be read or decoded is left out
of its batch and counted.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from auditor.audit_folder.embeddings import read_embeddings
from auditor.corpus.read_medium import MediaError, read_media
from auditor.corpus.sample import Problem
from auditor.query.database import AuditDatabase

VECTORS = ("visual", "text")
PIXELS = ("image", "media")
PLACE = ("media_path", "media_offset", "media_size")

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Given:
    """A batch: places of its rows in the shard's file, and what the function is called with."""

    rows: Ints
    values: Mapping[str, Any]


def check_inputs(database: AuditDatabase, columns: Sequence[str]) -> None:
    """QueryError where there is no such column."""
    for column in columns:
        if column not in (*VECTORS, *PIXELS):
            database.column(column, "columns")


def shard_rows(database: AuditDatabase, shard: str, columns: Sequence[str]) -> pa.Table:
    """All rows of a shard in the order of its file: the columns, where media are, and whether they are usable."""
    plain = [column for column in columns if column not in (*VECTORS, *PIXELS)]
    names = [database.column(column) for column in dict.fromkeys((*plain, *PLACE))]
    view = database.view(database.files.shard(shard), located=True, extended=database.extends(*names))
    return database.run(
        f"SELECT {', '.join(names)}, status = 'ok' AS usable FROM ({view}) AS samples ORDER BY file_row_number"
    )


def batches(
    database: AuditDatabase, shard: str, rows: pa.Table, columns: Sequence[str], size: int, decoders: Any
) -> Iterator[Given]:
    """The usable rows of a shard, `size` at a time."""
    usable = np.flatnonzero(rows.column("usable").to_numpy(zero_copy_only=False))
    vectors = shard_vectors(database, shard, columns, len(rows))
    for first in range(0, len(usable), size):
        here = usable[first : first + size]
        chosen = rows.take(pa.array(here))
        media = read_all(database, chosen) if set(columns) & set(PIXELS) else None
        pixels = decode_all(media, decoders) if media is not None and "image" in columns else None
        there = present(len(here), media, pixels)
        values: dict[str, Any] = {}
        for column in columns:
            if column in VECTORS:
                values[column] = vectors[column][here[there]]
            elif column in PIXELS:
                found = pixels if column == "image" else media
                values[column] = [found[place] for place in there] if found is not None else []
            else:
                values[column] = plain(chosen.column(column).take(pa.array(there)))
        if len(there):
            yield Given(here[there], values)


def plain(column: pa.ChunkedArray) -> Any:
    numbers = pa.types.is_floating(column.type) or pa.types.is_integer(column.type)
    return column.to_numpy() if numbers else column.to_pylist()


def shard_vectors(database: AuditDatabase, shard: str, columns: Sequence[str], count: int) -> dict[str, Any]:
    """Of each side that is asked for a row for every row of the shard; zeros where there is none."""
    if not set(columns) & set(VECTORS):
        return {}
    stored = read_embeddings(database.files.folder, shard)
    found = {}
    for side, values in (("text", stored.text), ("visual", stored.media.visual[stored.media_index])):
        found[side] = np.zeros((count, values.shape[1]), np.float32)
        found[side][stored.rows] = values
    return found


def read_all(database: AuditDatabase, rows: pa.Table) -> list[bytes | None]:
    """The bytes of each row's medium; None where they cannot be had."""
    found: list[bytes | None] = []
    for path, offset, size in zip(*(rows.column(name).to_pylist() for name in PLACE), strict=True):
        try:
            place = {"root": database.moved_to, "old_root": database.old_root}
            found.append(None if path is None else read_media(path, offset, size, **place))
        except MediaError:
            found.append(None)
    return found


def decode_all(media: Sequence[bytes | None], decoders: Any) -> list[Any]:
    """The picture in each file; None where there is none."""
    tasks = [(place, data, "image") for place, data in enumerate(media) if data is not None]
    found: list[Any] = [None] * len(media)
    for place, result in decoders.map(tasks):
        found[place] = None if isinstance(result, Problem) else result.pixels[len(result.pixels) // 2]
    return found


def present(count: int, *needed: Sequence[Any] | None) -> Ints:
    """Places at which nothing that is needed is missing."""
    found = [place for place in range(count) if all(part is None or part[place] is not None for part in needed)]
    return np.array(found, np.int64)

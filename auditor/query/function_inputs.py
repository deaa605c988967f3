"""The arguments of a user's function: batches of a shard's usable rows, by column name.

| name             | values of a batch                                                                            |
|------------------|----------------------------------------------------------------------------------------------|
| any column       | texts as a list, numbers as an array                                                         |
| `visual`, `text` | stored embeddings of media and captions, (n, D) float32                                      |
| `image`          | decoded images, (H, W, 3) uint8, resized and cropped as for CLIP; the middle frame of a video |
| `media`          | the original bytes of the medium                                                             |

Images are decoded in processes that can be killed. A row whose medium cannot be read or decoded is left out of its
batch and counted.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from auditor.audit_folder.embeddings import name_embeddings_file, read_vector_matrix
from auditor.audit_folder.folder import Folder
from auditor.corpus.read_medium import MediaError
from auditor.corpus.sample import Problem
from auditor.query.database import AuditDatabase
from auditor.vectors import Floats, Ints, take_rows

VECTORS = ("visual", "text")
PIXELS = ("image", "media")
PLACE = ("media_path", "media_offset", "media_size")


def check_input_columns(database: AuditDatabase, columns: Sequence[str]) -> None:
    for column in columns:
        if column not in (*VECTORS, *PIXELS):
            database.column(column, "columns")


def read_shard_rows(database: AuditDatabase, shard: str, columns: Sequence[str]) -> pa.Table:
    """Read all rows of a shard in the order of its file: the columns, the locations of media, and `usable`."""
    plain = [column for column in columns if column not in (*VECTORS, *PIXELS)]
    names = [database.column(column) for column in dict.fromkeys((*plain, *PLACE))]
    view = database.view(database.files.shard(shard), with_places=True, extended=database.reads_extra_columns(*names))
    return database.run(f"SELECT {', '.join(names)}, status = 'ok' AS usable FROM ({view}) ORDER BY file_row_number")


def iterate_batches(
    database: AuditDatabase, shard: str, rows: pa.Table, columns: Sequence[str], size: int, decoders: Any
) -> Iterator[tuple[Ints, dict[str, Any]]]:
    """Yield the row numbers of each batch in the shard's file, and the arguments of the function."""
    usable = np.flatnonzero(rows.column("usable").to_numpy(zero_copy_only=False))
    vectors = read_input_vectors(database, shard, columns, len(rows))
    for first in range(0, len(usable), size):
        row_numbers = usable[first : first + size]
        files: dict[str, list[Any]] = {}
        if set(columns) & set(PIXELS):
            files["media"] = read_batch_media(database, rows.take(pa.array(row_numbers)))
        if "image" in columns:
            files["image"] = decode_batch_media(files["media"], decoders)
        complete = [i for i in range(len(row_numbers)) if all(part[i] is not None for part in files.values())]
        if not complete:
            continue
        row_numbers = row_numbers[complete]
        values: dict[str, Any] = {}
        for column in columns:
            if column in VECTORS:
                values[column] = vectors[column][row_numbers]
            elif column in PIXELS:
                values[column] = [files[column][place] for place in complete]
            else:
                cells = rows.column(column).take(pa.array(row_numbers))
                is_number = pa.types.is_floating(cells.type) or pa.types.is_integer(cells.type)
                values[column] = cells.to_numpy() if is_number else cells.to_pylist()
        yield row_numbers, values


def read_input_vectors(database: AuditDatabase, shard: str, columns: Sequence[str], count: int) -> dict[str, Any]:
    """Return the vectors of each requested side, one for every row of the shard; missing ones are zero."""
    vectors = {}
    for side in set(columns) & set(VECTORS):
        values, numbers = read_side_vectors(database.files.folder, shard, side)
        vectors[side] = np.zeros((count, values.shape[1]), np.float32)
        vectors[side][numbers >= 0] = values[numbers[numbers >= 0]]
    return vectors


def read_side_vectors(folder: Folder, shard: str, side: str) -> tuple[Floats, Ints]:
    """Return the vectors of the media or captions of a shard, and the number of each row's vector, -1 for none."""
    table = folder.read_table(name_embeddings_file(shard), ["status", side])
    stored = table.column(side)
    is_valid = stored.is_valid().to_numpy()
    is_usable = pc.equal(table.column("status"), "ok").to_numpy()
    numbers = np.where(is_usable, np.cumsum(is_valid) - 1, -1)  # the other captions of a medium follow its first one
    return take_rows(read_vector_matrix(stored, stored.type.list_size), np.flatnonzero(is_valid)), numbers


def read_batch_media(database: AuditDatabase, rows: pa.Table) -> list[bytes | None]:
    """Read the bytes of each row's medium; None if they cannot be read."""
    media: list[bytes | None] = []
    for path, offset, size in zip(*(rows.column(name).to_pylist() for name in PLACE), strict=True):
        try:
            media.append(None if path is None else database.places.read(path, offset, size))
        except MediaError:
            media.append(None)
    return media


def decode_batch_media(media: Sequence[bytes | None], decoders: Any) -> list[Any]:
    """Decode the image in each file; None if that fails."""
    tasks = [(place, data, "image") for place, data in enumerate(media) if data is not None]
    pictures: list[Any] = [None] * len(media)
    for place, result in decoders.map(tasks):
        pictures[place] = None if isinstance(result, Problem) else result.pixels[len(result.pixels) // 2]
    return pictures

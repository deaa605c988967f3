"""embeddings/<shard>.parquet: the result of the sweep, as arrays for scoring and as rows for other readers.

Only the row of a medium's first caption holds its vector; `Embeddings.media_index` gives the medium of each row.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from auditor.audit_folder import arrow_schema
from auditor.audit_folder.folder import Folder
from auditor.vectors import Bools, Floats, Halves, Ints, MediaVectors, PartVectors, pad_frames, take_rows, widen_halves

REFERENCE = "reference.parquet"  # the pairs that scoring compares all others with


def name_embeddings_file(shard: str) -> str:
    return f"embeddings/{shard}.parquet"


@dataclass(frozen=True, slots=True)
class Embeddings:
    """The encoded rows of a shard (or of a sample of the corpus) and their media."""

    facts: pa.Table  # all rows of the shard, encoded or not
    rows: Ints  # (P,) indices into facts of the encoded pairs
    text: Floats  # (P, D)
    media: MediaVectors  # M of them
    media_index: Ints  # (P,) the medium of each pair
    times: tuple[tuple[float, ...], ...] = ()  # (M) seconds of the frames; empty for images
    context: dict[str, tuple[Floats, tuple[float, ...]]] = field(default_factory=dict)  # frames around spans, by digest
    parts: PartVectors | None = None  # of the captions (P); None if none has several


def read_embeddings(folder: Folder, shard: str) -> Embeddings:
    return parse_embeddings(folder.read_table(name_embeddings_file(shard), schema=arrow_schema.ENCODED))


def read_reference(folder: Folder) -> Embeddings:
    """Read the reference sample, whose videos and captions have one vector each."""
    table = folder.read_table(REFERENCE, schema=arrow_schema.ENCODED)
    for column in arrow_schema.build_embeddings_schema(table.schema.field("text").type.list_size):
        if pa.types.is_list(column.type) and column.name not in table.column_names:
            table = table.append_column(column, pa.nulls(table.num_rows, column.type))
    return parse_embeddings(table)


def read_facts(folder: Folder, shard: str, columns: Sequence[str]) -> pa.Table:
    return folder.read_table(name_embeddings_file(shard), columns).select(columns)


def read_random_row_groups(
    folder: Folder, shard: str, count: int, generator: np.random.Generator, columns: Sequence[str] | None = None
) -> pa.Table:
    """Read random row groups with `count` rows or more, in order: a shard may have millions of rows.

    Columns that the file lacks are left out.
    """
    name = name_embeddings_file(shard)
    with folder.reading(name), folder.open_table(name) as file:
        order = generator.permutation(file.num_row_groups)
        rows = np.cumsum([file.metadata.row_group(int(group)).num_rows for group in order])
        groups = order[: int(np.searchsorted(rows, count)) + 1]
        names = [column for column in columns if column in file.schema_arrow.names] if columns else None
        return file.read_row_groups(sorted(groups.tolist()), names)


MEDIUM_COLUMNS = ("status", "caption_index", "start", "end")


def find_medium_starts(facts: pa.Table) -> Bools:
    """Return the rows in which a medium begins: the first of its usable captions. A span is a medium of its own.

    `facts` needs the keys if some rows were left out.
    """
    is_usable = pc.equal(facts["status"], "ok").to_numpy()
    usable = facts.filter(pa.array(is_usable))
    samples = np.cumsum(facts["caption_index"].to_numpy() == 0)[is_usable]
    is_start = np.ones(len(samples), bool)
    is_start[1:] = samples[1:] != samples[:-1]
    for name in {"start", "end", "key"} & set(facts.column_names):
        column = usable[name]
        values = column if name == "key" else pc.fill_null(column, -1)
        is_start[1:] |= pc.not_equal(values[1:], values[:-1]).to_numpy()
    starts = np.zeros(facts.num_rows, dtype=bool)
    starts[is_usable] = is_start
    return starts


def compute_media_identities(facts: pa.Table) -> list[str]:
    """Return 32 hex digits per row, equal for media with equal bytes and, for spans, equal times."""
    columns = (facts.column(name).to_pylist() for name in ("media_digest", "start", "end"))
    return [
        digest if start is None else hashlib.blake2b(f"{digest} {start} {end}".encode(), digest_size=16).hexdigest()
        for digest, start, end in zip(*columns, strict=True)
    ]


def parse_embeddings(table: pa.Table) -> Embeddings:
    """Convert the table of an embeddings file to arrays. A pair counts as encoded if it has a text vector."""
    dim = table.schema.field("text").type.list_size
    text, visual = table.column("text"), table.column("visual")
    has_text, has_visual = text.is_valid().to_numpy(), visual.is_valid().to_numpy()
    rows = np.flatnonzero(has_text)
    media_of_row = np.cumsum(has_visual) - 1  # the other captions of a medium follow its first one
    media_rows = np.flatnonzero(has_visual)
    times = table.column("frame_times").take(pa.array(media_rows)).to_pylist()
    return Embeddings(
        facts=table.select(arrow_schema.FACTS.names),
        rows=rows,
        text=take_rows(read_vector_matrix(text, dim), rows),
        media=MediaVectors(
            take_rows(read_vector_matrix(visual, dim), media_rows), *_read_frames(table, media_rows, dim)
        ),
        media_index=media_of_row[rows],
        times=tuple(tuple(t or ()) for t in times),
        context=_read_context_frames(table, dim),
        parts=_read_parts(table.column("part_embeddings").take(pa.array(rows)), dim),
    )


def _read_context_frames(table: Any, dim: int) -> dict[str, tuple[Floats, tuple[float, ...]]]:
    rows = table.filter(table["context_times"].is_valid())
    columns = zip(*(rows[name] for name in ("media_digest", "context_embeddings", "context_times")), strict=True)
    return {
        digest.as_py(): (read_vector_matrix(frames.values, dim), tuple(times.as_py()))
        for digest, frames, times in columns
    }


def _read_parts(lists: Any, dim: int) -> PartVectors | None:
    counts = pc.list_value_length(lists).fill_null(0).to_numpy().astype(np.int64)
    if not counts.any():
        return None
    halves = pc.list_flatten(pc.list_flatten(lists)).to_numpy(zero_copy_only=False).reshape(-1, dim)
    return PartVectors(np.nan_to_num(halves), counts)


def read_vector_matrix(vectors: Any, dim: int) -> Floats:
    """Return a fixed-size-list column as a matrix; null rows hold the padding of the file."""
    matrix = np.empty((len(vectors), dim), np.float32)
    start = 0
    for halves in _view_chunks(vectors, dim):
        widen_halves(halves, matrix[start : start + len(halves)])
        start += len(halves)
    return matrix


def read_half_matrix(vectors: Any, dim: int) -> Halves:
    """Return a fixed-size-list column as it is stored; null rows hold the padding of the file."""
    return np.concatenate([np.empty((0, dim), np.float16), *_view_chunks(vectors, dim)])


def _view_chunks(vectors: Any, dim: int) -> Iterator[Halves]:
    for chunk in vectors.chunks if isinstance(vectors, pa.ChunkedArray) else [vectors]:
        flat = chunk.values.slice(chunk.offset * dim, len(chunk) * dim).to_numpy(zero_copy_only=False)
        # of frames, an audit from elsewhere may have another type
        yield flat.astype(np.float16, copy=False).reshape(-1, dim)


def read_thumbnails(table: pa.Table) -> npt.NDArray[np.uint8]:
    """Return the thumbnails (N, 1024) of a table's rows; all zero if none is stored."""
    size = arrow_schema.THUMBNAIL_BYTES
    if "thumbnail" not in table.column_names or table["thumbnail"].null_count == table.num_rows:
        return np.zeros((table.num_rows, size), np.uint8)
    column = table["thumbnail"].to_pylist()
    return np.frombuffer(b"".join(value or bytes(size) for value in column), np.uint8).reshape(-1, size)


def _read_frames(table: Any, media_rows: Ints, dim: int) -> tuple[Floats, Bools] | tuple[None, None]:
    lists = table.column("frame_embeddings").take(pa.array(media_rows))
    counts = pc.list_value_length(lists).fill_null(0).to_numpy().astype(np.int64)
    if not counts.any():
        return None, None
    return pad_frames(read_vector_matrix(pc.list_flatten(lists), dim), counts)


def build_nullable_vectors(rows: npt.NDArray[Any], present: Bools) -> Any:
    """Build a float16 column of vectors that is null if `present` is false."""
    full = np.zeros((len(present), rows.shape[1]), dtype=np.float16)
    full[present] = rows.astype(np.float16)
    return build_vector_column(full, present)


def build_vector_column(halves: Halves, present: Bools) -> Any:
    """Build a column with one row per vector of (N, D), null if `present` is false."""
    return pa.FixedSizeListArray.from_arrays(pa.array(halves.reshape(-1)), halves.shape[1], mask=pa.array(~present))


def build_part_column(parts: PartVectors, present: Bools) -> Any:
    """Build a list column with the parts of the captions in the rows `present`, null for captions with one part."""
    counts = np.zeros(len(present), np.int32)
    counts[present] = parts.counts
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
    inner = build_vector_column(parts.vectors, np.ones(len(parts.vectors), bool))
    return pa.ListArray.from_arrays(offsets, inner, mask=pa.array(counts == 0))

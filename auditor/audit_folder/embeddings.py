"""embeddings/<shard>.parquet: the sweep's result, as arrays for scoring and as rows for everything else.

A medium's vector stands in the row of its first caption only; `Embeddings.media_index` says which medium a row is of.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from auditor.audit_folder import arrow_schema
from auditor.audit_folder.folder import Folder
from auditor.vectors import Bools, Floats, Ints, MediaVectors, pad_frames, take_rows


def file_name(shard: str) -> str:
    return f"embeddings/{shard}.parquet"


@dataclass(frozen=True, slots=True)
class Embeddings:
    """The rows of a shard (or of a sample of the corpus) that could be encoded, and the media they are of."""

    facts: pa.Table  # every row of the shard, encoded or not
    rows: Ints  # (P,) indices into facts of the encoded pairs
    text: Floats  # (P, D)
    media: MediaVectors  # M of them
    media_index: Ints  # (P,) which of the media a pair is of
    times: tuple[tuple[float, ...], ...] = ()  # (M) seconds of the frames; empty for images
    around: dict[str, tuple[Floats, tuple[float, ...]]] = field(default_factory=dict)  # by digest: frames around spans


def read_embeddings(folder: Folder, shard: str) -> Embeddings:
    return from_table(folder.read_table(file_name(shard)))


def read_facts(folder: Folder, shard: str, columns: Sequence[str]) -> pa.Table:
    """Some of the facts of a shard; a file from before a column has it empty."""
    there = set(folder.table_columns(file_name(shard)))
    return with_columns(folder.read_table(file_name(shard), [name for name in columns if name in there]), columns)


def with_columns(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The columns in their order; what is not there is null."""
    for name in columns:
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(table.num_rows, arrow_schema.FACTS.field(name).type))
    return table.select(columns)


MEDIUM = ("status", "caption_index", "start", "end")


def begins_medium(facts: pa.Table) -> Bools:
    """The rows in which a medium was encoded: the first of its usable captions. A span is a medium of its own.

    Where some rows were left out, `facts` needs the keys, too.
    """
    found = np.zeros(facts.num_rows, dtype=bool)
    names = (*MEDIUM, "key") if "key" in facts.column_names else (*MEDIUM, "status")
    before: object = None
    for row, (status, index, *medium) in enumerate(
        zip(*(facts.column(name).to_pylist() for name in names), strict=True)
    ):
        before = None if index == 0 else before
        if status == "ok":
            found[row] = before != medium
            before = medium
    return found


def identities(facts: pa.Table) -> list[str]:
    """Equal for media with the same bytes and, where they are spans, the same times: 32 hex digits."""
    columns = (facts.column(name).to_pylist() for name in ("media_digest", "start", "end"))
    return [
        digest if start is None else hashlib.blake2b(f"{digest} {start} {end}".encode(), digest_size=16).hexdigest()
        for digest, start, end in zip(*columns, strict=True)
    ]


def from_table(table: pa.Table) -> Embeddings:
    """Arrays from the table of an embeddings file. A pair counts as encoded when it has a text vector."""
    dim = table.schema.field("text").type.list_size
    text, visual = table.column("text"), table.column("visual")
    has_text, has_visual = text.is_valid().to_numpy(), visual.is_valid().to_numpy()
    rows = np.flatnonzero(has_text)
    media_of_row = np.cumsum(has_visual) - 1  # a medium's further captions follow its first
    media_rows = np.flatnonzero(has_visual)
    times = table.column("frame_times").take(pa.array(media_rows)).to_pylist()
    return Embeddings(
        facts=with_columns(table, arrow_schema.FACTS.names),
        rows=rows,
        text=take_rows(matrix(text, dim), rows),
        media=MediaVectors(take_rows(matrix(visual, dim), media_rows), *_frames(table, media_rows, dim)),
        media_index=media_of_row[rows],
        times=tuple(tuple(t or ()) for t in times),
        around=_around(table, dim),
    )


def _around(table: Any, dim: int) -> dict[str, tuple[Floats, tuple[float, ...]]]:
    """The frames around the spans of each video."""
    if "context_times" not in table.column_names:
        return {}
    there = table.filter(table["context_times"].is_valid())
    found = zip(*(there[name] for name in ("media_digest", "context_embeddings", "context_times")), strict=True)
    return {digest.as_py(): (matrix(frames.values, dim), tuple(times.as_py())) for digest, frames, times in found}


def matrix(vectors: Any, dim: int) -> Floats:
    """A fixed-size-list column as a matrix; rows that are null hold whatever the file pads them with."""
    chunks = vectors.chunks if isinstance(vectors, pa.ChunkedArray) else [vectors]
    found = np.empty((len(vectors), dim), np.float32)
    start = 0
    for chunk in chunks:
        flat = chunk.values.slice(chunk.offset * dim, len(chunk) * dim).to_numpy(zero_copy_only=False)
        found[start : start + len(chunk)] = flat.reshape(-1, dim)
        start += len(chunk)
    if not np.isfinite(np.dot(found.ravel(), found.ravel())):  # one pass where all are numbers, as nearly always
        np.nan_to_num(found, copy=False)
    return found


def _frames(table: Any, media_rows: Ints, dim: int) -> tuple[Floats, Bools] | tuple[None, None]:
    lists = table.column("frame_embeddings").take(pa.array(media_rows)).combine_chunks()
    if isinstance(lists, pa.ChunkedArray):
        lists = pa.concat_arrays(lists.chunks) if lists.num_chunks else pa.array([], lists.type)
    counts = np.array([0 if n is None else n for n in lists.value_lengths().to_pylist()], dtype=np.int64)
    if not counts.any():
        return None, None
    return pad_frames(matrix(lists.flatten(), dim), counts)


def vectors(rows: npt.NDArray[Any], present: Bools) -> Any:
    """Vectors as a float16 column that is null where `present` is false."""
    dim = rows.shape[1]
    full = np.zeros((len(present), dim), dtype=np.float16)
    full[present] = rows.astype(np.float16)
    return vector_column(full, present)


def vector_column(halves: npt.NDArray[np.float16], present: Bools) -> Any:
    """A row for each of (N, D), null where `present` is false."""
    return pa.FixedSizeListArray.from_arrays(pa.array(halves.reshape(-1)), halves.shape[1], mask=pa.array(~present))

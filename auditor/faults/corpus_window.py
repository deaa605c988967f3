"""Read stored embeddings in corpus order: one shard at a time, and a few samples at the ends of its neighbors.

Only keys, uids, captions and vectors are read, no frames, so about one shard is in memory.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from auditor.audit_folder.audit_files import find_swept_shards
from auditor.audit_folder.embeddings import REFERENCE, name_embeddings_file, read_vector_matrix
from auditor.audit_folder.folder import Folder
from auditor.errors import AuditorError
from auditor.faults.pairing_evidence import ReferencePairs, SampleVectors
from auditor.vectors import Bools, Floats, Ints

MOST_REFERENCE = 1024  # pairs: as many as docs/faults.md was measured with; levels cost most of the search


class FaultsError(AuditorError):
    """An audit in which patterns cannot be searched."""


@dataclass(frozen=True, slots=True)
class ShardWindow:
    """The samples of one shard, encoded or not, in order. Names stay in Arrow because few of them are needed."""

    shard: str
    keys: pa.ChunkedArray  # (N,) of the samples
    uids: pa.ChunkedArray  # (P,) of the encoded captions
    captions: pa.ChunkedArray  # (P,)
    text: Floats  # (P, D)
    sample: Ints  # (P,) the sample of each caption
    caption_index: Ints  # (P,)
    samples: SampleVectors

    def __len__(self) -> int:
        return len(self.keys)

    def key(self, sample: int) -> str:
        return str(self.keys[sample].as_py())

    def uid(self, caption: int) -> str:
        return str(self.uids[caption].as_py())

    def collect_media(self, uids: Collection[str]) -> dict[str, Floats]:
        """The media vectors of some rows, by uid."""
        rows = np.flatnonzero(pc.is_in(self.uids, pa.array(uids, self.uids.type)).to_numpy()).tolist() if uids else []
        return {self.uid(row): self.samples.visual[self.sample[row]].copy() for row in rows}


VECTORS = ("caption_index", "visual", "text")


@lru_cache(maxsize=1)
def read_window(folder: Folder, shard: str) -> ShardWindow:
    table = folder.read_table(name_embeddings_file(shard), ["uid", "key", "caption", *VECTORS])
    index, sample = number_samples(table)
    rows = has_vector(table, "text")
    text = read_vectors(table, "text", rows)
    uids, captions = (table.column(name).filter(pa.array(rows)) for name in ("uid", "caption"))
    keys, numbers = table.column("key").filter(pa.array(index == 0)), index[rows].astype(np.int64)
    return ShardWindow(shard, keys, uids, captions, text, sample[rows], numbers, average_samples(table, text))


def number_samples(table: pa.Table) -> tuple[Ints, Ints]:
    """The caption_index of each row and the number of its sample."""
    index = table.column("caption_index").to_numpy()
    return index, np.cumsum(index == 0) - 1


def average_samples(table: pa.Table, text: Floats | None = None) -> SampleVectors:
    """Average rows, which must begin with a sample, by sample; `text` is the vectors of the captions, if at hand."""
    _, sample = number_samples(table)
    count = int(sample[-1]) + 1 if len(sample) else 0
    rows, media = has_vector(table, "text"), has_vector(table, "visual")
    present = np.zeros(count, bool)
    present[sample[media]] = True
    visual = average_media(read_vectors(table, "visual", media), sample[media], count)
    text = read_vectors(table, "text", rows) if text is None else text
    return SampleVectors(visual, average_captions(text, sample[rows], count), present)


def has_vector(table: pa.Table, side: str) -> Bools:
    return np.asarray(table.column(side).is_valid().to_numpy())


def read_vectors(table: pa.Table, side: str, rows: Bools) -> Floats:
    vectors = read_vector_matrix(table.column(side), table.schema.field(side).type.list_size)
    return vectors if rows.all() else vectors[rows]


def read_first_samples(folder: Folder, shard: str, count: int) -> SampleVectors:
    """Read the first samples of a shard and no others."""
    name = name_embeddings_file(shard)
    with folder.reading(name), folder.open_table(name) as file:
        batches: list[pa.RecordBatch] = []
        begun = 0
        for batch in file.iter_batches(count + 1, columns=list(VECTORS)):
            batches.append(batch)
            begun += int((batch.column("caption_index").to_numpy() == 0).sum())
            if begun > count:  # the last sample is complete once another begins
                break
        table = pa.Table.from_batches(batches, _vector_schema(file))
    return average_samples(table).take(slice(0, count))


def read_last_samples(folder: Folder, shard: str, count: int) -> SampleVectors:
    """Read the last samples of a shard and only the row groups that hold them."""
    name = name_embeddings_file(shard)
    with folder.reading(name), folder.open_table(name) as file:
        table = pa.Table.from_batches([], _vector_schema(file))
        for group in reversed(range(file.num_row_groups)):
            table = pa.concat_tables([file.read_row_group(group, list(VECTORS)), table])
            starts = np.flatnonzero(table.column("caption_index").to_numpy() == 0)
            if len(starts) >= count:
                return average_samples(table.slice(int(starts[-count])))
    return average_samples(table)


def _vector_schema(file: "pa.parquet.ParquetFile") -> pa.Schema:
    return pa.schema([file.schema_arrow.field(name) for name in VECTORS])


def average_captions(text: Floats, sample: Ints, count: int) -> Floats:
    """The mean caption vector of each sample, (N, D); zero if it has none."""
    if len(text) == count and np.array_equal(sample, np.arange(count)):
        return text  # every sample has one caption
    out = np.zeros((count, text.shape[1]), np.float32)
    if len(text):
        samples, first, captions = np.unique(sample, return_index=True, return_counts=True)
        out[samples] = np.add.reduceat(text, first, axis=0) / captions[:, None].astype(np.float32)
    return out


def average_media(visual: Floats, sample: Ints, count: int) -> Floats:
    """The media vector of each sample, (N, D); for a video with timed captions the normalized mean of its spans."""
    out = average_captions(visual, sample, count)
    several = np.flatnonzero(np.bincount(sample, minlength=count) > 1)  # then `out` is not `visual` itself
    out[several] /= np.maximum(np.linalg.norm(out[several], axis=1, keepdims=True), 1e-12)
    return out


def read_reference_pairs(folder: Folder, scale: float) -> ReferencePairs:
    try:
        table = folder.read_table(REFERENCE, ["visual", "text", "shard"])
    except FileNotFoundError:
        raise FaultsError(f"{folder.url} has no {REFERENCE}: run `auditor score {folder.url}` first") from None
    dim = table.schema.field("text").type.list_size
    chosen = np.linspace(0, max(0, table.num_rows - 1), min(MOST_REFERENCE, table.num_rows)).astype(np.int64)
    visual, text = (read_vector_matrix(table.column(side).combine_chunks(), dim)[chosen] for side in ("visual", "text"))
    return ReferencePairs(visual, text, scale, tuple(table.column("shard").take(chosen).to_pylist()))


def list_embedded_shards(folder: Folder) -> list[str]:
    shards = find_swept_shards(folder)
    if not shards:
        raise FaultsError(f"{folder.url} has no embeddings, in which patterns are searched: run the audit again")
    return shards


def concatenate_samples(parts: Sequence[SampleVectors]) -> SampleVectors:
    """Concatenate samples, with their levels if all parts have them."""
    levels = [part.levels for part in parts if part.levels]
    has_levels = len(levels) == len(parts)
    return SampleVectors(
        np.concatenate([part.visual for part in parts]),
        np.concatenate([part.text for part in parts]),
        np.concatenate([part.present for part in parts]),
        (np.concatenate([x for x, _ in levels]), np.concatenate([x for _, x in levels])) if has_levels else None,
    )

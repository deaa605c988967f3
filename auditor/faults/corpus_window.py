"""Stored embeddings in the order of the corpus: a shard at a time, with the samples of its neighbours at both ends.

Only what patterns need is read: keys, uids, captions and vectors, no frames. Of the neighbours only the few samples at
the ends are read, so one shard is in memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from auditor.audit_folder.audit_files import swept_shards
from auditor.audit_folder.embeddings import file_name, matrix
from auditor.audit_folder.folder import Folder
from auditor.errors import AuditorError
from auditor.faults.pairing_evidence import Reference, Scene
from auditor.vectors import Bools, Floats, Ints

REFERENCE = "reference.parquet"
MOST_REFERENCE = 2048  # pairs: enough to tell what is near everything


class FaultsError(AuditorError):
    """An audit in which patterns cannot be looked for."""


@dataclass(frozen=True, slots=True)
class Passage:
    """The samples of one shard, encoded or not, in order. Names stay in Arrow: few of them are ever asked for."""

    shard: str
    keys: pa.ChunkedArray  # (N,) of the samples
    uids: pa.ChunkedArray  # (P,) of the encoded captions
    captions: pa.ChunkedArray  # (P,)
    text: Floats  # (P, D)
    sample: Ints  # (P,) which of the samples a caption is of
    caption_index: Ints  # (P,)
    scene: Scene

    def __len__(self) -> int:
        return len(self.keys)

    def key(self, sample: int) -> str:
        return str(self.keys[sample].as_py())

    def uid(self, caption: int) -> str:
        return str(self.uids[caption].as_py())


VECTORS = ("caption_index", "visual", "text")


@lru_cache(maxsize=1)
def read_passage(folder: Folder, shard: str) -> Passage:
    table = folder.read_table(file_name(shard), ["uid", "key", "caption", *VECTORS])
    index, sample = samples_of(table)
    rows = there(table, "text")
    text = vectors_at(table, "text", rows)
    uids, captions = (some(table.column(name), rows) for name in ("uid", "caption"))
    keys, numbers = some(table.column("key"), index == 0), index[rows].astype(np.int64)
    return Passage(shard, keys, uids, captions, text, sample[rows], numbers, scene_of(table, text))


def samples_of(table: pa.Table) -> tuple[Ints, Ints]:
    """The number of each row's caption in its sample, and which sample that is."""
    index = table.column("caption_index").to_numpy()
    return index, np.cumsum(index == 0) - 1


def scene_of(table: pa.Table, text: Floats | None = None) -> Scene:
    """The samples of a stretch of rows that begins with a sample; `text` are the vectors of its captions."""
    _, sample = samples_of(table)
    count = int(sample[-1]) + 1 if len(sample) else 0
    rows, media = there(table, "text"), there(table, "visual")
    present = np.zeros(count, bool)
    present[sample[media]] = True
    visual = mean_media(vectors_at(table, "visual", media), sample[media], count)
    text = vectors_at(table, "text", rows) if text is None else text
    return Scene(visual, mean_captions(text, sample[rows], count), present)


def there(table: pa.Table, side: str) -> Bools:
    """The rows that have a vector."""
    return np.asarray(table.column(side).is_valid().to_numpy())


def vectors_at(table: pa.Table, side: str, rows: Bools) -> Floats:
    found = matrix(table.column(side), table.schema.field(side).type.list_size)
    return found if rows.all() else found[rows]


def some(column: pa.ChunkedArray, rows: Bools) -> pa.ChunkedArray:
    return column if rows.all() else column.filter(pa.array(rows))


def first_samples(folder: Folder, shard: str, count: int) -> Scene:
    """The first samples of a shard; no more of it is read."""
    name = file_name(shard)
    with folder.reading(name), folder.open_table(name) as file:
        batches: list[pa.RecordBatch] = []
        begun = 0
        for batch in file.iter_batches(count + 1, columns=list(VECTORS)):
            batches.append(batch)
            begun += int((batch.column("caption_index").to_numpy() == 0).sum())
            if begun > count:  # the last one wanted is whole where another begins
                break
        table = pa.Table.from_batches(batches, None if batches else _schema(file))
    return scene_of(table).take(slice(0, count))


def last_samples(folder: Folder, shard: str, count: int) -> Scene:
    """The last samples of a shard; of the others no more is read than stands in the same row groups."""
    name = file_name(shard)
    with folder.reading(name), folder.open_table(name) as file:
        table = pa.Table.from_batches([], _schema(file))
        for group in reversed(range(file.num_row_groups)):
            table = pa.concat_tables([file.read_row_group(group, list(VECTORS)), table])
            starts = np.flatnonzero(table.column("caption_index").to_numpy() == 0)
            if len(starts) >= count:
                return scene_of(table.slice(int(starts[-count])))
    return scene_of(table)


def _schema(file: "pa.parquet.ParquetFile") -> pa.Schema:
    return pa.schema([file.schema_arrow.field(name) for name in VECTORS])


def mean_captions(text: Floats, sample: Ints, count: int) -> Floats:
    """The mean of the captions of each sample, (N, D); zero where there is none."""
    if len(text) == count and np.array_equal(sample, np.arange(count)):
        return text  # one each
    out = np.zeros((count, text.shape[1]), np.float32)
    if len(text):
        samples, first, captions = np.unique(sample, return_index=True, return_counts=True)
        one_each = len(samples) == len(text)
        total = text if one_each else np.add.reduceat(text, first, axis=0)
        out[samples] = total if one_each else total / captions[:, None].astype(np.float32)
    return out


def mean_media(visual: Floats, sample: Ints, count: int) -> Floats:
    """The medium of each sample, (N, D); of a video with timed captions the mean of its spans, of unit length."""
    out = mean_captions(visual, sample, count)
    several = np.flatnonzero(np.bincount(sample, minlength=count) > 1)  # then it is no longer `visual` itself
    out[several] /= np.maximum(np.linalg.norm(out[several], axis=1, keepdims=True), 1e-12)
    return out


def read_reference(folder: Folder, scale: float) -> Reference:
    """The pairs that scoring compared with, fewer of them."""
    try:
        table = folder.read_table(REFERENCE, ["visual", "text", "shard"])
    except FileNotFoundError:
        raise FaultsError(f"{folder.url} has no {REFERENCE}: run `auditor score {folder.url}` first") from None
    dim = table.schema.field("text").type.list_size
    chosen = np.linspace(0, max(0, table.num_rows - 1), min(MOST_REFERENCE, table.num_rows)).astype(np.int64)
    visual, text = (matrix(table.column(side).combine_chunks(), dim)[chosen] for side in ("visual", "text"))
    return Reference(visual, text, scale, tuple(table.column("shard").take(chosen).to_pylist()))


def stored_shards(folder: Folder) -> list[str]:
    """The shards with embeddings, in the order of the corpus."""
    shards = swept_shards(folder)
    if not shards:
        raise FaultsError(f"{folder.url} has no embeddings: patterns are found in them; run the audit again")
    return shards


def joined_scenes(scenes: Sequence[Scene]) -> Scene:
    """Some stretches of samples as one; with levels where all have them."""
    levels = [scene.levels for scene in scenes if scene.levels]
    known = len(levels) == len(scenes)
    return Scene(
        np.concatenate([scene.visual for scene in scenes]),
        np.concatenate([scene.text for scene in scenes]),
        np.concatenate([scene.present for scene in scenes]),
        (np.concatenate([one for one, _ in levels]), np.concatenate([one for _, one in levels])) if known else None,
    )

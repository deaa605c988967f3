"""Stored embeddings in the order of the corpus: a shard at a time, with the samples of its neighbours at both ends.

Only what patterns need is read: keys, uids and vectors, no frames. Three shards are in memory at most.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from auditor.errors import AuditorError
from auditor.faults.evidence import Reference, Scene
from auditor.store.audit_files import swept_shards
from auditor.store.embeddings import file_name, matrix
from auditor.store.folder import Folder
from auditor.vectors import Floats, Ints

REFERENCE = "reference.parquet"
MOST_REFERENCE = 2048  # pairs: enough to tell what is near everything


class FaultsError(AuditorError):
    """An audit in which patterns cannot be looked for."""


@dataclass(frozen=True, slots=True)
class Passage:
    """The samples of one shard, encoded or not, in order."""

    shard: str
    keys: tuple[str, ...]  # (N,) of the samples
    uids: tuple[str, ...]  # (P,) of the encoded captions
    sample: Ints  # (P,) which of the samples a caption is of
    caption_index: Ints  # (P,)
    scene: Scene

    def __len__(self) -> int:
        return len(self.keys)


@lru_cache(maxsize=3)
def read_passage(folder: Folder, shard: str) -> Passage:
    table = folder.read_table(file_name(shard), ["uid", "key", "caption_index", "visual", "text"])
    dim = table.schema.field("text").type.list_size
    index = table.column("caption_index").to_numpy()
    sample = np.cumsum(index == 0) - 1
    text, visual = table.column("text").combine_chunks(), table.column("visual").combine_chunks()
    rows = np.flatnonzero(text.is_valid().to_numpy(zero_copy_only=False))
    media = np.flatnonzero(visual.is_valid().to_numpy(zero_copy_only=False))
    count = int(sample[-1]) + 1 if len(sample) else 0
    vectors = mean_media(matrix(visual, dim)[media], sample[media], count)
    present = np.zeros(count, bool)
    present[sample[media]] = True
    uids = table.column("uid").to_pylist()
    keys = table.column("key").filter(np.asarray(index == 0)).to_pylist()
    scene = Scene(vectors, mean_captions(matrix(text, dim)[rows], sample[rows], count), present)
    return Passage(
        shard, tuple(keys), tuple(uids[row] for row in rows), sample[rows], index[rows].astype(np.int64), scene
    )


def mean_captions(text: Floats, sample: Ints, count: int) -> Floats:
    """The mean of the captions of each sample, (N, D); zero where there is none."""
    out = np.zeros((count, text.shape[1]), np.float32)
    if len(text):
        samples, first, captions = np.unique(sample, return_index=True, return_counts=True)
        out[samples] = np.add.reduceat(text, first, axis=0) / captions[:, None].astype(np.float32)
    return out


def mean_media(visual: Floats, sample: Ints, count: int) -> Floats:
    """The medium of each sample, (N, D); of a video with timed captions the mean of its spans, of unit length."""
    out = mean_captions(visual, sample, count)
    several = np.flatnonzero(np.bincount(sample, minlength=count) > 1)
    out[several] /= np.maximum(np.linalg.norm(out[several], axis=1, keepdims=True), 1e-12)
    return out


def with_neighbours(before: Scene | None, scene: Scene, after: Scene | None, reach: int) -> tuple[Scene, int]:
    """A shard between the last samples of the one before, and how many those are, and the first of the one after."""
    parts = [before.take(slice(-reach, None))] if before is not None else []
    lead = len(parts[0]) if parts else 0
    parts.append(scene)
    if after is not None:
        parts.append(after.take(slice(0, reach)))
    return joined_scenes(parts), lead


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
    """Some shards as one stretch of samples."""
    return Scene(
        np.concatenate([scene.visual for scene in scenes]),
        np.concatenate([scene.text for scene in scenes]),
        np.concatenate([scene.present for scene in scenes]),
    )

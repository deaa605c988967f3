"""A shard's embeddings file as it grows: samples come in decoded, are encoded in batches and written piece by piece.

Memory is bounded by a piece, not by the shard. Pieces and batches are cut by position alone, so the same shard always
gives the same file.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from auditor.audit_folder.embeddings import begins_medium, vectors
from auditor.audit_folder.folder import Folder
from auditor.corpus.sample import Problem, Sample
from auditor.sweep.caption_views import View, around_spans, views_of
from auditor.sweep.embeddings_writer import Begin, EmbeddingsFile, Watch
from auditor.sweep.frame_batches import FrameBatches
from auditor.sweep.sample_rows import Shape, Swept, Tokens, facts, row_counts
from auditor.vectors import Bools, Floats, from_frames
from auditor.workers.decoder_pool import Decoded
from model.backbone import Backbone
from model.pixels import Pixels

PIECE = 1024  # samples encoded and written together
PIECE_FRAMES = 50_000  # fewer of them where they have more frames than this


@dataclass(frozen=True, slots=True)
class Outcome:
    """A sample was decoded, or could not be."""

    sample: Sample
    digest: str | None
    result: Decoded | Problem
    tokens: Tensor | None = None  # (captions, L) of what was decoded
    counts: Sequence[Tokens] = ()  # of each of its captions


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Some frames of the sample whose outcome comes next."""

    pixels: Pixels


class ShardFile(EmbeddingsFile):
    """Collects the outcomes of one shard and turns them into its embeddings file."""

    def __init__(self, folder: Folder, backbone: Backbone, batch_size: int, begin: Begin, settings: str):
        super().__init__(folder, begin, backbone.dim, settings)
        self.backbone = backbone
        self.piece: list[Swept] = []
        self.tokens: list[Tensor | None] = []  # of each sample of the piece
        self.received = 0  # frames of the sample whose outcome is to come
        self.held = 0  # frames of the piece
        self.frames = FrameBatches(backbone, batch_size)

    def add_part(self, part: Part) -> None:
        self.frames.add(part.pixels)
        self.received += len(part.pixels)

    def add(self, outcome: Outcome, watch: Watch) -> None:
        result = outcome.result
        if isinstance(result, Decoded) and len(result.pixels):
            self.add_part(Part(result.pixels))
        shape = _shape(result, self.received)
        self.piece.append(Swept(outcome.sample, outcome.digest, shape, self.received, tuple(outcome.counts)))
        self.tokens.append(outcome.tokens)
        self.held += self.received
        self.received = 0
        if len(self.piece) == PIECE or self.held >= PIECE_FRAMES:
            self.flush(watch)

    def flush(self, watch: Watch) -> None:
        """Encode and write what is waiting."""
        if not self.piece:
            return
        table, keys = self._table(self.frames.finish()), len(self.piece)
        self.piece.clear()
        self.tokens.clear()
        self.held = 0
        self.write(table, keys, watch)

    def _table(self, frames: Floats) -> pa.Table:
        """The rows of the piece with their vectors; `frames` are the encoded frames of its media, one after another."""
        mine = split(frames, self.piece)
        swept = [_finite(one, some) for one, some in zip(self.piece, mine, strict=True)]
        table = facts(swept)
        usable = pc.equal(table["status"], "ok").to_numpy()
        encoded = begins_medium(table)
        views = [view for one, some in zip(swept, mine, strict=True) for view in views_of(one, some)]
        around = [around_spans(one, some) for one, some in zip(swept, mine, strict=True)]
        kept = np.concatenate([frames[:0], *(view.vectors for view in views)])
        media = from_frames(kept, np.array([len(view.vectors) for view in views], np.int64), keep=False)
        counts = np.array(row_counts(swept))
        first = np.zeros(table.num_rows, dtype=bool)
        first[np.cumsum(counts) - counts] = True  # the row of each sample's first caption
        each = zip(self.tokens, np.split(usable, np.cumsum(counts)[:-1]), strict=True)
        tokens = [made[torch.from_numpy(fine)] for made, fine in each if made is not None and fine.any()]
        columns = [
            vectors(media.visual, encoded),
            vectors(self._texts(tokens), usable),
            *list_columns(views, encoded, self.backbone.dim),
            *list_columns(around, first, self.backbone.dim),
        ]
        return pa.Table.from_arrays([*table.columns, *columns], schema=self.schema)

    def _texts(self, tokens: list[Tensor]) -> Floats:
        if not tokens:
            return np.zeros((0, self.backbone.dim), np.float32)
        return self.backbone.encode_tokens(torch.cat(tokens)).cpu().numpy()


def _shape(result: Decoded | Problem, frames: int) -> Shape | Problem:
    if isinstance(result, Problem):
        return result
    times = None if result.times is None else tuple(result.times)
    about = result.decoder, result.facts, result.seen, result.measured, result.note
    return Shape(result.width, result.height, result.duration, frames, times, *about)


def split(frames: Floats, piece: Sequence[Swept]) -> list[Floats]:
    """The encoded frames of each sample."""
    return np.split(frames, np.cumsum([one.frames for one in piece])[:-1])


def _finite(one: Swept, frames: Floats) -> Swept:
    if np.isfinite(frames).all():
        return one
    return replace(one, outcome=Problem("corrupt", "the encoder gave numbers that are not finite"))


def _captions(table: pa.Table, usable: Bools) -> list[str]:
    return [caption for caption, good in zip(table["caption"].to_pylist(), usable, strict=True) if good]


def list_columns(views: Sequence[View], present: Bools, dim: int) -> tuple[pa.Array, pa.Array]:
    """The frames of views and their times as columns of lists: at the rows that are `present`, null where none is."""
    lengths = np.zeros(len(present), dtype=np.int32)
    lengths[present] = [len(view.times) for view in views]
    videos = [view.vectors for view in views if view.times]
    values = np.concatenate(videos) if videos else np.zeros((0, dim), np.float32)
    times = [time for view in views for time in view.times]
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    absent = pa.array(lengths == 0)
    inner = vectors(values, np.ones(len(values), dtype=bool))
    return (
        pa.ListArray.from_arrays(offsets, inner, mask=absent),
        pa.ListArray.from_arrays(offsets, pa.array(times, pa.float32()), mask=absent),
    )

"""A shard's embeddings file while it grows: decoded samples come in, are encoded in batches and written in pieces.

A piece bounds the memory, not the shard. Pieces and batches are cut by position alone, so the same shard always gives
the same file.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch
import torch.nn.functional as F
from torch import Tensor

from auditor.audit_folder.arrow_schema import THUMBNAIL_BYTES
from auditor.audit_folder.embeddings import build_nullable_vectors, build_part_column, find_medium_starts
from auditor.audit_folder.folder import Folder
from auditor.corpus.sample import Problem
from auditor.sweep.caption_tokens import CaptionVectors, encode_captions
from auditor.sweep.embeddings_writer import EmbeddingsFile
from auditor.sweep.sample_rows import build_fact_table, count_rows
from auditor.sweep.sweep_events import DecodedSample, FramePart, ShardStart, Watch
from auditor.vectors import Bools, Floats, Ints, MediaVectors, build_media_vectors
from model.backbone import Backbone
from model.pixels import Pixels

PIECE = 1024  # samples encoded and written together
PIECE_VECTORS = 50_000  # a piece with more frames and texts than this has fewer samples
Frames = list[int]  # positions of frames in a piece


class FrameBatches:
    """Collects frames in order and encodes full batches; `finish` returns the vectors since the last call.

    Nothing waits for the device before `finish`: while a GPU encodes a batch, the next one is assembled.
    """

    def __init__(self, backbone: Backbone, size: int, encode: Callable[[Tensor], Tensor]):
        self.backbone, self.size, self.encode = backbone, size, encode
        self.waiting: list[Pixels] = []
        self.batches: list[Tensor] = []

    def add(self, pixels: Iterable[Pixels]) -> None:
        self.waiting.extend(pixels)
        while len(self.waiting) >= self.size:
            self._encode()

    def _encode(self) -> None:
        frames = self.waiting[: self.size]
        # The only copy on the way from a decoder: into memory that a GPU can read by itself.
        batch = torch.empty(len(frames), *frames[0].shape, dtype=torch.uint8, pin_memory=self.backbone.on_gpu)
        np.stack(frames, out=batch.numpy())
        del self.waiting[: self.size], frames
        self.batches.append(self.encode(batch))

    def finish(self) -> Floats:  # (frames, D)
        while self.waiting:
            self._encode()
        batches, self.batches = self.batches, []
        if not batches:
            return np.zeros((0, self.backbone.dim), np.float32)
        return torch.cat(batches).float().cpu().numpy()


class ShardFile(EmbeddingsFile):
    """Collects the decoded samples of one shard and turns them into its embeddings file."""

    def __init__(self, folder: Folder, backbone: Backbone, batch_size: int, start: ShardStart, settings: str):
        super().__init__(folder, start, backbone.dim, settings)
        self.backbone = backbone
        self.piece: list[DecodedSample] = []  # without pixels
        self.part_frames = 0  # frames that arrived of the sample that comes next
        self.piece_vectors = 0
        self.batches = FrameBatches(backbone, batch_size, backbone.encode_frames)

    def add_part(self, part: FramePart) -> None:
        self.batches.add(part.pixels)
        self.part_frames += len(part.pixels)

    def add(self, decoded: DecodedSample, watch: Watch) -> None:
        medium = decoded.medium
        if not isinstance(medium, Problem):
            self.add_part(FramePart(medium.pixels))
            medium = replace(medium, pixels=medium.pixels[:0].copy())  # frees the memory of the decoder
        self.piece.append(replace(decoded, medium=medium, frames=self.part_frames))
        self.piece_vectors += self.part_frames + (len(decoded.texts.tokens) if decoded.texts else 0)
        self.part_frames = 0
        if len(self.piece) == PIECE or self.piece_vectors >= PIECE_VECTORS:
            self.flush(watch)

    def flush(self, watch: Watch) -> None:
        if not self.piece:
            return
        table, keys = self._build_table(self.batches.finish()), len(self.piece)
        self.piece.clear()
        self.piece_vectors = 0
        self.write(table, keys, watch)

    def _build_table(self, features: Floats) -> pa.Table:
        """The rows of the piece; `features` belong to the frames of its media, one medium after another."""
        vectors = normalize_frames(self.backbone, features)
        frames = np.array([decoded.frames for decoded in self.piece])
        starts: list[int] = (np.cumsum(frames) - frames).tolist()
        samples = [
            decoded
            if np.isfinite(vectors[start : start + decoded.frames]).all()
            else replace(decoded, medium=Problem("corrupt", "the encoder gave numbers that are not finite"))
            for decoded, start in zip(self.piece, starts, strict=True)
        ]
        table = build_fact_table(samples)
        usable = pc.equal(table["status"], "ok").to_numpy()
        media_rows = find_medium_starts(table)
        media = [medium for d, start in zip(samples, starts, strict=True) for medium in list_media(d, start)]
        context = [list_context_frames(d, start) for d, start in zip(samples, starts, strict=True)]
        sizes = np.array(list(map(len, media)), np.int64)
        counts = np.array(count_rows(samples))
        first_rows = np.zeros(table.num_rows, dtype=bool)
        first_rows[np.cumsum(counts) - counts] = True  # the row of each sample's first caption
        times = collect_times(self.piece)
        videos = np.array([times[frames[0]] is not None for frames in media], bool)
        whole = pool_media(self.backbone, features[join_positions(media)], sizes, videos)
        captions = self._encode_captions(np.split(usable, np.cumsum(counts)[:-1]))
        columns = [
            build_nullable_vectors(whole.visual, media_rows),
            build_nullable_vectors(captions.text, usable),
            *build_frame_columns(vectors, times, media, media_rows),
            *build_frame_columns(vectors, times, context, first_rows),
            build_thumbnail_column(samples, media_rows),
            build_part_column(captions.parts, usable),
        ]
        return pa.Table.from_arrays([*table.columns, *columns], schema=self.schema)

    def _encode_captions(self, usable: Sequence[Bools]) -> CaptionVectors:
        texts = (
            decoded.texts.select(rows)
            for decoded, rows in zip(self.piece, usable, strict=True)
            if decoded.texts is not None and rows.any()
        )
        return encode_captions(self.backbone, texts)


def normalize_frames(backbone: Backbone, features: Floats) -> Floats:
    """Unit vectors of frames, from what `Backbone.encode_frames` gives."""
    return features if backbone.temporal is None else F.normalize(torch.from_numpy(features), dim=-1).numpy()


def pool_media(
    backbone: Backbone, features: Floats, counts: Ints, videos: Bools | None = None, *, keep: bool = False
) -> MediaVectors:
    """Media from what `Backbone.encode_frames` gives for their frames, concatenated; `keep` as in build_media_vectors.

    Where `videos` (default: everywhere), the vector is that of the temporal transformer if the model has one. A picture
    is not a clip: its vector is that of its one frame.
    """
    media = build_media_vectors(normalize_frames(backbone, features), counts, keep=keep)
    videos = np.ones(len(counts), bool) if videos is None else videos
    if backbone.temporal is None or not videos.any():
        return media
    frames = torch.from_numpy(features[np.repeat(videos, counts)]).to(backbone.device)
    media.visual[videos] = backbone.temporal.pool_clips(frames, counts[videos].tolist()).float().cpu().numpy()
    return media


def list_media(decoded: DecodedSample, start: int) -> list[Frames]:
    """List the frames of each medium of a sample: the whole, or each span for which a row starts a medium.

    The order is that of auditor.audit_folder.embeddings.find_medium_starts. `start` is the sample's first frame.
    """
    if isinstance(decoded.medium, Problem):
        return []
    if decoded.medium.span_frames is None:
        return [list(range(start, start + decoded.frames))]
    media: list[Frames] = []
    previous: object = ()
    for index, span in enumerate(decoded.sample.spans):
        positions = decoded.frames_of_caption(index)
        if not isinstance(positions, Problem):
            if span != previous:
                media.append([start + position for position in positions])
            previous = span
    return media


def list_context_frames(decoded: DecodedSample, start: int) -> Frames:
    """List the frames that belong to no span; empty if the captions have no spans."""
    if isinstance(decoded.medium, Problem) or decoded.medium.span_frames is None:
        return []
    span_frames = decoded.medium.span_frames
    used = {position for frames in span_frames.by_span if not isinstance(frames, str) for position in frames}
    return [start + position for position in span_frames.context if position not in used]


def collect_times(samples: Sequence[DecodedSample]) -> list[float | None]:
    times: list[float | None] = []
    for decoded in samples:
        frame_times = None if isinstance(decoded.medium, Problem) else decoded.medium.times
        times += frame_times or [None] * decoded.frames
    return times


def build_thumbnail_column(samples: Sequence[DecodedSample], present: Bools) -> pa.Array:
    """The thumbnails of media in the rows `present`, null elsewhere and for spans."""
    media = [decoded.medium for decoded in samples for _ in list_media(decoded, 0)]
    values = np.full(len(present), None, object)
    values[present] = [None if isinstance(medium, Problem) else medium.thumbnail for medium in media]
    return pa.array(values, pa.binary(THUMBNAIL_BYTES))


def join_positions(media: Sequence[Frames]) -> npt.NDArray[np.int64]:
    return np.array([position for frames in media for position in frames], np.int64)


def build_frame_columns(
    vectors: Floats, times: Sequence[float | None], media: Sequence[Frames], present: Bools
) -> tuple[pa.Array, pa.Array]:
    """The vectors and the times of media's frames as list columns, null for images and rows not `present`."""
    timed = [[position for position in frames if times[position] is not None] for frames in media]
    lengths = np.zeros(len(present), dtype=np.int32)
    lengths[present] = [len(frames) for frames in timed]
    positions = join_positions(timed)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    absent = pa.array(lengths == 0)
    inner = build_nullable_vectors(vectors[positions], np.ones(len(positions), dtype=bool))
    seconds = pa.array([times[position] for position in positions], pa.float32())
    return (
        pa.ListArray.from_arrays(offsets, inner, mask=absent),
        pa.ListArray.from_arrays(offsets, seconds, mask=absent),
    )

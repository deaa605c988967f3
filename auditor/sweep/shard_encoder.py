"""A shard's embeddings file while it grows: frames come in, are encoded in batches and written in pieces of samples.

A piece bounds the memory, not the shard. Pieces and batches are cut by position alone, so the same shard always gives
the same file.
"""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
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
from auditor.sweep.caption_tokens import arrange_vectors, encode_texts
from auditor.sweep.embeddings_writer import EmbeddingsFile
from auditor.sweep.sample_pieces import build_piece
from auditor.sweep.sample_rows import count_rows
from auditor.sweep.sweep_events import DecodedSample, FramePart, SamplePiece, ShardStart, Watch
from auditor.vectors import Bools, Floats, Ints, MediaVectors, build_media_vectors
from model.backbone import Backbone
from model.encoding.device_calls import download
from model.pixels import Pixels

PIECES_AHEAD = 1  # encoded while the one before is written
Frames = list[int]  # positions of frames in a piece


class FrameBatches:
    """Collects frames in order and encodes full batches; `finish` returns the vectors since the last call.

    Nothing waits for the device before `finish`: while a GPU encodes a batch, the next one is assembled.
    """

    def __init__(self, backbone: Backbone, size: int, encode: Callable[[Tensor], Tensor]):
        self.backbone, self.size, self.encode = backbone, size, encode
        self.batch: Tensor | None = None  # (size, H, W, 3): the next one
        self.filled = 0  # frames in it
        self.batches: list[Tensor] = []

    def add(self, pixels: Pixels) -> None:  # (F, H, W, 3)
        while len(pixels):
            if self.batch is None:
                self.batch = self.backbone.device_calls.allocate((self.size, *pixels.shape[1:]))
            count = min(len(pixels), self.size - self.filled)
            # The only copy on the way from a decoder: into memory that a GPU can read by itself.
            self.batch.numpy()[self.filled : self.filled + count] = pixels[:count]
            self.filled += count
            pixels = pixels[count:]
            if self.filled == self.size:
                self._encode(self.batch)

    def _encode(self, batch: Tensor) -> None:
        self.batches.append(self.encode(batch[: self.filled]))
        self.filled = 0
        if self.backbone.device_calls.on_gpu:  # which may still read it
            self.batch = None

    def take(self) -> list[Tensor]:
        """Encode the last batch and return the vectors since the last call, without waiting for them."""
        if self.batch is not None and self.filled:
            self._encode(self.batch)
        batches, self.batches = self.batches, []
        return batches

    def finish(self) -> Floats:  # (frames, D)
        return download(self.take(), self.backbone.dim)


class ShardFile(EmbeddingsFile):
    """Collects the decoded samples of one shard and turns them into its embeddings file.

    A thread waits for the vectors of a piece and writes them while the next piece is encoded.
    """

    def __init__(self, folder: Folder, backbone: Backbone, batch_size: int, start: ShardStart, settings: str):
        super().__init__(folder, start, backbone.dim, settings)
        self.backbone = backbone
        self.batches = FrameBatches(backbone, batch_size, backbone.encode_frames)
        self.writing = ThreadPoolExecutor(1, "write")
        self.waiting: deque[tuple[SamplePiece, Future[pa.Table]]] = deque()

    def add_frames(self, part: FramePart) -> None:
        self.batches.add(part.pixels)

    def add_piece(self, piece: SamplePiece, watch: Watch) -> None:
        frames, texts = self.batches.take(), encode_texts(self.backbone, piece.texts)
        self.waiting.append((piece, self.writing.submit(self._write_piece, piece, frames, texts)))
        if len(self.waiting) > PIECES_AHEAD:
            self._count_piece(watch)

    def finish(self, watch: Watch) -> None:
        """Wait until all pieces are written."""
        while self.waiting:
            self._count_piece(watch)
        self.writing.shutdown()

    def discard(self) -> None:
        self.writing.shutdown(cancel_futures=True)
        super().discard()

    def _count_piece(self, watch: Watch) -> None:
        piece, future = self.waiting.popleft()
        self.count_rows(future.result(), len(piece.samples), watch)

    def _write_piece(self, piece: SamplePiece, frames: Sequence[Tensor], texts: Sequence[Tensor]) -> pa.Table:
        return self.write_rows(self._build_table(piece, download(frames, self.backbone.dim), texts))

    def _build_table(self, piece: SamplePiece, features: Floats, texts: Sequence[Tensor]) -> pa.Table:
        """The rows of the piece; `features` belong to the frames of its media, one medium after another."""
        vectors = normalize_frames(self.backbone, features)
        frames = np.array([decoded.frames for decoded in piece.samples])
        starts: list[int] = (np.cumsum(frames) - frames).tolist()
        if not np.isfinite(vectors).all():
            piece = exclude_broken_vectors(piece, starts, vectors)
            texts = encode_texts(self.backbone, piece.texts)
        table, samples = piece.facts, piece.samples
        usable = pc.equal(table["status"], "ok").to_numpy()
        media_rows = find_medium_starts(table)
        media = [medium for d, start in zip(samples, starts, strict=True) for medium in list_media(d, start)]
        context = [list_context_frames(d, start) for d, start in zip(samples, starts, strict=True)]
        sizes = np.array(list(map(len, media)), np.int64)
        counts = np.array(count_rows(samples))
        first_rows = np.zeros(table.num_rows, dtype=bool)
        first_rows[np.cumsum(counts) - counts] = True  # the row of each sample's first caption
        times = collect_times(samples)
        videos = np.array([times[frames[0]] is not None for frames in media], bool)
        whole = pool_media(self.backbone, features[join_positions(media)], sizes, videos)
        captions = arrange_vectors(
            download(texts, self.backbone.dim), [texts for group in piece.texts for texts in group.captions]
        )
        columns = [
            build_nullable_vectors(whole.visual, media_rows),
            build_nullable_vectors(captions.text, usable),
            *build_frame_columns(vectors, times, media, media_rows),
            *build_frame_columns(vectors, times, context, first_rows),
            build_thumbnail_column(samples, media_rows),
            build_part_column(captions.parts, usable),
        ]
        return pa.Table.from_arrays([*table.columns, *columns], schema=self.schema)


def exclude_broken_vectors(piece: SamplePiece, starts: Sequence[int], vectors: Floats) -> SamplePiece:
    """Describe the piece again without the media whose vectors are not finite."""
    return build_piece(
        [
            decoded
            if np.isfinite(vectors[start : start + decoded.frames]).all()
            else replace(decoded, medium=Problem("corrupt", "the encoder gave numbers that are not finite"))
            for decoded, start in zip(piece.samples, starts, strict=True)
        ]
    )


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

"""Vectors of media and their frames, and their similarities to captions; NumPy only.

One record for images and videos, used by everything that reads, compares, ranks or samples embeddings. The similarity
of a video is the mean of the cosines of the whole clip and of its best frame (the paper's appendix A);
model/similarity.py has the same for trainable tensors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Halves = npt.NDArray[np.float16]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Rows = slice | Ints | Bools | npt.NDArray[np.intp]

THUMBNAIL_SIDE = 32  # pixels; the sweep stores thumbnails, and the search for copies compares them
ROWS_AT_ONCE = 512  # vectors that are copied together; a megabyte stays in a core's own cache
BLOCK_ELEMENTS = 1 << 21  # similarities per block: 8 MB, about a core's share of the last-level cache

HALF_BITS = np.int32(-0x70002000)  # sign, exponent and fraction of a float16 after they are moved to a float32
EXPONENT_SHIFT = np.float32(2.0**112)
INFINITE_HALF = 65536.0  # the number that the moved bits of infinity stand for; those of NaN stand for larger ones


def concatenate_ranges(first: Ints, size: Ints) -> Ints:
    """first[0], first[0] + 1, ..., first[1], ...: `size` numbers from each `first` on."""
    numbers: Ints = np.arange(int(size.sum())) + np.repeat(first - (np.cumsum(size) - size), size)
    return numbers


@dataclass(frozen=True, slots=True)
class PartVectors:
    """L2-normalized vectors of the parts of N captions, concatenated; a caption with one part has none here."""

    vectors: Halves  # (T, D)
    counts: Ints  # (N,)

    def take(self, rows: Rows) -> "PartVectors":
        counts = self.counts[rows]
        first = (np.cumsum(self.counts) - self.counts)[rows]
        return PartVectors(self.vectors[concatenate_ranges(first, counts)], counts)

    def find_owners(self) -> Ints:
        """The caption (T,) of each part."""
        return np.repeat(np.arange(len(self.counts)), self.counts)


@dataclass(frozen=True, slots=True)
class MediaVectors:
    """N media, L2-normalized; `frames` and `mask` are both given if any medium is a video, or both None.

    A medium without a valid frame is an image: only its own vector counts.
    """

    visual: Floats  # (N, D)
    frames: Floats | None = None  # (N, J, D)
    mask: Bools | None = None  # (N, J) which frames are valid

    def __post_init__(self) -> None:
        if (self.frames is None) != (self.mask is None):
            raise ValueError("frames and mask must be given together")

    def __len__(self) -> int:
        return len(self.visual)

    def take(self, rows: Rows) -> "MediaVectors":
        if self.frames is None or self.mask is None:
            return MediaVectors(self.visual[rows])
        return MediaVectors(self.visual[rows], self.frames[rows], self.mask[rows])

    def without_frames(self) -> "MediaVectors":
        return MediaVectors(self.visual)

    def similarity(self, text: Floats) -> Floats:
        """Similarity of every medium to every caption (M, D): (N, M), block by block."""
        out = np.empty((len(self), len(text)), np.result_type(self.visual, text))
        np.matmul(self.visual, text.T, out=out)
        if self.frames is None or self.mask is None:
            return out
        count, width = self.frames.shape[1:]
        step = max(1, BLOCK_ELEMENTS // max(1, count * len(text)))
        hidden = np.where(self.mask, np.float32(0), np.float32(-np.inf))[..., None]  # (N, J, 1)
        for start in range(0, len(self), step):
            rows = slice(start, start + step)
            block = self.frames[rows]
            by_frame = (block.reshape(-1, width) @ text.T).reshape(len(block), count, len(text))
            by_frame += hidden[rows]
            out[rows] = average_with_best_frame(out[rows], by_frame)
        return out

    def own_similarity(self, text: Floats) -> Floats:
        """Similarity of each medium to its own caption (N, D): (N,)."""
        whole: Floats = np.einsum("nd,nd->n", self.visual, text, dtype=np.float32)
        return whole if self.frames is None else average_with_best_frame(whole, self.frame_similarity(text))

    def frame_similarity(self, text: Floats) -> Floats:
        """Cosine of each frame with the medium's own caption: (N, J), -inf for missing frames."""
        if self.frames is None or self.mask is None:
            raise ValueError("images have no frames")
        cosine = np.einsum("njd,nd->nj", self.frames, text, dtype=np.float32)
        return np.where(self.mask, cosine, np.float32(-np.inf))


def widen_halves(halves: Halves, out: Floats) -> None:
    """Write float16 numbers as finite float32 numbers, in a fifth of the time of NumPy's conversion.

    The bits are moved to the places that they have in float32; the factor makes up for another bias of the exponent.
    """
    move_half_bits(halves, out)
    if np.dot(out.ravel(), out.ravel()) >= INFINITE_HALF**2:  # a single pass in the usual case
        np.copyto(out, np.nan_to_num(halves.astype(np.float32)))


def move_half_bits(halves: Halves, out: Floats) -> None:
    """Write finite float16 numbers as float32 numbers, and others as INFINITE_HALF or more, with their sign."""
    bits = out.view(np.int32)
    np.copyto(bits, halves.view(np.int16))
    np.left_shift(bits, 13, out=bits)
    np.bitwise_and(bits, HALF_BITS, out=bits)
    np.multiply(out, EXPONENT_SHIFT, out=out)


def measure_lengths(vectors: npt.NDArray[np.floating[Any]]) -> Floats:
    """The lengths (N,) of vectors; that of a vector with a number that is not finite is not finite."""
    lengths = np.empty(len(vectors), np.float32)
    is_exact = vectors.dtype != np.float16  # or a length may be that of moved bits
    single = np.empty((min(len(vectors), ROWS_AT_ONCE), vectors.shape[1]), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, len(vectors), ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            block = vectors[rows].astype(np.float32) if is_exact else single[: len(vectors[rows])]
            if not is_exact:
                move_half_bits(vectors[rows].view(np.float16), block)
            lengths[rows] = np.sqrt(np.einsum("nd,nd->n", block, block))
            if not is_exact and lengths[rows].max() >= INFINITE_HALF:
                lengths[rows] = np.sqrt(np.einsum("nd,nd->n", *2 * [vectors[rows].astype(np.float32)]))
    return lengths


def convert_to_single(vectors: Floats | Halves) -> Floats:
    if vectors.dtype != np.float16:
        return vectors.astype(np.float32, copy=False)
    single = np.empty(vectors.shape, np.float32)
    widen_halves(vectors.view(np.float16), single)
    return single


def multiply_rows(left: Floats, left_rows: Ints, right: Floats, right_rows: Ints) -> Floats:
    """The product of row `left_rows[n]` of `left` and row `right_rows[n]` of `right`: (N,).

    Few rows are copied at a time: to copy all of them first takes three times as long.
    """
    products = np.empty(len(left_rows), np.float32)
    for start in range(0, len(left_rows), ROWS_AT_ONCE):
        block = slice(start, start + ROWS_AT_ONCE)
        products[block] = np.einsum("nd,nd->n", left[left_rows[block]], right[right_rows[block]])
    return products


def normalize_rows(vectors: npt.ArrayLike) -> Floats:
    """Unit vectors; zeros stay zero."""
    rows = np.asarray(vectors, np.float32)
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-12), np.float32)


def take_rows(values: Floats, rows: Ints) -> Floats:
    """These rows, which must ascend; the same array, not a copy, if they are all rows."""
    return values if len(rows) == len(values) else values[rows]


def average_with_best_frame(whole: Floats, by_frame: Floats) -> Floats:
    """Mean of the similarities of the whole (N, ...) and of its best frame (N, J, ...); -inf marks missing frames."""
    best: Floats = by_frame.max(axis=1)
    return np.where(best > -np.inf, (whole + best) / 2, whole)


def build_media_vectors(frames: Floats, counts: Ints, *, keep: bool) -> MediaVectors:
    """Media from their concatenated frames (sum of counts, D); each medium has `counts` (N,) frames, at least one.

    A medium's vector is the normalized mean of its frames; `keep` also keeps the frames, padded to the longest.
    """
    if not len(counts):
        return MediaVectors(np.zeros((0, frames.shape[1]), np.float32))
    visual = normalize_rows(average_frames(frames, counts))
    return MediaVectors(visual, *pad_frames(frames, counts)) if keep else MediaVectors(visual)


def average_frames(frames: Floats, counts: Ints) -> Floats:
    """Mean frame of each medium: (sum of counts, D) -> (N, D)."""
    if not len(counts):
        return frames[:0]
    means = np.add.reduceat(frames, np.cumsum(counts) - counts, axis=0) / np.asarray(counts)[:, None]
    return np.asarray(means, np.float32)


def pad_frames(frames: Floats, counts: Ints) -> tuple[Floats, Bools]:
    """Concatenated frames as (N, J, D), padded with zeros, and the mask (N, J) of valid frames."""
    mask = np.arange(counts.max(initial=0))[None, :] < counts[:, None]
    padded = np.zeros((*mask.shape, frames.shape[1]), np.float32)
    padded[mask] = frames
    return padded, mask


def concatenate_media(parts: Sequence[MediaVectors]) -> MediaVectors:
    """Media of several parts as one; if any part has frames, all are padded to the longest."""
    visual = np.concatenate([part.visual for part in parts])
    longest = max((part.mask.shape[1] for part in parts if part.mask is not None), default=0)
    if not longest:
        return MediaVectors(visual)
    frames = np.zeros((len(visual), longest, visual.shape[1]), np.float32)
    mask = np.zeros((len(visual), longest), dtype=bool)
    start = 0
    for part in parts:
        if part.frames is not None and part.mask is not None:
            rows = slice(start, start + len(part))
            frames[rows, : part.mask.shape[1]] = part.frames
            mask[rows, : part.mask.shape[1]] = part.mask
        start += len(part)
    return MediaVectors(visual, frames, mask)


def concatenate_parts(parts: Sequence[PartVectors | None], counts: Sequence[int]) -> PartVectors | None:
    """The parts of several lists of captions with these lengths, as one; None if no caption has several parts."""
    vectors = [part.vectors for part in parts if part is not None]
    if not vectors:
        return None
    sizes = [
        np.zeros(count, np.int64) if part is None else part.counts for part, count in zip(parts, counts, strict=True)
    ]
    return PartVectors(np.concatenate(vectors), np.concatenate(sizes))

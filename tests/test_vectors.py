"""Media vectors compared with loops: pooling, padding, concatenation, similarity."""

import numpy as np
import pytest

from auditor.vectors import (
    MediaVectors,
    average_frames,
    build_media_vectors,
    concatenate_media,
    multiply_rows,
    widen_halves,
)
from tests.support.pairs import normalize_rows

DIM = 8


def frames_of(counts: list[int], seed: int = 0) -> np.ndarray:
    return normalize_rows(np.random.default_rng(seed).normal(size=(sum(counts), DIM)))


def naive(media: MediaVectors, medium: int, caption: np.ndarray) -> float:
    whole = float(media.visual[medium] @ caption)
    if media.frames is None or media.mask is None or not media.mask[medium].any():
        return whole
    return (whole + max(float(frame @ caption) for frame in media.frames[medium][media.mask[medium]])) / 2


def test_a_mediums_vector_is_the_normalized_mean_of_its_frames() -> None:
    counts = [3, 1, 5]
    flat = frames_of(counts)
    media = build_media_vectors(flat, np.array(counts), keep=True)
    assert media.frames is not None and media.mask is not None and media.frames.shape == (3, 5, DIM)
    for medium, own in enumerate(np.split(flat, np.cumsum(counts)[:-1])):
        mean = own.mean(axis=0)
        assert media.visual[medium] == pytest.approx(mean / np.linalg.norm(mean), abs=1e-6)
        assert np.array_equal(media.frames[medium][media.mask[medium]], own)
        assert average_frames(flat, np.array(counts))[medium] == pytest.approx(mean, abs=1e-6)
    assert build_media_vectors(flat, np.array(counts), keep=False).frames is None
    assert len(build_media_vectors(flat[:0], np.zeros(0, np.int64), keep=True)) == 0


def test_images_and_videos_of_different_lengths_are_concatenated() -> None:
    clips = build_media_vectors(frames_of([2, 4]), np.array([2, 4]), keep=True)
    longer = build_media_vectors(frames_of([6], 1), np.array([6]), keep=True)
    photos = build_media_vectors(frames_of([1, 1], 2), np.array([1, 1]), keep=False)
    parts = [clips, photos, longer]
    together = concatenate_media(parts)
    captions = frames_of([7], 3)
    expected = [[naive(part, medium, c) for c in captions] for part in parts for medium in range(len(part))]
    assert together.similarity(captions) == pytest.approx(np.array(expected), abs=1e-6)
    assert together.own_similarity(captions[:5]) == pytest.approx(np.diag(np.array(expected)[:, :5]), abs=1e-6)
    chosen = np.array([4, 0])
    assert together.take(chosen).similarity(captions) == pytest.approx(np.array(expected)[chosen], abs=1e-6)
    assert concatenate_media([photos, photos]).frames is None


def test_frames_come_with_their_mask() -> None:
    with pytest.raises(ValueError, match="mask"):
        MediaVectors(np.zeros((1, DIM), np.float32), np.zeros((1, 2, DIM), np.float32))
    with pytest.raises(ValueError, match="no frames"):
        MediaVectors(np.zeros((1, DIM), np.float32)).frame_similarity(np.zeros((1, DIM), np.float32))


def test_every_float16_number_is_widened_exactly() -> None:
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves)]
    widened = np.empty(len(halves), np.float32)
    widen_halves(halves, widened)
    assert np.array_equal(widened, halves.astype(np.float32))


def test_products_of_drawn_rows_are_those_of_all_rows() -> None:
    generator = np.random.default_rng(0)
    left, right = (generator.normal(size=(50, DIM)).astype(np.float32) for _ in range(2))
    rows, others = generator.integers(0, 50, (2, 1300))  # more than are copied together
    assert np.allclose(multiply_rows(left, rows, right, others), (left @ right.T)[rows, others], atol=1e-5)
    assert not len(multiply_rows(left, rows[:0], right, others[:0]))

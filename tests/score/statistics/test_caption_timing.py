"""Time shifts and true spans, planted in similarities as noisy as an encoder's."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from auditor.score.statistics import caption_timing
from auditor.score.statistics.caption_timing import (
    ENOUGH,
    EXCEEDANCES,
    PERMUTATIONS,
    Floats,
    compute_sequential_p,
    estimate_sampling_step,
    find_best_span,
    find_largest_sum,
    find_shift,
)

Video = tuple[Floats, list[float], list[tuple[float, float]], list[tuple[float, float]]]


def video(seed: int, shift: float, captions: int = 20, signal: float = 1.0) -> Video:
    """Similarities, times, given spans and true spans: scenes of 3 to 8 s, captions `shift` seconds too early.

    The similarity of a right frame is one standard deviation of the others above them.
    """
    generator = np.random.default_rng(seed)
    edges = np.concatenate([[0.0], generator.uniform(3, 8, captions).cumsum()])
    true = [(float(a), float(b)) for a, b in itertools.pairwise(edges)]
    given = [(a - shift, b - shift) for a, b in true]
    times = np.arange(0.25, edges[-1], 0.5)
    scene = np.searchsorted(edges, times, "right") - 1
    noise = generator.normal(size=(captions, captions))[:, scene] + 0.3 * generator.normal(size=(captions, len(times)))
    right = scene[None, :] == np.arange(captions)[:, None]
    similarity = 0.05 * (noise + signal * 2 * right + generator.normal(size=(captions, 1)))
    return similarity.astype(np.float32), times.tolist(), given, true


@pytest.fixture
def few_permutations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough for a p-value of 0.005."""
    monkeypatch.setattr(caption_timing, "PERMUTATIONS", 199)


@pytest.mark.usefixtures("few_permutations")
def test_planted_shifts_are_found_within_half_a_step() -> None:
    generator = np.random.default_rng(1)
    shifts = generator.uniform(2, 20, 60) * generator.choice([-1, 1], 60)
    found = [find_shift(*video(seed, shift)[:3]) for seed, shift in enumerate(shifts)]
    hits = []
    for one, planted in zip(found, shifts, strict=True):
        hits.append(one is not None and one.p <= 0.01 and abs(one.shift - planted) <= 0.25)
    assert np.mean(hits) >= 0.95, hits


@pytest.mark.usefixtures("few_permutations")
def test_no_shift_is_reported_for_videos_in_sync() -> None:
    aligned = [find_shift(*video(seed, 0.0)[:3]) for seed in range(100)]
    assert np.mean([one is not None and one.p <= 0.01 and abs(one.shift) > 0.25 for one in aligned]) < 0.02


@pytest.mark.usefixtures("few_permutations")
def test_p_is_uniform_under_the_null() -> None:
    """Captions that are independent of the frames."""
    p = [one.p for seed in range(100) if (one := find_shift(*video(seed, 0.0, signal=0.0)[:3])) is not None]
    assert 0.35 < np.mean(p) < 0.65 and np.mean(np.array(p) <= 0.05) <= 0.11


def test_the_p_value_takes_only_as_many_permutations_as_needed() -> None:
    drawn: list[float] = []

    def permuted() -> Iterator[float]:
        generator = np.random.default_rng(0)
        for _ in range(PERMUTATIONS):
            drawn.append(float(generator.uniform()))
            yield drawn[-1]

    assert compute_sequential_p(0.0, permuted()) == 1.0 and len(drawn) == EXCEEDANCES
    drawn.clear()
    assert compute_sequential_p(0.9, permuted()) == pytest.approx(0.1, abs=0.08) and len(drawn) < PERMUTATIONS / 2
    assert compute_sequential_p(1.0, permuted()) == 1 / (PERMUTATIONS + 1)


def test_videos_with_few_captions_or_frames_have_no_shift() -> None:
    similarity, times, given, _ = video(0, 5.0)
    few = ENOUGH - 1
    assert find_shift(similarity[:few], times, given[:few]) is None
    assert find_shift(similarity[:, :few], times[:few], given) is None


@pytest.mark.usefixtures("few_permutations")
def test_many_captions_take_a_sample_and_frames_may_be_uneven() -> None:
    similarity, times, given, _ = video(3, 7.0, captions=900)
    keep = np.sort(np.random.default_rng(0).choice(len(times), len(times) // 2, replace=False))
    found = find_shift(similarity[:, keep], np.array(times)[keep].tolist(), given)
    assert found is not None and found.shift == pytest.approx(7.0, abs=0.5) and found.p <= 0.01


def test_the_true_span_of_each_caption() -> None:
    """Given spans are off by up to 4 s at each end: an overlap of half with the true one in 80% of the captions."""
    generator = np.random.default_rng(2)
    overlaps = []
    for seed in range(30):
        similarity, times, _, true = video(seed, 0.0, signal=2.0)
        when = np.array(times)
        for row, (a, b) in zip(similarity, true, strict=True):
            low, high = a + generator.uniform(-4, 4), b + generator.uniform(-4, 4)
            near = (when >= low - 8) & (when <= high + 8)
            start, end = find_best_span(row[near], when[near].tolist(), float(np.median(row)))
            both = max(0.0, min(end, b) - max(start, a))
            overlaps.append(both / (end - start + b - a - both))
    assert np.mean(np.array(overlaps) >= 0.5) >= 0.8


def test_the_largest_sum_is_that_of_all_runs() -> None:
    generator = np.random.default_rng(0)
    for _ in range(200):
        values = generator.normal(size=generator.integers(1, 12))
        low, high = find_largest_sum(values)
        best = max(values[i:j].sum() for i in range(len(values)) for j in range(i + 1, len(values) + 1))
        assert low < high and values[low:high].sum() == pytest.approx(best)


def test_a_single_frame_has_a_span() -> None:
    assert find_best_span(np.array([0.3], np.float32), [4.0], 0.1) == (3.5, 4.5)
    assert estimate_sampling_step(np.array([1.0])) == 1.0

"""Intervals of shares that are estimated from a sample of shards and keys cover the truth as often as they say."""

import numpy as np
import pytest

from auditor.report.sampled_shares import estimate_interval


def draw_interval(
    generator: np.random.Generator, corpus: list[np.ndarray], shards: int, fraction: float
) -> tuple[float, float, float]:
    """The share of events in a fraction of the keys of random shards, with its interval; an array for each shard."""
    chosen = generator.permutation(len(corpus))[:shards]
    samples = [corpus[shard][generator.random(len(corpus[shard])) < fraction] for shard in chosen]
    numbers = np.unique(np.repeat(np.arange(shards), [len(sample) for sample in samples]), return_inverse=True)[1]
    events = np.concatenate(samples).astype(np.float64)
    ends = estimate_interval(numbers, events, np.ones(len(events)), shards / len(corpus), fraction)
    return float(events.mean()), *ends


def make_corpus(generator: np.random.Generator, shards: int, share: float, alike: float) -> list[np.ndarray]:
    """Shards of different sizes whose shares follow a beta distribution; `alike` is large if they hardly differ."""
    sizes = generator.integers(100, 1000, shards)
    shares = generator.beta(share * alike, (1 - share) * alike, shards)
    return [generator.random(size) < part for size, part in zip(sizes, shares, strict=True)]


def measure_coverage(share: float, alike: float, shards: int, drawn: int, fraction: float, seed: int = 0) -> float:
    generator = np.random.default_rng(seed)
    hits = 0
    for _ in range(400):
        corpus = make_corpus(generator, shards, share, alike)
        _, low, high = draw_interval(generator, corpus, drawn, fraction)
        hits += low <= float(np.concatenate(corpus).mean()) <= high
    return hits / 400


@pytest.mark.parametrize(
    ("share", "alike", "shards", "drawn", "fraction"),
    [
        (0.1, 1000, 200, 30, 0.08),  # shards that hardly differ
        (0.1, 20, 200, 30, 0.08),  # shards that differ
        (0.1, 4, 200, 30, 0.2),  # shards that differ very much
        (0.3, 20, 60, 30, 0.04),  # half of the shards
        (0.1, 20, 8, 8, 0.1),  # all shards, some keys of each
        (0.02, 50, 300, 30, 0.2),  # rare events
    ],
)
def test_the_interval_covers_the_truth(share: float, alike: float, shards: int, drawn: int, fraction: float) -> None:
    coverage = measure_coverage(share, alike, shards, drawn, fraction)
    assert 0.92 <= coverage <= 0.985


def test_an_interval_that_ignores_shards_would_not_cover() -> None:
    """The naive interval of single rows misses the truth far more often if shards differ."""
    generator = np.random.default_rng(1)
    hits = 0
    for _ in range(200):
        corpus = make_corpus(generator, 200, 0.1, 4)
        truth = float(np.concatenate(corpus).mean())
        share = draw_interval(generator, corpus, 30, 0.2)[0]
        hits += abs(share - truth) <= 1.96 * (share * (1 - share) / 3300) ** 0.5
    assert hits / 200 < 0.6


def test_everything_audited_leaves_no_doubt() -> None:
    corpus = [np.array([True, False, False]), np.array([False, True])]
    assert draw_interval(np.random.default_rng(0), corpus, 2, 1.0) == pytest.approx((0.4, 0.4, 0.4), abs=1e-5)


def test_no_event_and_one_shard_stay_uncertain() -> None:
    generator = np.random.default_rng(0)
    corpus = [np.zeros(500, bool) for _ in range(100)]
    share, low, high = draw_interval(generator, corpus, 30, 0.02)
    assert share == 0 and low == pytest.approx(0) and 0.005 < high < 0.02  # about 4 of 300
    assert draw_interval(generator, corpus, 1, 0.2)[1:] == (0, 1)

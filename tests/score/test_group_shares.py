"""Shares of groups: shrunk, with intervals; only bad groups are outliers."""

import numpy as np
import pytest

from auditor.score.group_shares import (
    compute_binomial_tail,
    compute_weighted_median,
    estimate_group_shares,
    fit_prior_strength,
)


def test_bad_shards_stand_out_and_no_others() -> None:
    generator = np.random.default_rng(0)
    for _ in range(20):
        rate = np.full(50, 0.02)
        rate[[3, 17]] = 0.4
        rows = generator.integers(200, 600, 50).astype(float)
        events = generator.binomial(rows.astype(int), rate).astype(float)
        found, usual = estimate_group_shares([str(i) for i in range(50)], events, rows)
        assert [share.group for share in found if share.stands_out(usual)] == ["3", "17"]


def test_small_groups_are_shrunk_toward_the_overall_share() -> None:
    events, rows = np.array([2.0, 20.0, 30.0, 25.0]), np.array([2.0, 1000.0, 1000.0, 1000.0])
    found, _ = estimate_group_shares(list("abcd"), events, rows)
    assert found[0].share < 0.5 and found[1].share == pytest.approx(0.02, abs=0.01)
    assert all(share.low < share.share < share.high for share in found)


def test_intervals_cover_the_truth() -> None:
    generator = np.random.default_rng(1)
    rate = generator.beta(2, 30, 400)
    rows = np.full(400, 100.0)
    found, _ = estimate_group_shares([str(i) for i in range(400)], generator.binomial(100, rate).astype(float), rows)
    inside = np.mean([share.low <= truth <= share.high for share, truth in zip(found, rate, strict=True)])
    assert 0.85 <= inside <= 0.95


def test_the_prior_is_strong_if_groups_are_alike() -> None:
    rows = np.full(100, 200.0)
    generator = np.random.default_rng(2)
    alike = generator.binomial(200, 0.1, 100).astype(float)
    unlike = generator.binomial(200, generator.beta(1, 9, 100)).astype(float)
    assert fit_prior_strength(alike, rows) > 5 * fit_prior_strength(unlike, rows)


def test_the_median_is_over_rows() -> None:
    assert compute_weighted_median(np.array([0.1, 0.9]), np.array([10.0, 1.0])) == 0.1


def test_the_tail_is_that_of_scipy() -> None:
    from scipy.stats import binom

    generator = np.random.default_rng(3)
    rows = generator.integers(0, 2000, 2000)
    events, share = rows * generator.random(2000) ** 3, generator.random(2000) ** 4
    events[:3], rows[:3], share[:3] = (0, 7, 7), (0, 7, 7), (0.5, 0, 1)
    expected = binom.sf(np.floor(events) - 1, rows, share)
    np.testing.assert_allclose(compute_binomial_tail(events, rows, share), expected, rtol=1e-12)

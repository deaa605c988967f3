"""The share of mismatched pairs: the mixture is recovered, its gradient is right, and zero is not called more."""

import numpy as np

from auditor.score.statistics.mismatch_share import (
    Bins,
    climb,
    fit_share,
    group_weights,
    is_above_zero,
    is_all_random,
    mixture_of,
    settled,
    skew_normal,
)


def drawn(share: float, count: int = 4000, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counts of pairs, density of re-pairings and bins, of two overlapping normal densities."""
    generator = np.random.default_rng(seed)
    bad = round(share * count)
    seen = np.concatenate([generator.normal(0, 1, bad), generator.normal(3.5, 1.1, count - bad)])
    null = generator.normal(0, 1, 40_000)
    bins = Bins.over(seen, null)
    around = bins.counts(null) + 0.02
    return bins.counts(seen), around / around.sum(), bins.middle


def test_the_share_is_recovered() -> None:
    for share in (0.05, 0.3, 0.6):
        assert abs(fit_share(*drawn(share)).pi0 - share) < 0.02


def test_no_share_is_not_above_zero_and_a_share_is() -> None:
    hits = 0
    for seed in range(20):
        found = drawn(0.0, 1000, seed)
        hits += is_above_zero(fit_share(*found), *found)
    assert hits <= 6
    found = drawn(0.1, 1000)
    assert is_above_zero(fit_share(*found), *found)


def test_pairs_like_re_pairings_are_all_random_and_others_are_not() -> None:
    """At the usual level one corpus in a hundred that is all random would not be called so."""
    generator = np.random.default_rng(0)
    hits = 0
    for _ in range(20):
        hits += mixture_of(generator.normal(0, 1, 1000), generator.normal(0, 1, 40_000)) is None
    assert hits >= 18
    found = drawn(0.9, 200)
    assert not is_all_random(fit_share(*found), *found[:2])


def test_a_lumpy_density_of_good_pairs_is_corrected_by_the_scores_without_siblings() -> None:
    """Six in ten wrong: good pairs with right siblings score high, those without hardly above chance."""
    generator = np.random.default_rng(0)
    lumpy = np.concatenate([generator.normal(0, 1, 1200), generator.normal(1.5, 1, 400), generator.normal(8, 2, 400)])
    null = generator.normal(0, 1, 40_000)
    bins = Bins.over(lumpy, null)
    counts, density = bins.counts(lumpy), (bins.counts(null) + 0.02) / (bins.counts(null) + 0.02).sum()
    alone = fit_share(*drawn(0.6))
    by_itself = fit_share(counts, density, bins.middle)
    corrected = settled(by_itself, alone, counts, density, bins.middle)
    assert abs(corrected.pi0 - 0.6) < 0.03 < abs(by_itself.pi0 - 0.6)
    assert settled(by_itself, None, counts, density, bins.middle) is by_itself


def test_the_deviation_of_good_pairs_is_theirs() -> None:
    generator = np.random.default_rng(0)
    seen = np.concatenate([generator.normal(0, 1, 400), generator.normal(4, 0.3, 1600)])
    found = mixture_of(seen, generator.normal(0, 1, 40_000))
    assert found is not None and abs(found.deviation - 0.3) < 0.05


def test_derivatives_of_the_skew_normal_are_those_of_differences() -> None:
    at, numbers = np.linspace(-3, 6, 100), np.array([1.0, 0.2, -1.5])
    density, slopes = skew_normal(numbers, at)
    assert abs(density.sum() - 1) < 1e-9
    for column in range(3):
        step = np.zeros(3)
        step[column] = 1e-5
        difference = (skew_normal(numbers + step, at)[0] - skew_normal(numbers - step, at)[0]) / 2e-5
        assert np.allclose(slopes[:, column], difference, atol=1e-6)


def test_climbing_never_ends_below_its_start() -> None:
    counts, null, at = drawn(0.3)
    start = np.array([-1.0, 2.0, 0.5, -2.0])
    good, _ = skew_normal(start[1:], at)
    pi0 = 1 / (1 + np.e)
    assert climb(counts, null, at, start).likelihood >= counts @ np.log(pi0 * null + (1 - pi0) * good)


def test_group_weights_draw_as_many_groups_as_there_are() -> None:
    weights = list(group_weights(7, 5, 0))
    assert len(weights) == 5 and all(weight.sum() == 7 for weight in weights)
    assert not np.array_equal(weights[0], weights[1])

"""The share of mismatched pairs: the mixture is recovered, its gradient is right, and no mismatch stays zero."""

import numpy as np

from auditor.score.statistics.mismatch_share import (
    BinnedScores,
    ScoreHistogram,
    correct_share,
    draw_group_weights,
    fit_mixture,
    fit_score_mixture,
    is_null_only,
    is_share_above_zero,
    maximize_likelihood,
    maximize_likelihoods,
    skew_normal_probabilities,
)


def draw_scores(share: float, count: int = 4000, seed: int = 0) -> ScoreHistogram:
    """The histogram of two overlapping normal densities."""
    generator = np.random.default_rng(seed)
    bad = round(share * count)
    scores = np.concatenate([generator.normal(0, 1, bad), generator.normal(3.5, 1.1, count - bad)])
    return BinnedScores.bin(scores, generator.normal(0, 1, 40_000)).count()


def test_the_share_is_recovered() -> None:
    for share in (0.05, 0.3, 0.6):
        assert abs(fit_mixture(draw_scores(share)).pi0 - share) < 0.02


def test_no_share_is_not_above_zero_and_a_share_is() -> None:
    hits = 0
    for seed in range(20):
        histogram = draw_scores(0.0, 1000, seed)
        hits += is_share_above_zero(fit_mixture(histogram), histogram)
    assert hits <= 6
    histogram = draw_scores(0.1, 1000)
    assert is_share_above_zero(fit_mixture(histogram), histogram)


def test_pairs_like_re_pairings_are_all_random_and_others_are_not() -> None:
    """The test has a level of 1%: one random corpus in a hundred is not recognized."""
    generator = np.random.default_rng(0)
    hits = 0
    for _ in range(20):
        hits += fit_score_mixture(generator.normal(0, 1, 1000), generator.normal(0, 1, 40_000)) is None
    assert hits >= 18
    histogram = draw_scores(0.9, 200)
    assert not is_null_only(fit_mixture(histogram), histogram)


def test_a_lumpy_density_of_good_pairs_is_corrected_by_the_scores_without_siblings() -> None:
    """60% are wrong: matched pairs with right siblings score high, the others hardly above the null."""
    generator = np.random.default_rng(0)
    lumpy = np.concatenate([generator.normal(0, 1, 1200), generator.normal(1.5, 1, 400), generator.normal(8, 2, 400)])
    histogram = BinnedScores.bin(lumpy, generator.normal(0, 1, 40_000)).count()
    uncorrected = fit_mixture(histogram)
    corrected = correct_share(histogram, uncorrected, fit_mixture(draw_scores(0.6)))
    assert abs(corrected.pi0 - 0.6) < 0.03 < abs(uncorrected.pi0 - 0.6)
    assert correct_share(histogram, uncorrected) is uncorrected


def test_the_deviation_of_matched_pairs_is_recovered() -> None:
    generator = np.random.default_rng(0)
    seen = np.concatenate([generator.normal(0, 1, 400), generator.normal(4, 0.3, 1600)])
    found = fit_score_mixture(seen, generator.normal(0, 1, 40_000))
    assert found is not None and abs(found.deviation - 0.3) < 0.05


def test_derivatives_of_the_skew_normal_equal_finite_differences() -> None:
    at, numbers = np.linspace(-3, 6, 100), np.array([[1.0, 0.2, -1.5], [0.0, -0.5, 2.0]])
    density, slopes = skew_normal_probabilities(numbers, at)
    assert np.abs(density.sum(axis=1) - 1).max() < 1e-9
    for column in range(3):
        step = np.zeros(3)
        step[column] = 1e-5
        above, below = (skew_normal_probabilities(numbers + change, at)[0] for change in (step, -step))
        assert np.allclose(slopes[:, :, column], (above - below) / 2e-5, atol=1e-6)


def test_the_fit_never_ends_below_its_start() -> None:
    counts, null, at = histogram = draw_scores(0.3)
    start = np.array([-1.0, 2.0, 0.5, -2.0])
    good = skew_normal_probabilities(start[None, 1:], at)[0][0]
    pi0 = 1 / (1 + np.e)
    assert maximize_likelihood(histogram, [start]).log_likelihood >= counts @ np.log(pi0 * null + (1 - pi0) * good)


def test_fits_that_advance_together_equal_fits_one_at_a_time() -> None:
    counts, null, centers = draw_scores(0.3)
    generator = np.random.default_rng(0)
    drawn = generator.multinomial(int(counts.sum()), counts / counts.sum(), 3).astype(float)
    starts = np.array([[-1.0, 2.0, 0.5, -2.0], [0.0, 3.0, 0.0, 0.0], [2.0, 1.0, 1.0, 3.0]])
    for shares in (None, [0.1, 0.3, 0.8]):
        together = maximize_likelihoods(ScoreHistogram(drawn, null, centers), starts, shares)
        for row in range(3):
            share = None if shares is None else shares[row]
            alone = maximize_likelihood(ScoreHistogram(drawn[row], null, centers), [starts[row]], share)
            assert np.allclose(together[0][row], alone.parameters)
            assert np.isclose(together[1][row], alone.log_likelihood)


def test_group_weights_draw_as_many_groups_as_there_are() -> None:
    weights = list(draw_group_weights(7, 5, 0))
    assert len(weights) == 5 and all(weight.sum() == 7 for weight in weights)
    assert not np.array_equal(weights[0], weights[1])

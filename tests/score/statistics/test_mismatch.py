"""p_mismatch is calibrated and monotone, near zero on clean corpora, and uncertain on small ones."""

import json
from pathlib import Path

import numpy as np
import pytest

from auditor.score.statistics.mismatch import MismatchModel, fit_isotonic, fit_mismatch, fit_scores
from auditor.score.statistics.mismatch_statistic import compute_statistic, draw_repairings
from auditor.score.statistics.rivals import measure_pairs
from tests.bench.mismatch_flickr8k import auroc, average_precision, calibration_error, mixture
from tests.support.pairs import PlantedPairs, make_gap_pairs, make_planted_pairs


def fitted(corpus: PlantedPairs, bootstraps: int = 0, **options: int) -> tuple[MismatchModel, np.ndarray, np.ndarray]:
    """The model, and the score and p of every pair; the bootstrap only widens the interval of the share."""
    ref = corpus.reference
    model = fit_mismatch(ref, bootstraps=bootstraps, **options)
    assert model is not None and model.statistic is not None
    score = compute_statistic(model.statistic, ref, measure_pairs(ref, ref))
    return model, score, model.p(score).astype(np.float64)


@pytest.mark.parametrize("rate", [0.05, 0.2, 0.4])
@pytest.mark.parametrize("captions", [1, 5])
def test_share_and_probabilities_are_right_for_planted_noise(rate: float, captions: int) -> None:
    corpus = make_planted_pairs(2000 // captions, rate, seed=3, captions=captions)
    model, score, p = fitted(corpus, bootstraps=50)
    assert abs(model.pi0 - rate) < 0.03
    assert model.pi0_low <= rate + 0.01 and model.pi0_high >= rate - 0.01
    assert calibration_error(p, corpus.spoiled) < 0.04
    assert auroc(score.astype(float), corpus.spoiled) > 0.99


def test_a_clean_corpus_has_no_mismatches() -> None:
    model, _, p = fitted(make_planted_pairs(2000, 0.0, seed=1), bootstraps=50)
    assert (p >= 0.5).mean() <= 0.005
    assert model.pi0 < 0.01 and 0 < model.pi0_high < 0.02


def test_a_wholly_shuffled_corpus_is_wholly_mismatched() -> None:
    model, _, p = fitted(make_planted_pairs(1000, 1.0, seed=2))
    assert model.pi0 > 0.9
    assert p.mean() > 0.9


def test_the_interval_holds_the_truth_most_of_the_time_at_200_pairs() -> None:
    """A 90% interval over 40 corpora: fewer than 28 hits would happen once in ten thousand."""
    hits = 0
    for seed in range(40):
        model, _, _ = fitted(make_planted_pairs(200, 0.2, seed=seed), bootstraps=40, draws=10_000)
        hits += model.pi0_low <= 0.2 <= model.pi0_high
    assert hits >= 28


def test_twenty_pairs_give_a_wide_interval_and_nineteen_none() -> None:
    model, _, p = fitted(make_planted_pairs(20, 0.2, seed=4), bootstraps=100)
    assert 0 <= p.min() <= p.max() <= 1
    assert model.pi0_high - model.pi0_low > 0.1
    assert fit_mismatch(make_planted_pairs(19, 0.2).reference) is None
    assert fit_mismatch(make_planted_pairs(4, 0.0, captions=10).reference) is None  # many captions, too few media


def test_p_falls_with_the_score() -> None:
    model, _, _ = fitted(make_planted_pairs(500, 0.3))
    assert (np.diff(model.curve) <= 1e-12).all()
    assert (np.diff(model.score) > 0).all()
    assert model.p([-9.0])[0] == pytest.approx(1, abs=0.05) and model.p([9.0])[0] == pytest.approx(0, abs=0.01)


def test_p_is_smooth_enough_to_choose_a_threshold() -> None:
    """Every threshold of the list removes a different set of pairs, and no step is large."""
    _, _, p = fitted(make_planted_pairs(2000, 0.1, noise=2.0))
    removed = np.array([(p >= cut).mean() for cut in np.arange(0.1, 0.91, 0.05)])
    assert (np.diff(removed) < 0).all()
    assert -np.diff(removed).min() < 0.06


@pytest.mark.parametrize("noise", [1.0, 3.0])
def test_never_below_the_cosine_across_a_modality_gap(noise: float) -> None:
    corpus = make_gap_pairs(500, 0.2, seed=1, noise=noise)
    cosine = np.einsum("nd,nd->n", corpus.reference.visual, corpus.reference.text).astype(float)
    assert auroc(fitted(corpus)[1].astype(float), corpus.spoiled) > auroc(cosine, corpus.spoiled) + 0.02


def test_repairings_never_hit_the_own_group() -> None:
    group = np.repeat(np.arange(10), 7)
    i, j = draw_repairings(group, np.random.default_rng(0), 5000)
    assert len(i) > 4000 and (group[i] != group[j]).all()


def test_many_captions_of_each_medium_do_not_bias_the_share() -> None:
    assert abs(fitted(make_planted_pairs(150, 0.3, seed=5, captions=10))[0].pi0 - 0.3) < 0.06


def test_a_model_of_a_sample_holds_for_the_rest_of_the_corpus() -> None:
    corpus = make_planted_pairs(4000, 0.2, seed=6)
    ref = corpus.reference
    rows = np.sort(np.random.default_rng(0).choice(4000, 800, replace=False))
    sample = ref.take(rows)
    model = fit_mismatch(sample, captions=4000)
    assert model is not None and model.statistic is not None
    p = model.p(compute_statistic(model.statistic, ref, measure_pairs(ref, sample))).astype(float)
    assert abs(model.pi0 - corpus.spoiled[rows].mean()) < 0.05
    assert calibration_error(p, corpus.spoiled) < 0.04


def test_the_same_seed_gives_the_same_model_and_json_keeps_it() -> None:
    corpus = make_planted_pairs(300, 0.2)
    one, score, _ = fitted(corpus, bootstraps=20, seed=7)
    assert one.to_dict() == fitted(corpus, bootstraps=20, seed=7)[0].to_dict()
    again = MismatchModel.from_dict(json.loads(json.dumps(one.to_dict(), allow_nan=False)))
    assert np.array_equal(again.p(score), one.p(score))
    assert np.allclose(again.bootstrap, one.bootstrap, atol=1e-5)
    assert sum(one.observed) == pytest.approx(1) and sum(one.null) == pytest.approx(1)


def test_equal_scores_do_not_break_the_fit() -> None:
    model = fit_scores(np.zeros(50), np.zeros(500))
    assert 0 <= model.p([0.0])[0] <= 1


def test_pooling_equals_naive_isotonic_regression() -> None:
    """The minimax formula: max over starts of the min over ends of the mean."""
    generator = np.random.default_rng(0)
    value, weight = generator.normal(size=30), generator.uniform(0.1, 2, 30)

    def mean(a: int, b: int) -> float:
        return float(np.average(value[a : b + 1], weights=weight[a : b + 1]))

    expected = [max(min(mean(a, b) for b in range(k, 30)) for a in range(k + 1)) for k in range(30)]
    assert np.allclose(fit_isotonic(value, weight), expected)


def test_metrics_of_the_benchmark() -> None:
    score, spoiled = np.array([0.1, 0.2, 0.3, 0.4]), np.array([True, False, True, False])
    assert auroc(score, spoiled) == pytest.approx(0.75)
    assert average_precision(score, spoiled) == pytest.approx((1 + 2 / 3) / 2)
    assert calibration_error(np.array([1.0, 0.0, 0.0, 0.0]), spoiled) == pytest.approx(0.25)
    generator = np.random.default_rng(0)
    both = np.concatenate([generator.normal(0, 1, 300), generator.normal(6, 1, 700)])
    p, weight = mixture(both)
    assert weight == pytest.approx(0.3, abs=0.01) and p[:300].mean() > 0.99


def test_real_photos(shared: Path) -> None:
    """200 photos, 1,000 captions, a fifth swapped: better than the cosine, and the probabilities hold."""
    pytest.importorskip("torch")
    from tests.bench.flickr8k import load_photos
    from tests.bench.noise import reference_of, spoil

    photos = load_photos(shared, limit=200)
    found = spoil(photos, "random", 0.2, 0)
    ref, spoiled = reference_of(found.photos), found.wrong
    model, score, p = fitted(PlantedPairs(ref, spoiled))
    cosine = np.einsum("nd,nd->n", ref.visual, ref.text).astype(float)
    assert auroc(score.astype(float), spoiled) > auroc(cosine, spoiled)
    assert abs(model.pi0 - 0.2) < 0.04
    assert calibration_error(p, spoiled) < 0.03
    clean, _, untouched = fitted(PlantedPairs(reference_of(photos), spoiled))
    assert clean.pi0 < 0.02 and (untouched >= 0.5).mean() <= 0.005

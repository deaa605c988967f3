"""Evidence is less below its lowest statistic; levels equal their formula."""

import numpy as np

from auditor.faults.pairing_evidence import (
    PairingEvidence,
    ReferencePairs,
    SampleVectors,
    compute_level,
    score_all_pairs,
    score_cross_pairs,
    score_own_pairs,
)
from tests.support.planted import SCALE, make_embeddings


def make_evidence(seed: int, count: int = 60) -> PairingEvidence:
    generator = np.random.default_rng(seed)
    score = np.cumsum(generator.exponential(0.01, count) + 1e-4).astype(np.float32) - np.float32(0.3)
    return PairingEvidence(score, np.sort(generator.normal(0, 4, count)).astype(np.float32))


def test_below_the_least_statistic_there_is_less_evidence() -> None:
    evidence = make_evidence(3)
    score = np.linspace(-0.4, 0.4, 2001).astype(np.float32)
    for ratio in (-5.0, 0.0, 2.6, float(evidence.ratio[-1])):
        assert (evidence.log_ratio(score[score < evidence.lowest_score(ratio)]) < ratio).all()
    assert evidence.lowest_score(float(evidence.ratio[0]) - 1) == -np.inf and evidence.lowest_score(99) == np.inf


def test_levels_are_the_log_of_the_mean_of_exponentials() -> None:
    visual, text = make_embeddings(1500)  # more than one batch
    cosine = visual.astype(np.float64) @ text[:70].T.astype(np.float64)
    expected = np.log(np.exp(SCALE * cosine).mean(axis=1)) / SCALE
    np.testing.assert_allclose(compute_level(visual, text[:70], SCALE), expected, atol=1e-5)


def test_known_levels_change_nothing() -> None:
    visual, text = make_embeddings(300)
    samples, reference = (
        SampleVectors(visual, text, np.arange(300) % 7 > 0),
        ReferencePairs(visual[:90], text[:90], SCALE),
    )
    known = samples.with_levels(reference)
    # Not equal to the last bit: a BLAS may sum in another order for another number of rows.
    np.testing.assert_allclose(score_own_pairs(known, reference), score_own_pairs(samples, reference), rtol=1e-6)
    rows = np.array([5, 2, 250])
    expected = score_all_pairs(visual[rows], text[rows], reference)
    np.testing.assert_allclose(score_cross_pairs(known.take(rows), reference), expected, atol=1e-6)

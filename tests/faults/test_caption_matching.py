"""The best assignment, and calibrated probabilities."""

from itertools import permutations

import numpy as np
import pytest

from auditor.faults.caption_matching import (
    assign_media,
    calibrate_confidence,
    fit_confidence,
    fit_sharpness,
    run_sinkhorn,
)
from auditor.faults.pairing_evidence import SampleVectors, score_all_pairs
from auditor.faults.repair import assign_with_confidence
from tests.faults.test_shifted_stretches import make_samples


def test_the_assignment_is_the_best_of_all() -> None:
    score = np.random.default_rng(0).normal(size=(6, 6)).astype(np.float32)
    logs = np.log(run_sinkhorn(score, 3.0))
    best = max(permutations(range(6)), key=lambda order: logs[range(6), order].sum())
    assert assign_media(score, 3.0).medium.tolist() == list(best)


def test_sinkhorn_is_doubly_stochastic() -> None:
    mass = run_sinkhorn(np.random.default_rng(1).normal(size=(30, 30)).astype(np.float32), 2.0)
    assert mass.sum(axis=1) == pytest.approx(1, abs=1e-6) and mass.sum(axis=0) == pytest.approx(1, abs=1e-2)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_probabilities_hold_on_pairs_they_were_not_learned_from(missing: float) -> None:
    scene, reference = make_samples(1600, 3, noise=2.2)
    sound, others = scene.take(slice(0, 800)), scene.take(slice(800, 1600))
    sharpness = fit_sharpness(score_all_pairs(sound.visual[:300], sound.text[:300], reference))
    strangers = round(300 * missing)
    media = np.arange(300)
    media[:strangers] += 400
    block = SampleVectors(others.visual[media], others.text[:300], others.present[:300])
    confidence = calibrate_confidence(sound, reference, block, missing, sharpness, 0)
    found = assign_media(score_all_pairs(block.visual, block.text, reference), sharpness)
    right = (found.medium == np.arange(300)) & (np.arange(300) >= strangers)
    expected = confidence.probability(found.share)
    assert abs(float(expected.mean()) - right.mean()) < 0.08
    sure = expected >= 0.9
    assert sure.sum() > 20 and right[sure].mean() >= 0.85


def test_probabilities_hold_in_blocks_larger_than_what_is_sound() -> None:
    scene, reference = make_samples(800, 4, noise=2.2)
    sound, block = scene.take(slice(0, 200)), scene.take(slice(200, 800))
    found, expected = assign_with_confidence(block, sound, reference)
    right = found.medium == np.arange(len(block))
    assert 0.3 < right.mean() < 0.9 and abs(float(expected.mean()) - right.mean()) < 0.12
    sure = expected >= 0.9
    assert sure.sum() > 20 and right[sure].mean() >= 0.85


def test_confidence_increases_and_is_never_certain() -> None:
    share = np.linspace(0, 1, 400).astype(np.float32)
    confidence = fit_confidence(share, share > 0.5)
    values = confidence.probability(share)
    assert (np.diff(values) >= 0).all() and values.max() < 1 and values[0] < 0.1

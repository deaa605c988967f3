import json

import numpy as np
import pytest

from auditor.review.correction_map import Correction, fit_correction


def simulate_corpus(seed: int, rows: int = 5000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels that follow the score, a correct p_mismatch, and z."""
    generator = np.random.default_rng(seed)
    z = generator.normal(size=rows)
    p = 1 / (1 + np.exp(2.5 + 2.5 * z))
    return generator.random(rows) < p, p, z


def fit_to_sample(p: np.ndarray, z: np.ndarray, bad: np.ndarray, labels: int, seed: int) -> Correction | None:
    at = np.random.default_rng(seed).choice(len(p), labels, replace=False)
    return fit_correction(p[at], z[at], bad[at], np.ones(labels), {"image": 0.0}, {"image": 1.0})


def test_labels_that_agree_with_p_mismatch_change_nothing() -> None:
    refused = []
    for seed in range(40):
        bad, p, z = simulate_corpus(seed)
        refused.append(fit_to_sample(p, z, bad, 100, seed) is None)
    assert np.mean(refused) >= 0.8


@pytest.mark.parametrize("spoil", ["blind", "doubled"])
def test_a_hundred_labels_correct_a_wrong_p_mismatch(spoil: str) -> None:
    errors = []
    for seed in range(20):
        bad, p, z = simulate_corpus(seed)
        wrong = np.full(len(p), 1e-4) if spoil == "blind" else 1 / (1 + np.exp(-2 * np.log(p / (1 - p)) - 3))
        found = fit_to_sample(wrong, z, bad, 100, seed)
        assert found is not None
        errors.append(abs(found.p(wrong, z).mean() - bad.mean()))
    assert np.mean(errors) < 0.04


def test_the_map_never_turns_the_order_round() -> None:
    bad, p, z = simulate_corpus(1)
    found = fit_to_sample(p, z, ~bad, 200, 1)  # opposite labels
    assert found is not None
    order = np.argsort(z)
    assert (np.diff(found.p(p, z)[order]) <= 1e-9).all()


def test_a_handful_of_labels_is_refused() -> None:
    bad, p, z = simulate_corpus(1)
    assert fit_to_sample(1 - p, z, bad, 19, 1) is None


def test_it_survives_being_saved() -> None:
    bad, p, z = simulate_corpus(1)
    found = fit_to_sample(np.full(len(p), 1e-4), z, bad, 100, 1)
    assert found is not None
    assert Correction(**json.loads(json.dumps(found.to_dict()))) == found

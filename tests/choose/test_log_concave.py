"""The log-concave fit: at least as likely as any log-concave density, and no better than the saturated one."""

import numpy as np
import pytest

from auditor.choose.log_concave import compute_log_concave_likelihood


def likelihood(counts: np.ndarray, density: np.ndarray) -> float:
    return float(counts @ np.log(density / density.sum()))


@pytest.mark.parametrize("shape", ["normal", "exponential", "uniform"])
def test_it_is_between_the_true_density_and_the_saturated_one(shape: str) -> None:
    place = np.linspace(0, 1, 60)
    density = {"normal": np.exp(-(((place - 0.4) / 0.15) ** 2) / 2), "exponential": np.exp(-6 * place)}.get(
        shape, np.ones(60)
    )
    counts = np.random.default_rng(1).multinomial(5000, density / density.sum()).astype(np.float64)
    found = compute_log_concave_likelihood(counts)
    assert likelihood(counts, density) <= found <= likelihood(counts, np.maximum(counts, 1e-9))
    assert found - likelihood(counts, density) < 12  # a few kinks follow chance


def test_log_concave_counts_are_fitted_exactly() -> None:
    counts = np.array([1.0, 4, 9, 16, 9, 4, 1])  # their logarithms are concave
    assert compute_log_concave_likelihood(counts) == pytest.approx(likelihood(counts, counts), abs=0.01)


def test_two_groups_are_not_fitted() -> None:
    place = np.linspace(-4, 8, 80)
    density = 0.9 * np.exp(-(place**2) / 2) + 0.1 * np.exp(-((place - 5) ** 2) / 2)
    counts = np.round(5000 * density / density.sum())
    assert likelihood(counts, density) - compute_log_concave_likelihood(counts) > 100

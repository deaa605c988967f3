"""The share of a second group is found with its interval, and one group of any usual shape gives no estimate."""

from collections.abc import Callable

import numpy as np
import pytest

from auditor.choose.prompt_mixture import FEW, SINGLE, PromptMixture, count_margins, fit_prompt_mixture

ONE_GROUP: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "normal": lambda random, n: random.normal(size=n),
    "skewed": lambda random, n: random.gamma(3, 0.5, n),
    "uniform": lambda random, n: random.random(n),
    "sharp": lambda random, n: random.laplace(size=n),
    "long tails": lambda random, n: random.standard_t(6, n),
    "wide and narrow": lambda random, n: random.normal(size=n) * np.where(random.random(n) < 0.2, 2.0, 1.0),
}


def plant(random: np.random.Generator, count: int, share: float, distance: float) -> tuple[np.ndarray, np.ndarray]:
    planted = random.random(count) < share
    return (0.02 * (random.normal(size=count) + distance * planted)).astype(np.float32), planted


@pytest.mark.parametrize("shape", ONE_GROUP)
def test_one_group_has_no_estimate(shape: str) -> None:
    random, alarms = np.random.default_rng(5), 0
    for count in [1000] * 10 + [20_000] * 5:
        margins = (0.03 * ONE_GROUP[shape](random, count)).astype(np.float32)
        alarms += isinstance(fit_prompt_mixture(count_margins(margins)), PromptMixture)
    assert alarms <= 1


@pytest.mark.parametrize(("count", "share", "distance"), [(2000, 0.1, 4), (2000, 0.5, 4), (10_000, 0.02, 5)])
def test_the_share_and_its_interval(count: int, share: float, distance: float) -> None:
    random, covered = np.random.default_rng(7), 0
    for _ in range(12):
        margins, planted = plant(random, count, share, distance)
        fitted = fit_prompt_mixture(count_margins(margins))
        assert isinstance(fitted, PromptMixture), fitted
        assert fitted.share == pytest.approx(planted.mean(), rel=0.4)
        covered += fitted.low <= planted.mean() <= fitted.high
    assert covered >= 8  # of 12, with 90% intervals


def test_probabilities_rise_with_the_margin_and_are_calibrated() -> None:
    margins, planted = plant(np.random.default_rng(2), 20_000, 0.1, 4)
    fitted = fit_prompt_mixture(count_margins(margins))
    assert isinstance(fitted, PromptMixture)
    p = fitted.p(margins)
    assert (np.diff(p[np.argsort(margins)]) >= 0).all() and p.min() >= 0 and p.max() <= 1
    assert p.mean() == pytest.approx(fitted.share, abs=0.005)
    for low, high in ((0.0, 0.1), (0.1, 0.5), (0.5, 0.9), (0.9, 1.01)):
        inside = (p >= low) & (p < high)
        assert planted[inside].mean() == pytest.approx(p[inside].mean(), abs=0.12), (low, high)


def test_few_media_and_equal_media_have_no_estimate() -> None:
    assert fit_prompt_mixture(count_margins(np.zeros(10, np.float32))) == FEW
    assert fit_prompt_mixture(count_margins(np.full(5000, 0.1, np.float32))) == SINGLE


def test_the_histogram_keeps_all_margins() -> None:
    assert count_margins(np.array([-3, -1, 0, 0.99999, 2], np.float32)).sum() == 5

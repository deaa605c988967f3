import numpy as np
import pytest
from scipy.stats import beta, binom

from auditor.review import label_bounds
from auditor.review.certificate import Interval, Stratum, interval, weighted


def share_interval(strata: list[Stratum]) -> Interval:
    rows = np.array([stratum.rows for stratum in strata], float)
    return interval(strata, weighted(rows), [True] * len(strata))


@pytest.mark.parametrize(("bad", "good"), [(0, 30), (3, 27), (15, 15), (29, 1), (30, 0)])
def test_one_stratum_is_clopper_and_pearsons(bad: int, good: int) -> None:
    found = share_interval([Stratum(10**9, bad, good)])
    low = beta.ppf(0.05, bad, good + 1) if bad else 0
    high = beta.ppf(0.95, bad + 1, good) if good else 1
    assert found.low == pytest.approx(low, abs=0.004)
    assert found.high == pytest.approx(high, abs=0.004)


def test_unsure_labels_widen_the_interval_to_both_sides() -> None:
    decided, unsure = share_interval([Stratum(10**6, 5, 45)]), share_interval([Stratum(10**6, 5, 45, unsure=5)])
    assert unsure.low < decided.low and unsure.high > decided.high


def test_a_stratum_judged_whole_is_known() -> None:
    found = share_interval([Stratum(10, 4, 6), Stratum(20, 20, 0)])
    assert (found.low, found.high) == pytest.approx((24 / 30, 24 / 30))


def test_a_stratum_without_labels_may_hold_anything() -> None:
    found = share_interval([Stratum(100, 0, 50), Stratum(100, 0, 0)])
    assert found.estimate is None
    assert found.low == 0 and found.high >= 0.5
    few = share_interval([Stratum(100, 1, 0), *(Stratum(100, 0, 0) for _ in range(9))])
    assert few.low < 0.02 and few.high > 0.99  # of one label and nine strata that nobody looked at


@pytest.mark.parametrize(
    "shares", [(0.02, 0.02, 0.02, 0.02), (0.0, 0.01, 0.3, 0.9), (0.5, 0.5, 0.5, 0.5), (0, 0, 0.1, 0)]
)
@pytest.mark.parametrize("labels", [(8, 8, 8, 8), (40, 20, 10, 5)])
def test_it_covers_for_any_shares_of_the_strata(
    shares: tuple[float, ...], labels: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label_bounds, "DRAWS", 1500)
    generator = np.random.default_rng(7)
    rows = np.array([6000.0, 2500, 1000, 500])
    truth = float(rows @ shares / rows.sum())
    hits = []
    for _ in range(250):
        bad = binom.rvs(labels, shares, random_state=generator)
        strata = [Stratum(int(n), int(b), int(m - b)) for n, b, m in zip(rows, bad, labels, strict=True)]
        found = share_interval(strata)
        hits.append(found.low <= truth <= found.high)
    assert np.mean(hits) >= 0.87  # 0.9 less one and a half standard errors of 250 rounds

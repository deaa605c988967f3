import numpy as np
import pytest
from scipy.stats import beta, binom

from auditor.review import certificate
from auditor.review.certificate import LabelInterval, Stratum, build_mean_share, certify, compute_interval
from auditor.review.strata import draw_rows, stratify_rows


@pytest.fixture
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate, "DRAWS", 800)


KINDS = ("good", "shifted", "useless")


def simulate_corpus(kind: str, seed: int, rows: int = 8000, share: float = 0.15) -> tuple[np.ndarray, np.ndarray]:
    """Which pairs of a corpus are bad, and a p_mismatch that is right, shifted or unrelated."""
    generator = np.random.default_rng([seed, KINDS.index(kind)])
    bad = generator.random(rows) < share
    score = generator.normal(size=rows) - 4 * bad
    logit = np.log(share / (1 - share)) - 4 * score - 8
    logit += generator.choice([-3, 3]) if kind == "shifted" else 0
    p = 1 / (1 + np.exp(-np.clip(logit, -30, 30)))
    return bad, generator.permutation(p) if kind == "useless" else p


def label_strata(bad: np.ndarray, p: np.ndarray, labels: int, seed: int) -> list[Stratum]:
    found = stratify_rows(p, p, p >= 0.5, p >= 0.2, labels)
    rows, strata = draw_rows(found, seed)
    return [
        Stratum(
            int(found.rows[h]),
            int(bad[rows[strata == h]].sum()),
            int((~bad[rows[strata == h]]).sum()),
            flagged=bool(found.flagged[h]),
            removed=bool(found.removed[h]),
        )
        for h in range(len(found.labels))
    ]


def compute_truths(bad: np.ndarray, p: np.ndarray) -> dict[str, float]:
    flagged, removed = p >= 0.5, p >= 0.2
    return {
        "mismatched": bad.mean(),
        "precision": bad[flagged].mean(),
        "lost": (~bad & removed).sum() / (~bad).sum(),
        "left": bad[~removed].mean(),
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("few_draws")
def test_intervals_cover_whatever_p_mismatch_is_worth(kind: str) -> None:
    hits: dict[str, list[bool]] = {}
    for seed in range(120):
        bad, p = simulate_corpus(kind, seed)
        found = certify(label_strata(bad, p, 100, seed), filtered=True)
        for name, truth in compute_truths(bad, p).items():
            interval = getattr(found, name)
            hits.setdefault(name, []).append(interval.low <= truth <= interval.high)
    for name, covered in hits.items():
        assert np.mean(covered) >= 0.86, name  # 0.9 minus one and a half standard errors of 120 corpora


@pytest.mark.usefixtures("few_draws")
def test_a_good_p_mismatch_halves_the_interval_of_plain_sampling() -> None:
    with_p, plain = [], []
    for seed in range(30):
        bad, p = simulate_corpus("good", seed)
        with_p.append(certify(label_strata(bad, p, 100, seed), filtered=False).mismatched)
        seen = int(bad[np.random.default_rng(seed).choice(len(bad), 100, replace=False)].sum())
        plain.append(certify([Stratum(len(bad), seen, 100 - seen)], filtered=False).mismatched)
    widths = [np.mean([interval.high - interval.low for interval in intervals]) for intervals in (with_p, plain)]
    assert widths[0] <= 0.5 * widths[1]


@pytest.mark.usefixtures("few_draws")
def test_what_cannot_be_said_is_none() -> None:
    found = certify([Stratum(1000, 2, 18)], filtered=False)
    assert (found.precision, found.lost, found.left) == (None, None, None)
    assert found.mismatched.estimate == pytest.approx(0.1)


def compute_share_interval(strata: list[Stratum]) -> LabelInterval:
    rows = np.array([stratum.rows for stratum in strata], float)
    return compute_interval(strata, build_mean_share(rows), [True] * len(strata))


@pytest.mark.parametrize(("bad", "good"), [(0, 30), (3, 27), (15, 15), (29, 1), (30, 0)])
def test_one_stratum_is_clopper_and_pearsons(bad: int, good: int) -> None:
    found = compute_share_interval([Stratum(10**9, bad, good)])
    low = beta.ppf(0.05, bad, good + 1) if bad else 0
    high = beta.ppf(0.95, bad + 1, good) if good else 1
    assert found.low == pytest.approx(low, abs=0.004)
    assert found.high == pytest.approx(high, abs=0.004)


def test_unsure_labels_widen_the_interval_to_both_sides() -> None:
    decided, unsure = (
        compute_share_interval([Stratum(10**6, 5, 45)]),
        compute_share_interval([Stratum(10**6, 5, 45, unsure=5)]),
    )
    assert unsure.low < decided.low and unsure.high > decided.high


def test_a_stratum_judged_whole_is_known() -> None:
    found = compute_share_interval([Stratum(10, 4, 6), Stratum(20, 20, 0)])
    assert (found.low, found.high) == pytest.approx((24 / 30, 24 / 30))


def test_a_stratum_without_labels_may_hold_anything() -> None:
    found = compute_share_interval([Stratum(100, 0, 50), Stratum(100, 0, 0)])
    assert found.estimate is None
    assert found.low == 0 and found.high >= 0.5
    few = compute_share_interval([Stratum(100, 1, 0), *(Stratum(100, 0, 0) for _ in range(9))])
    assert few.low < 0.02 and few.high > 0.99  # one label, and nine strata without any


@pytest.mark.parametrize(
    "shares", [(0.02, 0.02, 0.02, 0.02), (0.0, 0.01, 0.3, 0.9), (0.5, 0.5, 0.5, 0.5), (0, 0, 0.1, 0)]
)
@pytest.mark.parametrize("labels", [(8, 8, 8, 8), (40, 20, 10, 5)])
@pytest.mark.usefixtures("few_draws")
def test_it_covers_for_any_shares_of_the_strata(shares: tuple[float, ...], labels: tuple[int, ...]) -> None:
    generator = np.random.default_rng(7)
    rows = np.array([6000.0, 2500, 1000, 500])
    truth = float(rows @ shares / rows.sum())
    hits = []
    for _ in range(250):
        bad = binom.rvs(labels, shares, random_state=generator)
        strata = [Stratum(int(n), int(b), int(m - b)) for n, b, m in zip(rows, bad, labels, strict=True)]
        found = compute_share_interval(strata)
        hits.append(found.low <= truth <= found.high)
    assert np.mean(hits) >= 0.87  # 0.9 minus one and a half standard errors of 250 rounds

import numpy as np
import pytest

from auditor.review import label_bounds
from auditor.review.certificate import Stratum, certify
from auditor.review.strata import divide, draw


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_bounds, "DRAWS", 1500)


KINDS = ("good", "shifted", "useless")


def simulated(kind: str, seed: int, rows: int = 8000, share: float = 0.15) -> tuple[np.ndarray, np.ndarray]:
    """Which pairs of a corpus are bad, and a p_mismatch that is right, shifted, or has nothing to do with it."""
    generator = np.random.default_rng([seed, KINDS.index(kind)])
    bad = generator.random(rows) < share
    score = generator.normal(size=rows) - 4 * bad
    logit = np.log(share / (1 - share)) - 4 * score - 8
    logit += generator.choice([-3, 3]) if kind == "shifted" else 0
    p = 1 / (1 + np.exp(-np.clip(logit, -30, 30)))
    return bad, generator.permutation(p) if kind == "useless" else p


def judged(bad: np.ndarray, p: np.ndarray, labels: int, seed: int) -> list[Stratum]:
    found = divide(p, p, p >= 0.5, p >= 0.2, labels)
    rows, strata = draw(found, seed)
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


def truths(bad: np.ndarray, p: np.ndarray) -> dict[str, float]:
    flagged, removed = p >= 0.5, p >= 0.2
    return {
        "mismatched": bad.mean(),
        "precision": bad[flagged].mean(),
        "lost": (~bad & removed).sum() / (~bad).sum(),
        "left": bad[~removed].mean(),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_intervals_cover_whatever_p_mismatch_is_worth(kind: str) -> None:
    hits: dict[str, list[bool]] = {}
    for seed in range(120):
        bad, p = simulated(kind, seed)
        found = certify(judged(bad, p, 100, seed), filtered=True)
        for name, truth in truths(bad, p).items():
            interval = getattr(found, name)
            hits.setdefault(name, []).append(interval.low <= truth <= interval.high)
    for name, covered in hits.items():
        assert np.mean(covered) >= 0.86, name  # 0.9 less one and a half standard errors of 120 corpora


def test_a_good_p_mismatch_halves_the_interval_of_plain_sampling() -> None:
    with_p, plain = [], []
    for seed in range(30):
        bad, p = simulated("good", seed)
        with_p.append(certify(judged(bad, p, 100, seed), filtered=False).mismatched.width)
        seen = int(bad[np.random.default_rng(seed).choice(len(bad), 100, replace=False)].sum())
        plain.append(certify([Stratum(len(bad), seen, 100 - seen)], filtered=False).mismatched.width)
    assert np.mean(with_p) <= 0.5 * np.mean(plain)


def test_what_cannot_be_said_is_none() -> None:
    found = certify([Stratum(1000, 2, 18)], filtered=False)
    assert (found.precision, found.lost, found.left) == (None, None, None)
    assert found.mismatched.estimate == pytest.approx(0.1)

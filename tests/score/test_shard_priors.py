"""Shard priors: pairs of shards with many mismatches are more likely mismatched; evenly spread noise has no effect."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor.audit_folder.folder import Folder
from auditor.audit_folder.manifest import Manifest
from auditor.python_api import Audit
from auditor.run.rescore import rescore
from auditor.score.shard_priors import (
    EDGES,
    compute_priors,
    count_log_odds,
    estimate_shard_shares,
    logistic,
    shift_log_odds,
)
from auditor.score.statistics.mismatch import compute_log_odds
from tests.support.planted import CONFIG, make_embeddings, write_planted

SHARDS, ROWS = 20, 100
NAMES = [f"{i:05d}" for i in range(SHARDS)]


def drawn(rates: npt.NDArray[np.float64], seed: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """p of the pairs of shards with these shares of mismatches, under the overall share, and which are mismatched."""
    generator = np.random.default_rng(seed)
    bad = generator.random((SHARDS, ROWS)) < rates[:, None]
    score = generator.normal(size=bad.shape) + np.where(bad, 0, 2.5)
    return logistic(compute_log_odds(np.array([bad.mean()])) + 2.5**2 / 2 - 2.5 * score), bad


def counted(p: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    return np.stack([np.histogram(np.clip(compute_log_odds(row), EDGES[0], EDGES[-1]), EDGES)[0] for row in p])


def test_fewer_decisions_are_wrong_if_few_shards_have_the_noise() -> None:
    rates = np.where(np.arange(SHARDS) < 3, 0.4, 0.02)
    before = after = named = 0
    for seed in range(10):
        p, bad = drawn(rates, seed)
        priors = compute_priors(NAMES, counted(p))
        assert set(priors) <= set(NAMES[:3])
        named += len(priors)
        new = np.stack([shift_log_odds(row, priors.get(name, 0.0)) for name, row in zip(NAMES, p, strict=True)])
        before, after = before + ((p >= 0.5) != bad).sum(), after + ((new >= 0.5) != bad).sum()
    assert named >= 24 and after < 0.85 * before


@pytest.mark.parametrize("rate", [0.0, 0.02, 0.2])
def test_nothing_changes_if_noise_is_spread_evenly(rate: float) -> None:
    assert all(compute_priors(NAMES, counted(drawn(np.full(SHARDS, rate), seed)[0])) == {} for seed in range(10))


def test_the_share_of_a_shard_is_close_to_the_truth() -> None:
    rates = np.where(np.arange(SHARDS) < 3, 0.4, 0.02)
    p, bad = drawn(rates, 0)
    counts = counted(p)
    found = estimate_shard_shares(counts, (EDGES[1:] + EDGES[:-1]) / 2, counts.sum(axis=1).astype(np.float64))
    assert np.abs(found - bad.mean(axis=1)).max() < 0.1
    assert np.abs(found - bad.mean(axis=1)).sum() < np.abs(p.mean(axis=1) - bad.mean(axis=1)).sum()


def test_certain_probabilities_do_not_change() -> None:
    assert shift_log_odds(np.array([0, 0.5, 1], np.float32), 2.0).tolist() == [0, pytest.approx(0.8808, abs=1e-4), 1]


def test_too_few_shards_have_no_priors() -> None:
    assert compute_priors(NAMES[:2], counted(drawn(np.full(SHARDS, 0.2), 0)[0])[:2]) == {}


def test_scoring_takes_the_shard_into_account(tmp_path: Path) -> None:
    """End to end: the manifest lists the shard, p rises only in that shard and remains a function of the score."""
    generator = np.random.default_rng(0)
    source = np.arange(1200)
    noisy = generator.choice(np.arange(200, 400), 80, replace=False)
    source[noisy] = np.roll(noisy, 1)
    write_planted(tmp_path, *make_embeddings(1200, 8, noise=2.2), shards=6, source=source)
    sql = "SELECT shard, p_mismatch, mismatch_score FROM samples ORDER BY uid"
    before = Audit(tmp_path).sql(sql)
    rescore(str(tmp_path), None, CONFIG, quiet=True)
    after = Audit(tmp_path).sql(sql)
    assert list(Manifest.load(Folder(tmp_path)).shard_priors) == ["00001"]
    inside = np.array(before["shard"].to_pylist()) == "00001"
    old, new = (table["p_mismatch"].to_numpy() for table in (before, after))
    assert (new[~inside] == old[~inside]).all() and (new[inside] >= old[inside]).all() and (new > old).sum() > 10
    order = np.argsort(after["mismatch_score"].to_numpy())
    assert (np.diff(new[order]) <= 1e-4).all()
    bad = source != np.arange(1200)
    assert ((new >= 0.5) != bad).sum() <= ((old >= 0.5) != bad).sum()


def test_shards_without_samples_are_left_out(tmp_path: Path) -> None:
    assert count_log_odds(Folder(tmp_path), {}, "samples/00000.parquet").sum() == 0


def test_the_share_of_a_calibration_group_counts_once(tmp_path: Path) -> None:
    columns = {
        "p_mismatch": [0.5, 0.5, None, 0.01],
        "calibration_group": ["de", None, "de", "de"],
        "kind": ["image"] * 4,
    }
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    excess = 2.0
    counts = count_log_odds(Folder(tmp_path), {("image", "de"): excess}, "rows.parquet")
    odds = [-excess, 0.0, float(compute_log_odds(np.array([0.01]))[0]) - excess]
    assert counts.tolist() == np.histogram(odds, EDGES)[0].tolist()

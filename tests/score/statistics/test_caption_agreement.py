"""`NeighborPool.find_nearest` compared with a naive search."""

import numpy as np
import pytest

from auditor.score.statistics.caption_agreement import NEIGHBORS, NeighborPool


def pool(rows: int, groups: int, seed: int = 0) -> NeighborPool:
    chance = np.random.default_rng(seed)
    visual = chance.normal(size=(rows, 24)).astype(np.float32)
    visual /= np.linalg.norm(visual, axis=1, keepdims=True)
    trust = chance.random(rows).astype(np.float32)
    return NeighborPool(np.arange(rows), visual, visual, chance.integers(0, groups, rows), trust, 4.0)


@pytest.mark.parametrize(("rows", "groups"), [(200, 200), (200, 9), (12, 3), (5, 1)])
def test_the_nearest_of_other_groups(rows: int, groups: int) -> None:
    around = pool(rows, groups)
    chance = np.random.default_rng(1)
    visual = chance.normal(size=(40, 24)).astype(np.float32)
    visual /= np.linalg.norm(visual, axis=1, keepdims=True)
    group = chance.integers(0, groups + 2, 40)
    near = around.find_nearest(visual, group)
    assert near.rows.shape == (40, min(NEIGHBORS, rows))
    for one in range(40):
        cosine = np.where(around.group == group[one], -2, around.visual @ visual[one])
        best = np.argsort(-cosine)[:NEIGHBORS]
        best = best[cosine[best] > -2]
        weight = around.trust[best] * np.exp(4.0 * (cosine[best] - cosine.max()))
        expected = dict(zip(best.tolist(), weight / max(weight.sum(), 1e-12), strict=True))
        found = {at: w for at, w in zip(near.rows[one].tolist(), near.weight[one].tolist(), strict=True) if w}
        assert found == pytest.approx({at: w for at, w in expected.items() if w}, rel=1e-4)


def test_no_media_have_no_neighbors() -> None:
    near = pool(5, 5).find_nearest(np.zeros((0, 24), np.float32), np.zeros(0, np.int64))
    assert near.rows.shape == (0, 5)

"""The nearest media compared with a naive search; which of their captions are evidence."""

import numpy as np
import pytest

from auditor.score.statistics.caption_agreement import NEIGHBORS, NeighborPool, NullCosines, build_neighbor_pool
from auditor.score.statistics.rivals import ReferenceSample
from auditor.vectors import Floats, MediaVectors
from tests.support.pairs import normalize_rows


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


def build_pool(text: Floats, visual: Floats) -> NeighborPool:
    reference = ReferenceSample(MediaVectors(visual), text, np.arange(len(text)), [], scale=30.0)
    return build_neighbor_pool(reference, NullCosines(0.0, 0.2, 0.2, 0.0, 0.2))


def test_captions_that_repeat_count_once() -> None:
    """Fifty media with one boilerplate caption weigh as much as one of them that is alone with it."""
    axes = np.eye(24, dtype=np.float32)
    text = np.concatenate([np.repeat(axes[[1]], 50, axis=0), axes[[2]]])
    pool, alone = (build_pool(chosen, np.repeat(axes[[0]], len(chosen), axis=0)) for chosen in (text, text[49:]))
    assert np.isclose(pool.trust[:50].sum(), alone.trust[0]) and pool.trust[50] == alone.trust[1]


def test_a_repeat_of_the_caption_does_not_vouch_for_it() -> None:
    axes = np.eye(24, dtype=np.float32)
    filler = normalize_rows(axes[[0]] + axes[4:9])
    for caption, vouches in ((axes[[1]], False), (normalize_rows(axes[[1]] + 0.5 * axes[[2]]), True)):
        pool = build_pool(np.concatenate([axes[[1]], caption, axes[10:15]]), np.concatenate([axes[[0, 0]], filler]))
        agreement = pool.agreement(pool.find_nearest(axes[[0]], np.array([0])), axes[[1]], np.array([0]))
        assert (agreement[0] > 0.1) == vouches

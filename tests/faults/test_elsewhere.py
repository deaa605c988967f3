"""Captions of a shard that belong to another shard, or to none."""

import numpy as np

from auditor.faults.elsewhere import best_fits, origins, some_captions
from auditor.faults.evidence import Scene
from tests.faults.test_runs import scene_of
from tests.support.planted import invented


def test_the_shard_that_captions_come_from_is_named() -> None:
    scene, _ = scene_of(1000, noise=2.0)
    shards = [scene.take(slice(i, i + 100)) for i in range(0, 1000, 100)]
    foreign = Scene(shards[3].visual, shards[7].text[::-1], shards[3].present)
    captions = [some_captions(foreign), invented(100, 99)[1]]
    names = [str(i) for i in range(10)]
    fits = [best_fits(captions, shard) for shard in shards]
    found = origins(["3", "5"], captions, names, [100] * 10, fits)
    assert [(one.shard, one.source) for one in found] == [("3", "7"), ("5", None)]
    assert found[0].p_value < 1e-3 < found[1].p_value


def test_a_shard_without_media_fits_nothing() -> None:
    scene, _ = scene_of(50)
    empty = Scene(scene.visual, scene.text, np.zeros(50, bool))
    assert np.isneginf(best_fits([scene.text], empty)[0]).all()

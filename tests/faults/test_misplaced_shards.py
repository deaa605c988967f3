"""Captions of a shard that belong to another shard, or to none."""

import numpy as np

from auditor.faults.misplaced_shards import find_best_fits, find_origins, sample_captions
from auditor.faults.pairing_evidence import SampleVectors
from tests.faults.test_shifted_stretches import make_samples
from tests.support.planted import make_embeddings


def test_the_shard_that_captions_come_from_is_named() -> None:
    samples, _ = make_samples(1000, noise=2.0)
    shards = [samples.take(slice(i, i + 100)) for i in range(0, 1000, 100)]
    scattered = samples.text[np.random.default_rng(0).permutation(1000)[:100]]
    captions = [
        sample_captions(text) for text in (shards[7].text[::-1], make_embeddings(100, 99)[1], scattered, shards[0].text)
    ]
    names = [str(i) for i in range(10)]
    fits = [find_best_fits(captions, shard) for shard in shards]
    found = find_origins(["3", "5", "6"], captions, names, [100] * 10, fits)
    assert [(one.shard, one.source, one.nowhere) for one in found] == [
        ("3", "7", False),
        ("5", None, True),
        ("6", None, False),
    ]
    assert all(one.p_value is not None and one.p_value < 1e-3 for one in found[:2]) and found[2].p_value is None


def test_without_sound_shards_nothing_is_said_to_belong_nowhere() -> None:
    samples, _ = make_samples(300)
    captions = [make_embeddings(100, 99)[1], samples.text[:0]]
    (found,) = find_origins(["0"], captions, ["0"], [300], [find_best_fits(captions, samples)])
    assert not found.nowhere


def test_a_caption_is_heard_once() -> None:
    text = np.repeat(make_embeddings(5)[1], 10, axis=0)
    assert len(sample_captions(text)) == 5


def test_a_shard_without_media_fits_nothing() -> None:
    samples, _ = make_samples(50)
    empty = SampleVectors(samples.visual, samples.text, np.zeros(50, bool))
    assert np.isneginf(find_best_fits([samples.text], empty)[0]).all()

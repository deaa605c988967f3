"""Exchanged, reversed, permuted and lost captions are distinguished."""

import numpy as np

from auditor.faults.mixed_blocks import (
    ENOUGH,
    CaptionBlock,
    draw_random_media,
    find_blocks,
    find_dense_stretches,
    find_distinct_vectors,
    find_exchanged_pairs,
    find_mutual_best,
)
from auditor.faults.pairing_evidence import PairingEvidence, ReferencePairs
from auditor.faults.shifted_stretches import REACH, FaultCalibration, compute_band
from auditor.vectors import Ints
from tests.faults.test_shifted_stretches import fit_chance_model, make_samples
from tests.support.planted import make_embeddings


def find_planted_blocks(source: Ints, seed: int = 0, strange: slice | None = None) -> list[CaptionBlock]:
    samples, reference = make_samples(len(source), seed, source=source)
    if strange is not None:
        samples.text[strange] = make_embeddings(len(source), seed + 1000)[1][strange]
    calibration = FaultCalibration(reference, *fit_chance_model(samples, reference))
    ratios = compute_band(samples, reference, calibration.evidence)
    return find_blocks(samples, ratios, np.zeros(len(samples), bool), calibration)


def test_a_sound_corpus_has_no_block() -> None:
    assert all(not find_planted_blocks(np.arange(500), seed) for seed in range(5))


def test_exchanged_captions_are_found_near_and_far() -> None:
    source = np.arange(500)
    for a, b in ((50, 51), (100, 130), (200, 420)):
        source[[a, b]] = [b, a]
    found = find_planted_blocks(source, 1)
    assert {(block.first, block.last) for block in found} == {(50, 51), (100, 130), (200, 420)}
    assert all(block.pattern == "exchanged" and block.moves[block.first] == block.last for block in found)


def test_a_reversed_stretch_is_found_with_its_ends() -> None:
    source = np.arange(500)
    source[200:230] = source[200:230][::-1]
    (block,) = find_planted_blocks(source, 2)
    assert (block.pattern, block.first, block.last) == ("reversed", 200, 229)
    assert all(source[sample] == to for sample, to in block.moves.items())


def test_a_mixed_up_stretch_is_told_from_a_reversed_one() -> None:
    source = np.arange(500)
    source[100:200] = np.random.default_rng(3).permutation(source[100:200])
    (block,) = [block for block in find_planted_blocks(source, 3) if block.rows > 2]
    assert block.pattern == "permuted"
    assert abs(block.first - 100) <= 3 and abs(block.last - 199) <= 3


def test_captions_of_nothing_are_lost() -> None:
    (block,) = [block for block in find_planted_blocks(np.arange(500), 4, strange=slice(100, 200)) if block.rows > 2]
    assert block.pattern == "lost"


def test_dense_stretches_are_the_best_of_all() -> None:
    lost = np.zeros(100, bool)
    lost[20:40] = True
    lost[30] = False
    lost[70] = True
    assert list(find_dense_stretches(lost, np.ones(100, bool))) == [(20, 39)]


def test_one_lost_caption_alone_is_no_pair() -> None:
    samples, reference = make_samples(100)
    evidence, _ = fit_chance_model(samples, reference)
    assert find_exchanged_pairs(samples, np.array([5]), reference, evidence) == []


def test_strangers_need_a_reference_that_is_large_enough() -> None:
    _, reference = make_samples(100)
    assert [len(group) for group in draw_random_media(reference, 40)] == [40] * 4
    assert list(draw_random_media(reference, 4000)) == []
    assert REACH == 50


def test_one_caption_on_many_media_is_no_mixed_up_stretch() -> None:
    """The same caption on half of the samples, among them a stretch in which nearly all have it."""
    for seed in range(3):
        samples, reference = make_samples(400, 50 + seed)
        chosen = np.random.default_rng(seed).random(400) < 0.5
        chosen[100:130] = True
        chosen[115] = False
        samples.text[chosen] = samples.text[np.flatnonzero(chosen)[0]]
        reference = ReferencePairs(reference.visual, samples.text, reference.scale)
        calibration = FaultCalibration(reference, *fit_chance_model(samples, reference))
        ratios = compute_band(samples, reference, calibration.evidence)
        blocks = find_blocks(samples, ratios, np.zeros(400, bool), calibration)
        assert not [block for block in blocks if block.pattern != "lost"]


def test_distinct_vectors_are_the_first_of_their_kind() -> None:
    _, text = make_embeddings(6)
    assert find_distinct_vectors(text[[3, 1, 3, 2, 1]]).tolist() == [0, 1, 3]


def test_partners_are_those_of_the_whole_matrix() -> None:
    """Ties are common because the evidence is bounded."""
    evidence = PairingEvidence(np.linspace(-1, 1, 9).astype(np.float32), np.linspace(-4, 4, 9).astype(np.float32))
    pairs = 0
    for seed in range(20):
        score = np.random.default_rng(seed).normal(-0.8, 0.8, (80, 80)).astype(np.float32)
        crosswise = evidence.log_ratio(score)
        own = np.maximum(np.diagonal(crosswise), 0)
        nats = crosswise + crosswise.T - own[:, None] - own[None, :]
        np.fill_diagonal(nats, -np.inf)
        best = nats.argmax(axis=1)
        expected = [(i, b, nats[i, b]) for i, b in enumerate(best) if i < b and best[b] == i and nats[i, b] >= ENOUGH]
        assert list(find_mutual_best(score, evidence)) == expected
        pairs += len(expected)
    assert pairs > 50

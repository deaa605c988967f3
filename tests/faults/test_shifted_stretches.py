"""Shifted stretches are found with their ends and offset, and none in sound corpora; compared with a naive sum."""

from itertools import pairwise

import numpy as np
import pytest

from auditor.faults.pairing_evidence import (
    PairingEvidence,
    ReferencePairs,
    SampleVectors,
    fit_evidence,
    score_all_pairs,
    score_own_pairs,
    score_random_pairs,
)
from auditor.faults.shifted_stretches import (
    REACH,
    ChanceDistribution,
    ShiftedStretch,
    compute_band,
    compute_cusum,
    compute_increments,
    estimate_chance,
    find_cusum_peaks,
    find_shard_stretches,
    join_stretches,
    select_significant,
    select_strongest,
)
from auditor.vectors import Ints
from tests.support.planted import SCALE, make_embeddings


def make_samples(
    samples: int, seed: int = 0, noise: float = 1.2, source: Ints | None = None
) -> tuple[SampleVectors, ReferencePairs]:
    visual, text = make_embeddings(samples, seed, noise=noise)
    moved = text if source is None else text[source]
    return SampleVectors(visual, moved, np.ones(samples, bool)), ReferencePairs(visual[:400], moved[:400], SCALE)


def fit_chance_model(samples: SampleVectors, reference: ReferencePairs) -> tuple[PairingEvidence, ChanceDistribution]:
    evidence = fit_evidence(score_own_pairs(samples, reference), score_random_pairs(samples, reference))
    return evidence, estimate_chance(samples, reference, evidence, times=4)


def find_stretches(samples: SampleVectors, reference: ReferencePairs, cuts: list[int]) -> list[ShiftedStretch]:
    """The stretches of a corpus that is cut into shards at these positions."""
    evidence, chance = fit_chance_model(samples, reference)
    ratios = compute_band(samples, reference, evidence)
    edges = [0, *cuts, len(samples)]
    shards = [find_shard_stretches(ratios[a:b]).shift_by(a) for a, b in pairwise(edges)]
    return select_significant(join_stretches(shards), chance, len(samples))


def test_the_band_is_what_each_pair_gives() -> None:
    samples, reference = make_samples(180)
    samples.present[[3, 77]] = False
    evidence, _ = fit_chance_model(samples, reference)
    ratios = compute_band(samples, reference, evidence)
    pairs = evidence.log_ratio(score_all_pairs(samples.visual, samples.text, reference))
    for sample in range(len(samples)):
        for offset in range(-REACH, REACH + 1):
            medium = sample + offset
            known = 0 <= medium < len(samples) and samples.present[sample] and samples.present[medium]
            wanted = pairs[sample, medium] if known else 0
            assert ratios[sample, offset + REACH] == pytest.approx(wanted, abs=1e-3)


def test_the_band_of_permuted_samples_needs_no_new_levels() -> None:
    samples, reference = make_samples(300)
    evidence, _ = fit_chance_model(samples, reference)
    order = np.random.default_rng(0).permutation(300)
    known = compute_band(samples.with_levels(reference).take(order), reference, evidence)
    np.testing.assert_allclose(known, compute_band(samples.take(order), reference, evidence), atol=1e-4)


def test_climb_is_the_best_sum_that_ends_at_each_row() -> None:
    added = np.random.default_rng(0).normal(-0.3, 1, (60, 3)).astype(np.float32)
    height = compute_cusum(added)
    for row in range(60):
        best = [max(0.0, *(float(added[a : row + 1, c].sum()) for a in range(row + 1))) for c in range(3)]
        assert height[row] == pytest.approx(best, abs=1e-4)


def test_peaks_are_the_highest_points_between_zeros() -> None:
    added = np.random.default_rng(0).normal(-0.3, 1, (200, 4)).astype(np.float32)
    peaks: list[float] = []
    for column in compute_cusum(added).T:
        excursions = np.split(column, np.flatnonzero(column == 0))
        peaks += [part.max() for part in excursions if part.size and part.max() > 0]
    assert find_cusum_peaks(added) == pytest.approx(peaks)
    assert not len(find_cusum_peaks(np.zeros((0, 4), np.float32)))


@pytest.mark.parametrize("length", [8, 12, 40])
@pytest.mark.parametrize("offset", [1, -1, 7, -50, 50])
def test_a_shifted_run_is_found_with_its_ends_and_offset(length: int, offset: int) -> None:
    source = np.arange(600)
    source[200 : 200 + length] += offset
    (run,) = find_stretches(*make_samples(600, length + abs(offset), source=source), cuts=[])
    assert run.offset == offset
    assert abs(run.first - 200) <= 1 and abs(run.last - (200 + length - 1)) <= 1
    assert run.p_value < 1e-3


@pytest.mark.parametrize("cut", [301, 305, 310, 319])
def test_a_run_across_the_boundary_of_shards_is_one(cut: int) -> None:
    source = np.arange(600)
    source[300:320] -= 3
    (run,) = find_stretches(*make_samples(600, 5, source=source), cuts=[cut])
    assert (run.offset, abs(run.first - 300) <= 1, abs(run.last - 319) <= 1) == (-3, True, True)


def test_a_run_over_three_shards_is_one() -> None:
    source = np.arange(600)
    source[150:450] += 2
    (run,) = find_stretches(*make_samples(600, 6, source=source), cuts=[200, 400])
    assert (run.offset, abs(run.first - 150) <= 1, abs(run.last - 449) <= 1) == (2, True, True)


def test_clean_corpora_have_no_run() -> None:
    for seed in range(20):
        assert find_stretches(*make_samples(400, 100 + seed, noise=1.6), cuts=[200]) == []


def test_mismatched_captions_are_no_run() -> None:
    source = np.arange(800)
    generator = np.random.default_rng(1)
    noisy = generator.choice(800, 320, replace=False)
    source[noisy] = np.roll(noisy, 1)
    assert find_stretches(*make_samples(800, 7, source=source), cuts=[]) == []


def test_captions_that_are_mixed_up_are_no_run() -> None:
    for seed in range(10):
        source = np.arange(400)
        source[100:130] = np.random.default_rng(seed).permutation(source[100:130])
        assert find_stretches(*make_samples(400, 30 + seed, source=source), cuts=[]) == []


def test_neighbours_that_are_alike_are_no_run() -> None:
    """Frames of a film: every caption fits the next medium nearly as well as its own."""
    visual, text = make_embeddings(600, 8)
    content = np.repeat(visual[::20], 20, axis=0) + 0.1 * visual
    words = np.repeat(text[::20], 20, axis=0) + 0.1 * text
    unit = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in (content, words)]
    samples = SampleVectors(unit[0].astype(np.float32), unit[1].astype(np.float32), np.ones(600, bool))
    assert find_stretches(samples, ReferencePairs(samples.visual[::2], samples.text[::2], SCALE), cuts=[]) == []


def test_samples_that_are_not_there_do_not_break_a_run() -> None:
    source = np.arange(600)
    source[200:230] += 1
    samples, reference = make_samples(600, 9, source=source)
    samples.present[[205, 206, 215]] = False
    (run,) = find_stretches(samples, reference, cuts=[])
    assert (run.offset, abs(run.first - 200) <= 1, abs(run.last - 229) <= 1) == (1, True, True)


def test_of_runs_that_overlap_the_strongest_stays() -> None:
    runs = [ShiftedStretch(0, 10, 1, 20.0, 5), ShiftedStretch(5, 20, 2, 30.0, 5), ShiftedStretch(21, 30, 1, 10.0, 5)]
    assert select_strongest(runs) == [runs[1], runs[2]]


def test_p_values_hold_for_permuted_corpora() -> None:
    """The p-values of the highest sums of 40 corpora without shifts are rarely below 5%."""
    low = 0
    for seed in range(40):
        samples, reference = make_samples(300, 300 + seed, noise=2.0)
        evidence, chance = fit_chance_model(samples, reference)
        top = compute_cusum(compute_increments(compute_band(samples, reference, evidence))).max()
        low += chance.p_value(float(top), len(samples)) <= 0.05
    assert low <= 6  # binomial(40, 0.05): more than 6 once in 100

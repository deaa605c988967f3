"""Block permutations: two captions that were exchanged, or a block whose captions were reversed or permuted.

A caption is lost if the evidence is against its own medium and no shift explains it. Exchanged captions fit each
other's media; a reversed block is a shifted stretch against its media in reverse order; a permuted block fits its own
media, in another order, better than random media. Blocks lie within one shard.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from auditor.faults.caption_matching import LARGEST, assign_media
from auditor.faults.pairing_evidence import (
    PairingEvidence,
    ReferencePairs,
    SampleVectors,
    score_all_pairs,
    score_cross_pairs,
    score_own_pairs,
)
from auditor.faults.shifted_stretches import (
    FaultCalibration,
    compute_band,
    compute_cusum,
    compute_increments,
    find_highest_stretch,
)
from auditor.vectors import Bools, Floats, Ints

DENSE = 6.0  # smallest CUSUM of lost captions; lower ones are noise
SOUND_COST = 1.5  # what a sound caption subtracts from the CUSUM, in lost captions
P_VALUE = 1e-3
P_EXCHANGED = 0.01
FEWEST_REVERSED = 4  # rows: in a permuted block two or three are reversed by chance
FEWEST_ORDERED = 7  # steps: this many go the same way by chance once in sixty times
SHARPNESS = 40.0  # inverse temperature of the assignment that detects permuted blocks
ENOUGH = float(np.log(2 / P_EXCHANGED)) - 1e-3  # nats: no exchange with less evidence is significant


@dataclass(frozen=True, slots=True)
class CaptionBlock:
    """Samples first..last of a shard, and the sample to which the captions of each belong, if that is clear."""

    pattern: str  # exchanged, reversed, permuted, lost
    first: int  # in the shard
    last: int
    rows: int
    p_value: float
    moves: dict[int, int] = field(default_factory=dict)
    samples: tuple[int, ...] = ()  # lost samples of a permuted or lost block


def find_unexplained_samples(ratios: Floats, samples: SampleVectors, explained: Bools) -> Bools:
    """Samples whose captions do not belong to their own medium and that no shifted stretch explains; (N,)."""
    return np.asarray((ratios[:, ratios.shape[1] // 2] < 0) & samples.present & ~explained)


def find_blocks(
    samples: SampleVectors, ratios: Floats, explained: Bools, calibration: FaultCalibration
) -> list[CaptionBlock]:
    """The blocks of a shard, from its samples, its rows of the band and the rows that stretches explain."""
    samples = samples.with_levels(calibration.reference)
    is_lost = find_unexplained_samples(ratios, samples, explained)
    blocks: list[CaptionBlock] = []
    for first, last in find_dense_stretches(is_lost, samples.present):
        block = find_reversed_block(samples, first, last, calibration)
        blocks.append(block or classify_block(samples, first, last, is_lost, calibration.reference))
    for block in blocks:
        is_lost[block.first : block.last + 1] = False
    exchanged = find_exchanged_pairs(samples, np.flatnonzero(is_lost), calibration.reference, calibration.evidence)
    return [*blocks, *exchanged]


def find_dense_stretches(is_lost: Bools, present: Bools) -> Iterator[tuple[int, int]]:
    """Yield stretches in which most captions are lost, the longest first."""
    steps = np.where(present, np.where(is_lost, 1.0, -SOUND_COST), 0.0).astype(np.float32)
    while len(steps):
        first, last, height = find_highest_stretch(steps)
        if height < DENSE:
            return
        yield first, last
        steps[first : last + 1] = -1e6


def find_reversed_block(
    samples: SampleVectors, first: int, last: int, calibration: FaultCalibration
) -> CaptionBlock | None:
    """A block whose captions are in reverse order: a shifted stretch against its media from last to first."""
    reference, evidence = calibration.reference, calibration.evidence
    count = min(last - first + 1, LARGEST)
    part = samples.take(slice(first, first + count))
    diagonal = score_own_pairs(replace(part, present=np.ones(count, bool)), reference)
    own_evidence = np.where(part.present, evidence.log_ratio(diagonal), 0).astype(np.float32)
    backwards = part.take(slice(None, None, -1))
    levels = (backwards.levels[0], part.levels[1]) if backwards.levels and part.levels else None
    reversed_media = SampleVectors(backwards.visual, part.text, backwards.present, levels)
    added = compute_increments(compute_band(reversed_media, reference, evidence, reach=count), own_evidence)
    column = int(compute_cusum(added).max(axis=0).argmax())
    start, row, height = find_highest_stretch(added[:, column])
    tests = count * (2 * count + 1) / 101  # ChanceDistribution counts rows of 101 offsets
    p_value = calibration.chance.p_value(height, int(tests) + 1)
    if p_value > P_VALUE or (added[start : row + 1, column] > 0).sum() < FEWEST_REVERSED:
        return None
    mirror = 2 * count - 1 - column  # j belongs to mirror - j
    begin, end = max(min(start, mirror - row), 0), min(max(row, mirror - start), count - 1)
    moves = {
        first + j: first + mirror - j for j in range(begin, end + 1) if 0 <= mirror - j < count and mirror != 2 * j
    }
    return CaptionBlock("reversed", first + begin, first + end, end - begin + 1, p_value, moves)


def classify_block(
    samples: SampleVectors, first: int, last: int, is_lost: Bools, reference: ReferencePairs
) -> CaptionBlock:
    """Classify a block as permuted if its captions fit its media in another order, or lost if random media fit as well.

    Repeated captions count once: thirty equal captions are no evidence of an order.
    """
    lost_rows = first + np.flatnonzero(is_lost[first : last + 1])[:LARGEST]
    different = lost_rows[find_distinct_vectors(samples.text[lost_rows])]
    p_value = 1.0
    if len(different) >= DENSE:
        part = samples.take(different)
        own_scores = _score_best_assignment(score_cross_pairs(part, reference))
        random_scores = [
            _score_best_assignment(score_all_pairs(media, part.text, reference))
            for media in draw_random_media(reference, len(different))
        ]
        p_value = welch_p_value(own_scores, np.concatenate(random_scores)) if random_scores else 1.0
    pattern = "permuted" if p_value <= P_VALUE else "lost"
    return CaptionBlock(pattern, first, last, len(lost_rows), p_value, samples=tuple(lost_rows.tolist()))


def find_distinct_vectors(vectors: Floats) -> Ints:
    """The indices of the first occurrences of distinct vectors (in half precision), in order."""
    halves = np.ascontiguousarray(vectors.astype(np.float16))
    return np.sort(np.unique(halves, axis=0, return_index=True)[1])


def is_alphabetical(captions: Sequence[str]) -> bool:
    """Whether captions are in alphabetical or reverse alphabetical order, with few exceptions."""
    steps = [a <= b for a, b in pairwise(caption.casefold() for caption in captions if caption)]
    return len(steps) >= FEWEST_ORDERED and not 0.05 < sum(steps) / len(steps) < 0.95


def _score_best_assignment(score: Floats) -> Floats:
    """The doubly centered statistic of the assigned pairs."""
    score = score - score.mean(axis=1, keepdims=True) - score.mean(axis=0) + score.mean()
    return score[np.arange(len(score)), assign_media(score, SHARPNESS).medium]


def draw_random_media(reference: ReferencePairs, count: int) -> Iterator[Floats]:
    """Yield four groups of `count` random media of the reference, if it has so many; groups may overlap."""
    generator = np.random.default_rng(0)
    for _ in range(4 if len(reference.visual) >= count else 0):
        yield generator.choice(reference.visual, count, replace=False)


def welch_p_value(values: Floats, baseline: Floats) -> float:
    """One-sided p-value of Welch's t-test that the mean of `values` is not above that of `baseline`."""
    from scipy.stats import ttest_ind

    return float(ttest_ind(values, baseline, equal_var=False, alternative="greater").pvalue)


def find_exchanged_pairs(
    samples: SampleVectors, lost_rows: Ints, reference: ReferencePairs, evidence: PairingEvidence
) -> list[CaptionBlock]:
    """Pairs of lost samples whose captions fit each other's medium best, by more than chance."""
    if not 2 <= len(lost_rows) <= LARGEST:
        return []
    blocks = []
    for i, j, score in find_mutual_best(score_cross_pairs(samples.take(lost_rows), reference), evidence):
        first, last = int(lost_rows[i]), int(lost_rows[j])
        # the alternatives to an exchange are the pairs of lost samples that are at most as far apart
        reached = np.searchsorted(lost_rows, lost_rows + (last - first), "right")
        alternatives = int((reached - np.arange(len(lost_rows)) - 1).sum())
        p_value = float(min(1.0, 2 * alternatives * np.exp(-score)))
        if p_value <= P_EXCHANGED:
            blocks.append(CaptionBlock("exchanged", first, last, 2, p_value, {first: last, last: first}))
    return blocks


def find_mutual_best(score: Floats, evidence: PairingEvidence) -> Iterator[tuple[int, int, np.float32]]:
    """Pairs i < j of mutual best partners and the nats of evidence for each exchange, if these may be significant.

    `score` is the statistic of every caption with every medium, (L, L). The evidence is computed only for the few
    scores that are high enough.
    """
    own_evidence = np.maximum(evidence.log_ratio(np.ascontiguousarray(np.diagonal(score))), 0)
    row, column = np.nonzero(score >= evidence.lowest_score(ENOUGH / 2))  # at least one of the two must reach half
    pair = np.unique(np.minimum(row, column) * len(score) + np.maximum(row, column))
    i, j = pair // len(score), pair % len(score)
    i, j = i[i < j], j[i < j]
    nats = evidence.log_ratio(score[i, j]) + evidence.log_ratio(score[j, i]) - own_evidence[i] - own_evidence[j]
    i, j, nats = i[nats >= ENOUGH], j[nats >= ENOUGH], nats[nats >= ENOUGH]
    sample, partner, value = np.concatenate([i, j]), np.concatenate([j, i]), np.concatenate([nats, nats])
    order = np.lexsort((partner, -value, sample))  # ties go to the first partner
    sample, first = np.unique(sample[order], return_index=True)
    best = np.full(len(score), -1)
    best[sample] = partner[order][first]
    for k in np.flatnonzero((best[i] == j) & (best[j] == i)):
        yield int(i[k]), int(j[k]), nats[k]

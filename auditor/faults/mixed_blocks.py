"""Blocks: captions that lost their medium together. Two that were exchanged, a stretch that was reversed or mixed up.

A caption is lost when the evidence speaks against its own medium and no shift explains it. Exchanged pairs fit each
other crosswise; a reversed stretch is a run against the reversed media; a mixed-up stretch fits its own media, in
another order, better than media from elsewhere. All within one shard.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from auditor.faults.caption_matching import LARGEST, match
from auditor.faults.pairing_evidence import Evidence, Reference, Scene, cross_scores, own_scores, scores
from auditor.faults.shifted_stretches import Chance, band, climb, increments
from auditor.vectors import Bools, Floats, Ints

DENSE = 6.0  # lost captions, less those that are not: stretches below are noise
SOUND_COST = 1.5  # a caption in its place weighs so much against a stretch of lost ones
P_VALUE = 1e-3
P_EXCHANGED = 0.01
FEWEST_REVERSED = 4  # rows: in a mixed-up stretch two or three stand reversed by chance
FEWEST_ORDERED = 7  # steps: so many go one way by chance once in sixty times
SHARPNESS = 40.0  # of the matching that tells a mixed-up stretch from a strange one
ENOUGH = float(np.log(2 / P_EXCHANGED)) - 1e-3  # nats: with less no exchange is beyond chance
MOST_LOST = LARGEST


@dataclass(frozen=True, slots=True)
class Block:
    """Samples first..last of a shard, and to which of its samples the captions of each belong, where that is clear."""

    pattern: str  # exchanged, reversed, permuted, lost
    first: int  # in the shard
    last: int
    rows: int
    p_value: float
    moves: dict[int, int] = field(default_factory=dict)
    samples: tuple[int, ...] = ()  # of a block that is permuted or lost: those that lost their medium


def lost_samples(ratios: Floats, scene: Scene, explained: Bools) -> Bools:
    """Samples whose captions do not belong to their own medium, and that no run accounts for; (N,)."""
    own = ratios[:, ratios.shape[1] // 2]
    return np.asarray((own < 0) & scene.present & ~explained)


def find_blocks(
    scene: Scene, ratios: Floats, explained: Bools, reference: Reference, evidence: Evidence, chance: Chance
) -> list[Block]:
    """The blocks of a shard, from its samples, its rows of the band and the rows that runs explain."""
    scene = scene.levelled(reference)
    lost = lost_samples(ratios, scene, explained)
    found: list[Block] = []
    for first, last in dense_stretches(lost, scene.present):
        block = reversed_block(scene, first, last, reference, evidence, chance)
        found.append(block or permuted_block(scene, first, last, lost, reference))
    for block in found:
        lost[block.first : block.last + 1] = False
    return [*found, *exchanged_pairs(scene, np.flatnonzero(lost), reference, evidence)]


def dense_stretches(lost: Bools, present: Bools) -> Iterator[tuple[int, int]]:
    """Stretches in which most captions are lost, the longest first."""
    steps = np.where(present, np.where(lost, 1.0, -SOUND_COST), 0.0)
    while len(steps):
        height = climb(steps[:, None].astype(np.float32))[:, 0]
        last = int(height.argmax())
        if height[last] < DENSE:
            return
        low = np.flatnonzero(height[:last] <= 0)
        first = int(low[-1]) + 1 if len(low) else 0
        yield first, last
        steps[first : last + 1] = -1e6


def reversed_block(
    scene: Scene, first: int, last: int, reference: Reference, evidence: Evidence, chance: Chance
) -> Block | None:
    """A stretch whose captions stand in reversed order: a run against its media from last to first."""
    count = min(last - first + 1, LARGEST)
    part = scene.take(slice(first, first + count))
    turned = _turned(part)
    own = np.where(part.present, evidence.of(_diagonal(part, reference)), 0).astype(np.float32)
    added = increments(band(turned, reference, evidence, reach=count), own)
    height = climb(added)
    row, column = np.unravel_index(int(height.argmax()), height.shape)
    low = np.flatnonzero(height[:row, column] <= 0)
    start = int(low[-1]) + 1 if len(low) else 0
    tests = count * (2 * count + 1) / 101  # Chance counts rows of 101 offsets
    p_value = chance.p_value(float(height[row, column]), int(tests) + 1)
    if p_value > P_VALUE or (added[start : row + 1, column] > 0).sum() < FEWEST_REVERSED:
        return None
    mirror = count - 1 - (int(column) - count)  # j belongs to mirror - j
    begin, end = min(start, mirror - int(row)), max(int(row), mirror - start)
    begin, end = max(begin, 0), min(end, count - 1)
    moves = {
        first + j: first + mirror - j for j in range(begin, end + 1) if 0 <= mirror - j < count and mirror != 2 * j
    }
    return Block("reversed", first + begin, first + end, end - begin + 1, p_value, moves)


def _turned(scene: Scene) -> Scene:
    """The captions in their order, the media from last to first."""
    levels = (scene.levels[0][::-1], scene.levels[1]) if scene.levels else None
    return Scene(scene.visual[::-1], scene.text, scene.present[::-1], levels)


def _diagonal(scene: Scene, reference: Reference) -> Floats:
    return own_scores(replace(scene, present=np.ones(len(scene), bool)), reference)


def permuted_block(scene: Scene, first: int, last: int, lost: Bools, reference: Reference) -> Block:
    """A stretch whose captions fit its media in some other order; `lost` where strangers fit as well.

    A caption that repeats is heard once: the same thing said thirty times is no evidence of an order.
    """
    samples = first + np.flatnonzero(lost[first : last + 1])[:LARGEST]
    different = samples[distinct(scene.text[samples])]
    p_value = 1.0
    if len(different) >= DENSE:
        part = scene.take(different)
        own = _matched(cross_scores(part, reference))
        strange = [_matched(scores(others, part.text, reference)) for others in strangers(reference, len(different))]
        p_value = greater(own, np.concatenate(strange)) if strange else 1.0
    pattern = "permuted" if p_value <= P_VALUE else "lost"
    return Block(pattern, first, last, len(samples), p_value, samples=tuple(samples.tolist()))


def distinct(vectors: Floats) -> Ints:
    """The places of the first of all vectors that are the same (in half precision), in order."""
    halves = np.ascontiguousarray(vectors.astype(np.float16))
    return np.sort(np.unique(halves, axis=0, return_index=True)[1])


def in_order(captions: Sequence[str], most_wrong: float = 0.05) -> bool:
    """Whether captions stand in alphabetical order, or the reverse, but for a few."""
    steps = [a <= b for a, b in pairwise(caption.casefold() for caption in captions if caption)]
    return len(steps) >= FEWEST_ORDERED and not most_wrong < sum(steps) / len(steps) < 1 - most_wrong


def _matched(score: Floats) -> Floats:
    """The statistic of the matched pairs, less what the caption and the medium have with all of the others."""
    score = score - score.mean(axis=1, keepdims=True) - score.mean(axis=0, keepdims=True) + score.mean()
    found = match(score, SHARPNESS)
    return score[np.arange(len(score)), found.medium]


def strangers(reference: Reference, count: int, most: int = 4, seed: int = 0) -> Iterator[Floats]:
    """Media of the reference in groups of `count`; with replacement between groups where they are few."""
    generator = np.random.default_rng(seed)
    if len(reference.visual) < count:
        return
    for _ in range(most):
        yield reference.visual[generator.choice(len(reference.visual), count, replace=False)]


def greater(values: Floats, others: Floats) -> float:
    """One-sided p-value of Welch's test that the mean of `values` is not above that of `others`."""
    from scipy.stats import ttest_ind

    return float(ttest_ind(values, others, equal_var=False, alternative="greater").pvalue)


def exchanged_pairs(scene: Scene, lost: Ints, reference: Reference, evidence: Evidence) -> list[Block]:
    """Two lost samples whose captions fit each other's medium: best for both, and more than chance among so many."""
    if not 2 <= len(lost) <= MOST_LOST:
        return []
    found = []
    for i, j, score in mutual_best(cross_scores(scene.take(lost), reference), evidence):
        first, last = int(lost[i]), int(lost[j])
        p_value = float(min(1.0, 2 * _pairs_within(lost, last - first) * np.exp(-score)))
        if p_value <= P_EXCHANGED:
            found.append(Block("exchanged", first, last, 2, p_value, {first: last, last: first}))
    return found


def mutual_best(score: Floats, evidence: Evidence) -> Iterator[tuple[int, int, np.float32]]:
    """Pairs i < j of which each is the other's best partner, and the nats that speak for it, where those may suffice.

    `score` is the statistic of every caption with every medium, (L, L). Few of them are so high that they could tell
    anything, and the evidence of no others is looked up.
    """
    own = np.maximum(evidence.of(np.ascontiguousarray(np.diagonal(score))), 0)
    row, column = np.nonzero(score >= evidence.least(ENOUGH / 2))  # one of the two must have as much
    pair = np.unique(np.minimum(row, column) * len(score) + np.maximum(row, column))
    i, j = pair // len(score), pair % len(score)
    i, j = i[i < j], j[i < j]
    nats = evidence.of(score[i, j]) + evidence.of(score[j, i]) - own[i] - own[j]
    i, j, nats = i[nats >= ENOUGH], j[nats >= ENOUGH], nats[nats >= ENOUGH]
    mine, other, value = np.concatenate([i, j]), np.concatenate([j, i]), np.concatenate([nats, nats])
    order = np.lexsort((other, -value, mine))  # of equals the first
    mine, first = np.unique(mine[order], return_index=True)
    best = np.full(len(score), -1)
    best[mine] = other[order][first]
    for k in np.flatnonzero((best[i] == j) & (best[j] == i)):
        yield int(i[k]), int(j[k]), nats[k]


def _pairs_within(places: npt.NDArray[np.int64], distance: int) -> int:
    """How many pairs of lost samples are at most so far apart: what an exchange over this distance competes with."""
    return int((np.searchsorted(places, places + distance, "right") - np.arange(len(places)) - 1).sum())

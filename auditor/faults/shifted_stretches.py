"""Runs and shifts: stretches of rows whose captions belong to the medium k places further on, or further back.

For each offset k the evidence "belongs to the medium k away" less "belongs here, or to none, or to any neighbour" is
added up along the corpus; a run is a stretch in which the sum climbs higher than chance lets it. What chance does is
measured on permutations of the same corpus. A shard is looked at with `REACH` samples of both its neighbours, and runs
that touch its ends are joined with those of the next one, so memory does not depend on the number of rows.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided, sliding_window_view

from auditor.faults.pairing_evidence import Evidence, Reference, Scene, statistic
from auditor.vectors import Floats

REACH = 50  # the largest offset looked for
CHUNK = 128  # samples compared with their neighbours at once
ROW_MOST = 10.0  # nats that one row may add to the sum
PRIOR_NONE = -3.0  # nats: a caption at the edge of a run belongs to nothing at all
FEWEST = 4  # rows that speak for a run: where captions are mixed up, two or three in a row are shifted alike by chance
NOTABLE = 8.0  # nats: runs below are nobody's business, unless they touch an end of the shard
P_VALUE = 1e-3
LOOK = 8  # rows beyond the ends of a run in which its true ends are looked for
PERMUTATIONS = 8
STEEPEST = 1.4  # nats: where every peak is one row at its bound, the tail looks steeper than it is


@dataclass(frozen=True, slots=True)
class Run:
    """Samples first..last of a shard (or from one shard into a later one) belong `offset` samples further on."""

    first: int  # position in the corpus
    last: int
    offset: int
    score: float  # nats
    support: int  # rows that speak for it
    p_value: float = 1.0

    @property
    def rows(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class ShardRuns:
    """The runs of one shard; those in `heads` and `tails` touch its first and last sample."""

    start: int  # position of the shard's first sample in the corpus
    size: int
    inside: tuple[Run, ...]
    heads: tuple[Run, ...]
    tails: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Chance:
    """How often sums of permuted corpora climb: `rate` peaks a row above `floor`, exponential with `slope` beyond."""

    floor: float
    rate: float
    slope: float

    def p_value(self, score: float, rows: int) -> float:
        """Probability that a corpus of so many rows without any shift has a run of this score."""
        expected = rows * self.rate * np.exp(-self.slope * max(0.0, score - self.floor))
        return float(-np.expm1(-expected))


def band(scene: Scene, reference: Reference, evidence: Evidence, reach: int = REACH) -> Floats:
    """Evidence (N, 2 reach + 1) that the captions of a sample belong to the medium `column - reach` away.

    0 where there is no such medium or caption.
    """
    out = np.empty((len(scene), 2 * reach + 1), np.float32)
    visual_level, text_level = scene.levels_against(reference)
    level = sliding_window_view(np.pad(visual_level, reach), 2 * reach + 1)  # (N, 2 reach + 1) of the media around
    there = sliding_window_view(np.pad(scene.present, reach), 2 * reach + 1)
    for start in range(0, len(scene), CHUNK):
        rows = slice(start, min(start + CHUNK, len(scene)))
        score = statistic(_around(scene, rows, reach), level[rows], text_level[rows, None])
        out[rows] = np.where(there[rows] & scene.present[rows, None], evidence.of(score), 0)
    return out


def _around(scene: Scene, rows: slice, reach: int) -> Floats:
    """The cosine (B, 2 reach + 1) of the captions of some samples in a row with the media around each; 0 beyond."""
    count, low, high = rows.stop - rows.start, rows.start - reach, rows.stop + reach
    inside = slice(max(0, low), min(len(scene), high))
    cosine = scene.text[rows] @ scene.visual[inside].T
    if cosine.shape[1] < high - low:
        cosine = np.pad(cosine, ((0, 0), (inside.start - low, high - inside.stop)))
    down, right = cosine.strides
    return as_strided(cosine, (count, 2 * reach + 1), (down + right, right), writeable=False)  # along the diagonal


def increments(ratios: Floats, own: Floats | None = None) -> Floats:
    """What each row adds to the sum of each offset: its evidence less that of here, of none and of all neighbours.

    `own` is the evidence that captions belong where they are; by default it stands in the middle column.
    """
    reach = ratios.shape[1] // 2
    likelihood = np.exp(ratios)
    elsewhere = (likelihood.sum(axis=1, keepdims=True) - likelihood) / max(1, 2 * reach)
    here = np.maximum(np.exp(ratios[:, reach] if own is None else own), 1)[:, None]
    added = np.clip(ratios - np.log(here + elsewhere), -ROW_MOST, ROW_MOST)
    if own is None:
        added[:, reach] = -ROW_MOST
    return np.asarray(np.where(ratios == 0, 0, added), np.float32)


def climb(added: Floats) -> npt.NDArray[np.float64]:
    """How far the sum of each column stands above its lowest point so far."""
    total = np.cumsum(added, axis=0, dtype=np.float64)
    lowest = np.minimum(np.minimum.accumulate(total, axis=0), 0)
    return np.asarray(total - lowest, np.float64)


def peaks(added: Floats, floor: float) -> Floats:
    """The highest point of every stretch in which the sum stays above its low, where that exceeds `floor`."""
    height = climb(added)
    found = []
    for column in np.flatnonzero(height.max(axis=0, initial=0) > floor):
        stretch = np.cumsum(height[:, column] <= 0)
        top = np.zeros(stretch[-1] + 1)
        np.maximum.at(top, stretch, height[:, column])
        found.append(top[top > floor])
    return np.concatenate(found).astype(np.float32) if found else np.zeros(0, np.float32)


def learn_chance(permuted: Sequence[Floats]) -> Chance:
    """The tail of the peaks of permuted corpora, given as their increments."""
    rows = sum(len(added) for added in permuted)
    found = np.sort(np.concatenate([peaks(added, 0.0) for added in permuted]))
    if len(found) < 20:
        return Chance(0.0, max(len(found), 1) / max(rows, 1), 1.0)
    kept = found[-max(20, min(len(found) // 20, 500)) :]
    slope = 1 / max(float((kept - kept[0]).mean()), 0.05)
    return Chance(float(kept[0]), len(kept) / rows, min(slope, STEEPEST))


def chance_of(
    scene: Scene, reference: Reference, evidence: Evidence, seed: int = 0, times: int = PERMUTATIONS
) -> Chance:
    """What sums climb by chance, from permutations of some samples of the corpus, each with its own captions."""
    scene = scene.levelled(reference)  # once for all permutations
    generator = np.random.default_rng(seed)
    orders = (generator.permutation(len(scene)) for _ in range(times))
    return learn_chance([increments(band(scene.take(order), reference, evidence)) for order in orders])


def shard_runs(ratios: Floats, start: int) -> ShardRuns:
    """The runs of one shard, from its own rows of the band (made with the neighbours'); `start` is its position."""
    added = np.ascontiguousarray(increments(ratios).T)  # a column at a time is looked at
    inside = [run for column, values in enumerate(added) for run in _column_runs(values, ratios, column)]
    heads = [_ending(values, ratios, column, head=True) for column, values in enumerate(added)]
    tails = [_ending(values, ratios, column, head=False) for column, values in enumerate(added)]
    moved = [tuple(_moved(run, start) for run in some if run is not None) for some in (inside, heads, tails)]
    return ShardRuns(start, len(ratios), *moved)


def _moved(run: Run, start: int) -> Run:
    return replace(run, first=run.first + start, last=run.last + start)


def _column_runs(added: Floats, ratios: Floats, column: int) -> Iterator[Run]:
    """The best stretch of a column, then the best of what is left, as long as they are notable."""
    left = added.copy()
    while len(left):
        height = climb(left[:, None])[:, 0]
        last = int(height.argmax())
        if height[last] < NOTABLE:
            return
        low = np.flatnonzero(height[:last] <= 0)
        first = int(low[-1]) + 1 if len(low) else 0
        support = int((left[first : last + 1] > 0).sum())
        yield refined(ratios, first, last, column, float(height[last]), support)
        left[first : last + 1] = -ROW_MOST


def refined(ratios: Floats, first: int, last: int, column: int, score: float, support: int) -> Run:
    """The run with its likeliest ends: the rows nearby that rather belong `offset` away than where they are."""
    reach = ratios.shape[1] // 2
    low, high = max(0, first - LOOK), min(len(ratios), last + LOOK + 1)
    gain = ratios[low:high, column] - np.maximum(ratios[low:high, reach], PRIOR_NONE)
    middle = (first + last) // 2 - low
    after = np.cumsum(gain[middle:])
    before = np.cumsum(gain[middle::-1])
    ends = low + middle - int(before.argmax()), low + middle + int(after.argmax())
    return Run(*ends, column - reach, score, support)


def _ending(added: Floats, ratios: Floats, column: int, head: bool) -> Run | None:
    """The best stretch of a column that begins at its first row, or that ends at its last."""
    values = added if head else added[::-1]
    sums = np.cumsum(values, dtype=np.float64)
    far = int(sums.argmax()) if len(sums) else 0
    if not len(sums) or sums[far] <= 0:
        return None
    ends = (0, far) if head else (len(values) - 1 - far, len(values) - 1)
    run = refined(ratios, *ends, column, float(sums[far]), int((values[: far + 1] > 0).sum()))
    return replace(run, first=0) if head else replace(run, last=len(values) - 1)


def joined(shards: Iterable[ShardRuns]) -> list[Run]:
    """All runs of a corpus, those that go on in the next shard as one; of runs that overlap the strongest stays."""
    found: list[Run] = []
    open_runs: dict[int, Run] = {}
    for shard in shards:
        found += shard.inside
        going: dict[int, Run] = {}
        for head in shard.heads:
            before = open_runs.get(head.offset)
            run = _continued(before, head) if before else head
            if head.last == shard.start + shard.size - 1:
                going[head.offset] = run
            elif before:
                found.append(run)
        for tail in shard.tails:
            if tail.offset not in going:
                going[tail.offset] = tail
        found += [run for offset, run in open_runs.items() if not any(h.offset == offset for h in shard.heads)]
        open_runs = going
    found += open_runs.values()
    return strongest(run for run in found if run.score >= NOTABLE and run.support >= FEWEST)


def _continued(before: Run, head: Run) -> Run:
    """A run that ends with a shard and one that begins with the next, as one."""
    return Run(before.first, head.last, head.offset, before.score + head.score, before.support + head.support)


def strongest(runs: Iterable[Run]) -> list[Run]:
    """Runs that share no row, the strongest first kept; in corpus order."""
    kept: list[Run] = []
    for run in sorted(runs, key=lambda run: (-run.score, -run.rows, run.first)):
        if all(run.last < other.first or run.first > other.last for other in kept):
            kept.append(run)
    return sorted(kept, key=lambda run: run.first)


def significant(runs: Iterable[Run], chance: Chance, rows: int, p_value: float = P_VALUE) -> list[Run]:
    """The runs that a corpus of so many rows without shifts would not have, with their p-values."""
    judged = (replace(run, p_value=chance.p_value(run.score, rows)) for run in runs)
    return [run for run in judged if run.p_value <= p_value]

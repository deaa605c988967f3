"""Shifted stretches: rows whose captions belong to the medium k places later or earlier.

For each offset k, a CUSUM adds up along the corpus the evidence "belongs to the medium k away" minus "belongs here, to
none, or to any neighbor". A stretch is reported if its CUSUM rises higher than chance explains; chance is measured on
permutations of the same corpus. Each shard is examined with `REACH` samples of both neighbors, and stretches that
touch its ends are joined with those of the next shard, so memory does not depend on the number of rows.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided, sliding_window_view

from auditor.faults.pairing_evidence import PairingEvidence, ReferencePairs, SampleVectors, compute_pair_statistic
from auditor.vectors import Floats

REACH = 50  # the largest offset searched
CHUNK = 128  # samples compared with their neighbors at once
ROW_MOST = 10.0  # nats that one row may add to the CUSUM
PRIOR_NONE = -3.0  # nats: a caption at the edge of a stretch belongs to no medium
FEWEST = 4  # supporting rows of a stretch: among permuted captions, two or three in a row share an offset by chance
NOTABLE = 8.0  # nats: weaker stretches are ignored unless they touch an end of the shard
P_VALUE = 1e-3
LOOK = 8  # rows beyond the ends of a stretch in which its true ends are searched
PERMUTATIONS = 8
STEEPEST = 1.4  # nats: if every peak is one row at its bound, the tail looks steeper than it is


@dataclass(frozen=True, slots=True)
class ShiftedStretch:
    """The captions of samples first..last, possibly across shards, belong `offset` samples later."""

    first: int  # position in the corpus
    last: int
    offset: int
    score: float  # nats
    support: int  # rows with evidence for it
    p_value: float = 1.0

    @property
    def rows(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class ShardStretches:
    """The stretches of one shard; those in `heads` and `tails` touch its first and last sample."""

    start: int  # position of the shard's first sample in the corpus
    size: int
    inside: tuple[ShiftedStretch, ...]
    heads: tuple[ShiftedStretch, ...]
    tails: tuple[ShiftedStretch, ...]

    def shift_by(self, start: int) -> "ShardStretches":
        """The same stretches by position in a corpus in which the shard begins at `start`."""

        def move(stretches: tuple[ShiftedStretch, ...]) -> tuple[ShiftedStretch, ...]:
            return tuple(replace(part, first=part.first + start, last=part.last + start) for part in stretches)

        return ShardStretches(start, self.size, move(self.inside), move(self.heads), move(self.tails))


@dataclass(frozen=True, slots=True)
class ChanceDistribution:
    """CUSUM peaks of permuted corpora: `rate` peaks per row above `floor`, with an exponential tail of `slope`."""

    floor: float
    rate: float
    slope: float

    def p_value(self, score: float, rows: int) -> float:
        """Probability that a corpus of `rows` rows without any shift has a stretch of this score."""
        expected = rows * self.rate * np.exp(-self.slope * max(0.0, score - self.floor))
        return float(-np.expm1(-expected))


def compute_band(
    samples: SampleVectors, reference: ReferencePairs, evidence: PairingEvidence, reach: int = REACH
) -> Floats:
    """Evidence (N, 2 reach + 1) that a sample's captions belong to the medium `column - reach` away; 0 if missing."""
    out = np.empty((len(samples), 2 * reach + 1), np.float32)
    visual_level, text_level = samples.compute_levels(reference)
    level = sliding_window_view(np.pad(visual_level, reach), 2 * reach + 1)  # (N, 2 reach + 1) of the media around
    has_medium = sliding_window_view(np.pad(samples.present, reach), 2 * reach + 1)
    for start in range(0, len(samples), CHUNK):
        rows = slice(start, min(start + CHUNK, len(samples)))
        score = compute_pair_statistic(_compare_neighbors(samples, rows, reach), level[rows], text_level[rows, None])
        out[rows] = np.where(has_medium[rows] & samples.present[rows, None], evidence.log_ratio(score), 0)
    return out


def _compare_neighbors(samples: SampleVectors, rows: slice, reach: int) -> Floats:
    """Cosines (B, 2 reach + 1) of the captions of consecutive samples with the media around each; 0 past the ends."""
    count, low, high = rows.stop - rows.start, rows.start - reach, rows.stop + reach
    inside = slice(max(0, low), min(len(samples), high))
    cosine = samples.text[rows] @ samples.visual[inside].T
    if cosine.shape[1] < high - low:
        cosine = np.pad(cosine, ((0, 0), (inside.start - low, high - inside.stop)))
    down, right = cosine.strides
    return as_strided(cosine, (count, 2 * reach + 1), (down + right, right), writeable=False)  # along the diagonal


def compute_increments(ratios: Floats, own_ratios: Floats | None = None) -> Floats:
    """What each row adds to the CUSUM of each offset: its evidence minus that of here, of none and of all neighbors.

    `own_ratios` is the evidence that captions belong where they are; by default it is the middle column.
    """
    reach = ratios.shape[1] // 2
    likelihood = np.exp(ratios)
    neighbor_likelihood = (likelihood.sum(axis=1, keepdims=True) - likelihood) / max(1, 2 * reach)
    own_likelihood = np.maximum(np.exp(ratios[:, reach] if own_ratios is None else own_ratios), 1)[:, None]
    added = np.clip(ratios - np.log(own_likelihood + neighbor_likelihood), -ROW_MOST, ROW_MOST)
    if own_ratios is None:
        added[:, reach] = -ROW_MOST
    return np.asarray(np.where(ratios == 0, 0, added), np.float32)


def compute_cusum(added: Floats) -> npt.NDArray[np.float64]:
    """The CUSUM of each column: its running sum minus the lowest running sum so far."""
    total = np.cumsum(added, axis=0, dtype=np.float64)
    lowest = np.minimum(np.minimum.accumulate(total, axis=0), 0)
    return np.asarray(total - lowest, np.float64)


def find_cusum_peaks(added: Floats, floor: float) -> Floats:
    """The peaks above `floor` of every excursion of the CUSUM from zero."""
    cusum = compute_cusum(added)
    peaks = []
    for column in np.flatnonzero(cusum.max(axis=0, initial=0) > floor):
        stretch = np.cumsum(cusum[:, column] <= 0)
        top = np.zeros(stretch[-1] + 1)
        np.maximum.at(top, stretch, cusum[:, column])
        peaks.append(top[top > floor])
    return np.concatenate(peaks).astype(np.float32) if peaks else np.zeros(0, np.float32)


def fit_chance(permuted: Sequence[Floats]) -> ChanceDistribution:
    """Fit the tail of the CUSUM peaks of permuted corpora, from their increments."""
    rows = sum(len(added) for added in permuted)
    peaks = np.sort(np.concatenate([find_cusum_peaks(added, 0.0) for added in permuted]))
    if len(peaks) < 20:
        return ChanceDistribution(0.0, max(len(peaks), 1) / max(rows, 1), 1.0)
    tail = peaks[-max(20, min(len(peaks) // 20, 500)) :]
    slope = 1 / max(float((tail - tail[0]).mean()), 0.05)
    return ChanceDistribution(float(tail[0]), len(tail) / rows, min(slope, STEEPEST))


def estimate_chance(
    samples: SampleVectors,
    reference: ReferencePairs,
    evidence: PairingEvidence,
    seed: int = 0,
    times: int = PERMUTATIONS,
) -> ChanceDistribution:
    """Estimate chance peaks from permutations of samples of the corpus, each with its own captions."""
    samples = samples.with_levels(reference)  # once for all permutations
    generator = np.random.default_rng(seed)
    orders = (generator.permutation(len(samples)) for _ in range(times))
    return fit_chance([compute_increments(compute_band(samples.take(order), reference, evidence)) for order in orders])


def find_shard_stretches(ratios: Floats) -> ShardStretches:
    """Find the stretches of one shard from its rows of the band, by position in the shard."""
    added = np.ascontiguousarray(compute_increments(ratios).T)  # columns are processed one at a time
    inside = [
        stretch for column, values in enumerate(added) for stretch in _find_column_stretches(values, ratios, column)
    ]
    heads = [_find_end_stretch(values, ratios, column, head=True) for column, values in enumerate(added)]
    tails = [_find_end_stretch(values, ratios, column, head=False) for column, values in enumerate(added)]
    parts = [tuple(stretch for stretch in part if stretch is not None) for part in (inside, heads, tails)]
    return ShardStretches(0, len(ratios), *parts)


def _find_column_stretches(added: Floats, ratios: Floats, column: int) -> Iterator[ShiftedStretch]:
    """Yield the best stretch of a column, then the best of the remaining rows, while they are notable."""
    remaining = added.copy()
    while len(remaining):
        cusum = compute_cusum(remaining[:, None])[:, 0]
        last = int(cusum.argmax())
        if cusum[last] < NOTABLE:
            return
        zeros = np.flatnonzero(cusum[:last] <= 0)
        first = int(zeros[-1]) + 1 if len(zeros) else 0
        support = int((remaining[first : last + 1] > 0).sum())
        yield refine_ends(ratios, first, last, column, float(cusum[last]), support)
        remaining[first : last + 1] = -ROW_MOST


def refine_ends(ratios: Floats, first: int, last: int, column: int, score: float, support: int) -> ShiftedStretch:
    """Move the ends to the likeliest rows nearby: those that belong `offset` away rather than where they are."""
    reach = ratios.shape[1] // 2
    low, high = max(0, first - LOOK), min(len(ratios), last + LOOK + 1)
    gain = ratios[low:high, column] - np.maximum(ratios[low:high, reach], PRIOR_NONE)
    middle = (first + last) // 2 - low
    gain_after = np.cumsum(gain[middle:])
    gain_before = np.cumsum(gain[middle::-1])
    ends = low + middle - int(gain_before.argmax()), low + middle + int(gain_after.argmax())
    return ShiftedStretch(*ends, column - reach, score, support)


def _find_end_stretch(added: Floats, ratios: Floats, column: int, head: bool) -> ShiftedStretch | None:
    """Find the best stretch of a column that begins at its first row (`head`) or ends at its last."""
    values = added if head else added[::-1]
    sums = np.cumsum(values, dtype=np.float64)
    end = int(sums.argmax()) if len(sums) else 0
    if not len(sums) or sums[end] <= 0:
        return None
    ends = (0, end) if head else (len(values) - 1 - end, len(values) - 1)
    stretch = refine_ends(ratios, *ends, column, float(sums[end]), int((values[: end + 1] > 0).sum()))
    return replace(stretch, first=0) if head else replace(stretch, last=len(values) - 1)


def join_stretches(shards: Iterable[ShardStretches]) -> list[ShiftedStretch]:
    """Join stretches that continue in the next shard; of overlapping stretches the strongest stays."""
    stretches: list[ShiftedStretch] = []
    open_stretches: dict[int, ShiftedStretch] = {}
    for shard in shards:
        stretches += shard.inside
        still_open: dict[int, ShiftedStretch] = {}
        for head in shard.heads:
            previous = open_stretches.get(head.offset)
            stretch = _join_pair(previous, head) if previous else head
            if head.last == shard.start + shard.size - 1:
                still_open[head.offset] = stretch
            elif previous:
                stretches.append(stretch)
        for tail in shard.tails:
            if tail.offset not in still_open:
                still_open[tail.offset] = tail
        stretches += [
            stretch for offset, stretch in open_stretches.items() if not any(h.offset == offset for h in shard.heads)
        ]
        open_stretches = still_open
    stretches += open_stretches.values()
    return select_strongest(stretch for stretch in stretches if stretch.score >= NOTABLE and stretch.support >= FEWEST)


def _join_pair(previous: ShiftedStretch, head: ShiftedStretch) -> ShiftedStretch:
    """Join a stretch that ends with a shard to one that begins with the next."""
    return ShiftedStretch(
        previous.first, head.last, head.offset, previous.score + head.score, previous.support + head.support
    )


def select_strongest(stretches: Iterable[ShiftedStretch]) -> list[ShiftedStretch]:
    """Stretches that share no row, in corpus order; of overlapping ones the strongest is selected."""
    strongest: list[ShiftedStretch] = []
    for stretch in sorted(stretches, key=lambda stretch: (-stretch.score, -stretch.rows, stretch.first)):
        if all(stretch.last < other.first or stretch.first > other.last for other in strongest):
            strongest.append(stretch)
    return sorted(strongest, key=lambda stretch: stretch.first)


def select_significant(
    stretches: Iterable[ShiftedStretch], chance: ChanceDistribution, rows: int, p_value: float = P_VALUE
) -> list[ShiftedStretch]:
    """Stretches that chance does not explain in a corpus of `rows` rows, with their p-values."""
    tested = (replace(stretch, p_value=chance.p_value(stretch.score, rows)) for stretch in stretches)
    return [stretch for stretch in tested if stretch.p_value <= p_value]

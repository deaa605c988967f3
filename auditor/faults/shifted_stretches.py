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


@dataclass(frozen=True, slots=True)
class FaultCalibration:
    """What is fitted to a corpus before its patterns are searched; picklable."""

    reference: ReferencePairs
    evidence: PairingEvidence
    chance: ChanceDistribution


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


def find_cusum_peaks(added: Floats) -> Floats:
    cusum = compute_cusum(added).T.ravel()  # column by column
    is_start = np.append(True, cusum[:-1] <= 0)[: cusum.size]
    is_start[:: max(len(added), 1)] = True  # an excursion ends with its column
    starts = np.flatnonzero(is_start)
    peaks = np.maximum.reduceat(cusum, starts) if cusum.size else cusum
    return peaks[peaks > 0].astype(np.float32)


def find_highest_stretch(added: Floats) -> tuple[int, int, float]:
    """The first row, the last row and the height of the highest excursion of one CUSUM from zero."""
    cusum = compute_cusum(added)
    last = int(cusum.argmax())
    zeros = np.flatnonzero(cusum[:last] <= 0)
    return int(zeros[-1]) + 1 if len(zeros) else 0, last, float(cusum[last])


def fit_chance(permuted: Sequence[Floats]) -> ChanceDistribution:
    """Fit the tail of the CUSUM peaks of permuted corpora, from their increments."""
    rows = sum(len(added) for added in permuted)
    peaks = np.sort(np.concatenate([find_cusum_peaks(added) for added in permuted]))
    if len(peaks) < 20:
        return ChanceDistribution(0.0, max(len(peaks), 1) / max(rows, 1), 1.0)
    tail = peaks[-max(20, min(len(peaks) // 20, 500)) :]
    slope = 1 / max(float((tail - tail[0]).mean()), 0.05)
    return ChanceDistribution(float(tail[0]), len(tail) / rows, min(slope, STEEPEST))


def estimate_chance(
    samples: SampleVectors, reference: ReferencePairs, evidence: PairingEvidence, times: int = PERMUTATIONS
) -> ChanceDistribution:
    """Estimate chance peaks from permutations of samples of the corpus, each with its own captions."""
    samples = samples.with_levels(reference)  # once for all permutations
    generator = np.random.default_rng(0)
    orders = (generator.permutation(len(samples)) for _ in range(times))
    return fit_chance([compute_increments(compute_band(samples.take(order), reference, evidence)) for order in orders])


def find_shard_stretches(ratios: Floats) -> ShardStretches:
    """Find the stretches of one shard from its rows of the band, by position in the shard."""
    added = np.ascontiguousarray(compute_increments(ratios).T)  # columns are processed one at a time
    columns = list(enumerate(added))
    inside = [stretch for column, values in columns for stretch in _find_column_stretches(values, ratios, column)]
    ends = ((_find_end_stretch(values, ratios, i, head=head) for i, values in columns) for head in (True, False))
    heads, tails = (tuple(filter(None, stretches)) for stretches in ends)
    return ShardStretches(0, len(ratios), tuple(inside), heads, tails)


def _find_column_stretches(added: Floats, ratios: Floats, column: int) -> Iterator[ShiftedStretch]:
    """Yield the best stretch of a column, then the best of the remaining rows, while they are notable."""
    remaining = added.copy()
    while len(remaining):
        first, last, score = find_highest_stretch(remaining)
        if score < NOTABLE:
            return
        support = int((remaining[first : last + 1] > 0).sum())
        yield refine_ends(ratios, first, last, column, score, support)
        remaining[first : last + 1] = -ROW_MOST


def refine_ends(ratios: Floats, first: int, last: int, column: int, score: float, support: int) -> ShiftedStretch:
    """Move the ends to the likeliest rows nearby: those that belong `offset` away rather than where they are."""
    reach = ratios.shape[1] // 2
    low, high = max(0, first - LOOK), min(len(ratios), last + LOOK + 1)
    gain = ratios[low:high, column] - np.maximum(ratios[low:high, reach], PRIOR_NONE)
    middle = (first + last) // 2 - low
    first = low + middle - int(np.cumsum(gain[middle::-1]).argmax())
    last = low + middle + int(np.cumsum(gain[middle:]).argmax())
    return ShiftedStretch(first, last, column - reach, score, support)


def _find_end_stretch(added: Floats, ratios: Floats, column: int, head: bool) -> ShiftedStretch | None:
    """Find the best stretch of a column that begins at its first row (`head`) or ends at its last."""
    values = added if head else added[::-1]
    sums = np.cumsum(values, dtype=np.float64)
    if sums.max(initial=0) <= 0:
        return None
    end = int(sums.argmax())
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
            stretch = head
            if previous:
                score, support = previous.score + head.score, previous.support + head.support
                stretch = replace(head, first=previous.first, score=score, support=support)
            if head.last == shard.start + shard.size - 1:
                still_open[head.offset] = stretch
            elif previous:
                stretches.append(stretch)
        head_offsets = {head.offset for head in shard.heads}
        stretches += [stretch for offset, stretch in open_stretches.items() if offset not in head_offsets]
        open_stretches = {tail.offset: tail for tail in shard.tails} | still_open
    stretches += open_stretches.values()
    return select_strongest(stretch for stretch in stretches if stretch.score >= NOTABLE and stretch.support >= FEWEST)


def select_strongest(stretches: Iterable[ShiftedStretch]) -> list[ShiftedStretch]:
    """Stretches that share no row, in corpus order; of overlapping ones the strongest is selected."""
    strongest: list[ShiftedStretch] = []
    for stretch in sorted(stretches, key=lambda stretch: (-stretch.score, -stretch.rows, stretch.first)):
        if all(stretch.last < other.first or stretch.first > other.last for other in strongest):
            strongest.append(stretch)
    return sorted(strongest, key=lambda stretch: stretch.first)


def select_significant(
    stretches: Iterable[ShiftedStretch], chance: ChanceDistribution, rows: int
) -> list[ShiftedStretch]:
    """Stretches that chance does not explain in a corpus of `rows` rows, with their p-values."""
    tested = (replace(stretch, p_value=chance.p_value(stretch.score, rows)) for stretch in stretches)
    return [stretch for stretch in tested if stretch.p_value <= P_VALUE]

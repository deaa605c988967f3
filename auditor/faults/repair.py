"""Propose a new medium for captions that lost theirs, each with the probability that it is right.

    propose(AuditDatabase("audit/"), confidence=0.9)

A shifted stretch is undone by its offset; reversed blocks and exchanged captions by their pattern; permuted captions
and single lost ones by the best assignment within their shard (auditor/faults/caption_matching.py). Repairs with a
probability below `confidence` are omitted.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from auditor.audit_folder.folder import Folder
from auditor.audit_folder.side_files import format_mark_key, read_repair_marks
from auditor.faults.caption_matching import (
    FEWEST_SOUND,
    LARGEST,
    Assignment,
    assign_media,
    calibrate_confidence,
    fit_sharpness,
)
from auditor.faults.corpus_window import FaultsError, ShardWindow, read_window
from auditor.faults.find_faults import CorpusPatterns, compute_shard_band, find_patterns
from auditor.faults.mixed_blocks import CaptionBlock, find_unexplained_samples
from auditor.faults.pairing_evidence import ReferencePairs, SampleVectors, score_all_pairs, score_own_pairs
from auditor.faults.shifted_stretches import REACH, FaultCalibration, ShiftedStretch
from auditor.query.database import AuditDatabase
from auditor.vectors import Floats, Ints

CONFIDENCE = 0.9
ACCEPTABLE = 0.5  # people see repairs from this confidence up and may accept them
INSIDE, EDGE = 0.98, 0.8  # prior probability that a sample inside or at the edge of a stretch follows it
CLEARLY_WRONG = -2.0  # nats: reference pairs with less evidence are not sound
MISSING = 0.9  # the larger share of captions without a medium with which assignments are calibrated


@dataclass(frozen=True, slots=True)
class Repair:
    """A caption, its present place, and the medium or span it belongs to."""

    uid: str  # of the caption's row
    shard: str
    key: str
    caption_index: int
    new_shard: str
    new_key: str
    new_uid: str  # of the first row of that medium
    pattern: str  # shift, reversed, exchanged, permuted, lost, time_shift
    confidence: float
    start: float | None = None  # seconds, of a timed caption whose span is shifted
    end: float | None = None
    new_start: float | None = None
    new_end: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("uid", "shard", "key")]
    + [("caption_index", pa.int32())]
    + [(name, pa.string()) for name in ("new_shard", "new_key", "new_uid", "pattern")]
    + [(name, pa.float64()) for name in ("confidence", "start", "end", "new_start", "new_end")]
)


@dataclass(frozen=True, slots=True)
class CaptionMove:
    """The captions of one sample belong to another; both are positions in the corpus."""

    sample: int
    target: int
    pattern: str
    confidence: float


def build_repair_table(repairs: Sequence[Repair]) -> pa.Table:
    return pa.Table.from_pylist([repair.to_dict() for repair in repairs], schema=SCHEMA)


def propose_repairs(
    database: AuditDatabase, confidence: float = CONFIDENCE, *, heed_marks: bool = True
) -> list[Repair]:
    """Repairs that are right with at least this probability, in corpus order.

    Repairs that a person accepted on the dashboard are included; those that were refused are not.
    """
    if not 0 < confidence < 1:
        raise FaultsError(f"--confidence must be a probability between 0 and 1, not {confidence:g}")
    patterns = find_patterns(database)
    marks = read_repair_marks(database.files.folder) if heed_marks else {}
    lowest = min(confidence, ACCEPTABLE) if "accepted" in marks.values() else confidence
    folder, shards = Folder(database.path), range(len(patterns.by_shard))
    repairs = [repair for n in shards for repair in propose_shard_repairs(folder, patterns, lowest, n)]
    verdicts = [marks.get(format_mark_key(repair.uid, repair.caption_index)) for repair in repairs]
    return [
        repair
        for repair, verdict in zip(repairs, verdicts, strict=True)
        if verdict == "accepted" or (verdict is None and repair.confidence >= confidence)
    ]


def propose_shard_repairs(folder: Folder, patterns: CorpusPatterns, confidence: float, number: int) -> list[Repair]:
    window = read_window(folder, patterns.shards[number])
    start = patterns.starts[number]
    samples = window.samples.with_levels(patterns.calibration.reference)
    ratios = compute_shard_band(folder, patterns.shards, number, patterns.calibration, samples)
    moves = {move.sample: move for move in _undo_shifts(patterns.stretches, ratios, start)}
    for block in patterns.by_shard[number].blocks:
        moves.update((move.sample, move) for move in _undo_block(block, window.samples, patterns.calibration, start))
    explained = np.zeros(len(window), bool)
    explained[[sample - start for sample in moves]] = True
    lost_rows = np.flatnonzero(find_unexplained_samples(ratios, window.samples, explained))
    sound = select_sound_pairs(patterns.calibration, patterns.broken)
    lost_moves = _assign_lost(window.samples, lost_rows, sound, patterns.calibration.reference, start)
    moves.update((move.sample, move) for move in lost_moves)
    sure = _resolve_conflicts([move for move in moves.values() if move.confidence >= confidence])
    return [repair for move in sure for repair in _build_repairs(folder, patterns, window, start, move)]


def _resolve_conflicts(moves: Sequence[CaptionMove]) -> list[CaptionMove]:
    """If two samples' captions move to the same medium, only the more probable move stays."""
    by_confidence = sorted(moves, key=lambda move: move.confidence, reverse=True)
    best = {move.target: move for move in reversed(by_confidence)}
    return sorted(best.values(), key=lambda move: move.sample)


def _undo_shifts(stretches: Sequence[ShiftedStretch], ratios: Floats, start: int) -> Iterator[CaptionMove]:
    for stretch in stretches:
        for sample in range(max(stretch.first, start), min(stretch.last, start + len(ratios) - 1) + 1):
            row = ratios[sample - start]
            prior = INSIDE if stretch.first < sample < stretch.last else EDGE
            gain = float(row[REACH + stretch.offset] - max(row[REACH], 0.0))
            if row[REACH + stretch.offset] != 0:  # 0 means that there is no such medium
                yield CaptionMove(sample, sample + stretch.offset, "shift", compute_posterior(prior, gain))


def compute_posterior(prior: float, evidence: float) -> float:
    """The probability after adding `evidence` nats to the log odds."""
    return float(1 / (1 + (1 - prior) / prior * np.exp(-evidence)))


def _undo_block(
    block: CaptionBlock, samples: SampleVectors, calibration: FaultCalibration, start: int
) -> Iterator[CaptionMove]:
    """The moves of a block that determines where each caption belongs."""
    for sample, target in block.moves.items():
        if not (samples.present[sample] and samples.present[target]):
            continue
        confidence = 1 - block.p_value
        if block.pattern != "exchanged":
            fit = score_all_pairs(samples.visual[[target, sample]], samples.text[[sample]], calibration.reference)
            target_evidence, own_evidence = calibration.evidence.log_ratio(fit[0])
            prior = INSIDE if block.first < sample < block.last else EDGE
            confidence = compute_posterior(prior, float(target_evidence - max(own_evidence, 0.0)))
        yield CaptionMove(start + sample, start + target, block.pattern, confidence)


def _assign_lost(
    samples: SampleVectors, lost_rows: Ints, sound: SampleVectors, reference: ReferencePairs, start: int
) -> Iterator[CaptionMove]:
    if len(lost_rows) < 2 or len(sound) < FEWEST_SOUND:
        return
    lost_rows = lost_rows[:LARGEST]
    assignment, confidence = assign_with_confidence(samples.take(lost_rows), sound, reference)
    for i, (medium, sure) in enumerate(zip(assignment.medium, confidence, strict=True)):
        if medium != i:
            yield CaptionMove(start + int(lost_rows[i]), start + int(lost_rows[medium]), "permuted", float(sure))


def select_sound_pairs(calibration: FaultCalibration, broken: Collection[str] = ()) -> SampleVectors:
    """The reference pairs that are not clearly wrong, from shards that are not broken if there are enough."""
    reference = calibration.reference
    pairs = SampleVectors(reference.visual, reference.text, np.ones(len(reference.visual), bool))
    sound = calibration.evidence.log_ratio(score_own_pairs(pairs, reference)) > CLEARLY_WRONG
    whole = sound & np.array([shard not in broken for shard in reference.shard] or [True] * len(pairs))
    return pairs.take(whole if whole.sum() >= FEWEST_SOUND else sound)


def assign_with_confidence(
    block: SampleVectors, sound: SampleVectors, reference: ReferencePairs
) -> tuple[Assignment, Floats]:
    """The assignment within a block and the probability of each match, calibrated on similarly permuted sound pairs."""
    size = min(LARGEST, 500, len(sound))
    sharpness = fit_sharpness(score_all_pairs(sound.visual[:size], sound.text[:size], reference))
    assignment = assign_media(score_all_pairs(block.visual, block.text, reference), sharpness)
    complete, empty = (calibrate_confidence(sound, reference, block, x, sharpness, 0) for x in (0.0, MISSING))
    share = float(assignment.share.mean())
    missing = np.clip((complete.mean - share) / max(complete.mean - empty.mean, 1e-6), 0, 1) * MISSING
    learned = calibrate_confidence(sound, reference, block, float(missing), sharpness, 1)
    return assignment, learned.probability(assignment.share)


def _build_repairs(
    folder: Folder, patterns: CorpusPatterns, window: ShardWindow, start: int, move: CaptionMove
) -> Iterator[Repair]:
    number, place = patterns.locate(move.target)
    target = window if patterns.shards[number] == window.shard else read_window(folder, patterns.shards[number])
    new_uid = target.uid(int(np.searchsorted(target.sample, place)))
    new_place = target.shard, target.key(place), new_uid, move.pattern, move.confidence
    sample = move.sample - start
    for row in np.flatnonzero(window.sample == sample).tolist():
        caption_index = int(window.caption_index[row])
        yield Repair(window.uid(row), window.shard, window.key(sample), caption_index, *new_place)

"""A new pairing for captions that lost their medium, each with the probability that it is right.

    propose(AuditDatabase("audit/"), confidence=0.9)

A run is undone by its offset, a reversed stretch and exchanged captions by their pattern; captions that are mixed up,
or lost one by one, by the best assignment among those of their shard (auditor/faults/caption_matching.py). Whatever is less
likely right than `confidence` is left out.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from auditor.audit_folder.folder import Folder
from auditor.audit_folder.side_files import Verdict, mark_name, read_marks
from auditor.faults.caption_matching import FEWEST_SOUND, LARGEST, Matching, fit_sharpness, learn_confidence, match
from auditor.faults.corpus_window import FaultsError, Passage, read_passage
from auditor.faults.find_faults import Calibration, Patterns, find_patterns, shard_band
from auditor.faults.mixed_blocks import Block, lost_samples
from auditor.faults.pairing_evidence import Reference, Scene, own_scores, scores
from auditor.faults.shifted_stretches import REACH, Run
from auditor.query.database import AuditDatabase
from auditor.vectors import Floats, Ints
from auditor.workers.process_pool import SERIAL, Engine

CONFIDENCE = 0.9
ACCEPTABLE = 0.5  # what people are shown, and may accept
INSIDE, EDGE = 0.98, 0.8  # how likely a sample of a run follows it, before its own evidence is heard
CLEARLY_WRONG = -2.0  # nats: reference pairs below are not taken for sound
MISSING = 0.9  # the larger share of captions without a medium that matching is tried with


@dataclass(frozen=True, slots=True)
class Repair:
    """A caption, where it stands, and the medium or the span it belongs to."""

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
class Move:
    """The captions of one sample of a shard belong to another sample, by position in the corpus."""

    sample: int
    to: int
    pattern: str
    confidence: float


def to_table(repairs: Sequence[Repair]) -> pa.Table:
    return pa.Table.from_pylist([repair.to_dict() for repair in repairs], schema=SCHEMA)


def propose(
    database: AuditDatabase, confidence: float = CONFIDENCE, engine: Engine = SERIAL, *, heed_marks: bool = True
) -> list[Repair]:
    """The repairs that are expected to be right with at least this probability, in corpus order.

    Those that a person accepted on the dashboard are among them, those that were refused are not.
    """
    if not 0 < confidence < 1:
        raise FaultsError(f"--confidence is a probability between 0 and 1, not {confidence:g}")
    patterns = find_patterns(database, engine)
    marks = read_marks(database.files.folder) if heed_marks else {}
    lowest = min(confidence, ACCEPTABLE) if "accepted" in marks.values() else confidence
    work = partial(shard_repairs, Folder(database.path), patterns, lowest)
    found = [repair for some in engine.each(work, range(len(patterns.shards))) for repair in some]
    return [repair for repair in found if _wanted(repair, marks, confidence)]


def _wanted(repair: Repair, marks: Mapping[str, Verdict], confidence: float) -> bool:
    """What a person said counts; of the rest the sure ones are."""
    verdict = marks.get(mark_name(repair.uid, repair.caption_index))
    return verdict == "accepted" or (verdict is None and repair.confidence >= confidence)


def shard_repairs(folder: Folder, patterns: Patterns, confidence: float, number: int) -> list[Repair]:
    """The repairs of the captions of one shard."""
    passage = read_passage(folder, patterns.shards[number])
    start = patterns.starts[number]
    scene = passage.scene.levelled(patterns.calibration.reference)
    ratios = shard_band(folder, patterns.shards, number, patterns.calibration, scene)
    moves = {move.sample: move for move in _run_moves(patterns.runs, ratios, start)}
    for block in patterns.blocks.get(passage.shard, ()):
        moves.update((move.sample, move) for move in _block_moves(block, passage.scene, patterns.calibration, start))
    explained = np.zeros(len(passage), bool)
    explained[[sample - start for sample in moves]] = True
    lost = np.flatnonzero(lost_samples(ratios, passage.scene, explained))
    sound = sound_pairs(patterns.calibration, patterns.blocks.keys())
    moves.update(
        (move.sample, move) for move in _matched_moves(passage.scene, lost, sound, patterns.calibration, start)
    )
    sure = _one_each([move for move in moves.values() if move.confidence >= confidence])
    return [repair for move in sure for repair in _repairs(folder, patterns, passage, start, move)]


def _one_each(moves: Sequence[Move]) -> list[Move]:
    """No medium gets the captions of two samples: the surer one stays."""
    best: dict[int, Move] = {}
    for move in moves:
        if move.to not in best or best[move.to].confidence < move.confidence:
            best[move.to] = move
    return sorted(best.values(), key=lambda move: move.sample)


def _run_moves(runs: Sequence[Run], ratios: Floats, start: int) -> Iterator[Move]:
    for run in runs:
        for sample in range(max(run.first, start), min(run.last, start + len(ratios) - 1) + 1):
            row = ratios[sample - start]
            prior = INSIDE if run.first < sample < run.last else EDGE
            gain = float(row[REACH + run.offset] - max(row[REACH], 0.0))
            if row[REACH + run.offset] != 0:  # else there is no such medium
                yield Move(sample, sample + run.offset, "shift", posterior(prior, gain))


def posterior(prior: float, evidence: float) -> float:
    """Probability after `evidence` nats."""
    return float(1 / (1 + (1 - prior) / prior * np.exp(-evidence)))


def _block_moves(block: Block, scene: Scene, calibration: Calibration, start: int) -> Iterator[Move]:
    """Of blocks that say where each caption belongs."""
    for sample, to in block.moves.items():
        if not (scene.present[sample] and scene.present[to]):
            continue
        fit = scores(scene.visual[[to, sample]], scene.text[[sample]], calibration.reference)
        there, here = calibration.evidence.of(fit[0])
        if block.pattern == "exchanged":
            confidence = 1 - block.p_value
        else:
            confidence = posterior(INSIDE if block.first < sample < block.last else EDGE, float(there - max(here, 0.0)))
        yield Move(start + sample, start + to, block.pattern, confidence)


def _matched_moves(scene: Scene, lost: Ints, sound: Scene, calibration: Calibration, start: int) -> Iterator[Move]:
    """The lost captions of a shard matched with the media that lost theirs."""
    if len(lost) < 2 or len(sound) < FEWEST_SOUND:
        return
    lost = lost[:LARGEST]
    found, confidence = matched(scene.take(lost), sound, calibration.reference)
    for i, (medium, sure) in enumerate(zip(found.medium, confidence, strict=True)):
        if medium != i:
            yield Move(start + int(lost[i]), start + int(lost[medium]), "permuted", float(sure))


def sound_pairs(calibration: Calibration, broken: Collection[str] = ()) -> Scene:
    """The pairs of the reference without those that are clearly wrong; from shards that are not broken, if they can."""
    reference = calibration.reference
    scene = Scene(reference.visual, reference.text, np.ones(len(reference.visual), bool))
    sound = calibration.evidence.of(own_scores(scene, reference)) > CLEARLY_WRONG
    whole = sound & np.array([shard not in broken for shard in reference.shard] or [True] * len(scene))
    return scene.take(whole if whole.sum() >= FEWEST_SOUND else sound)


def matched(block: Scene, sound: Scene, reference: Reference) -> tuple[Matching, Floats]:
    """The assignment within a block, and the probability of each match; learned from sound pairs mixed up alike."""
    size = min(LARGEST, 500, len(sound))
    sharpness = fit_sharpness(scores(sound.visual[:size], sound.text[:size], reference))
    found = match(scores(block.visual, block.text, reference), sharpness)
    complete, empty = (learn_confidence(sound, reference, block, share, sharpness) for share in (0.0, MISSING))
    share = float(found.share.mean())
    missing = np.clip((complete.mean - share) / max(complete.mean - empty.mean, 1e-6), 0, 1) * MISSING
    learned = learn_confidence(sound, reference, block, float(missing), sharpness, seed=1)
    return found, learned.of(found.share)


def _repairs(folder: Folder, patterns: Patterns, passage: Passage, start: int, move: Move) -> Iterator[Repair]:
    """The rows of a sample's captions with the sample they belong to."""
    number = int(np.searchsorted(patterns.starts, move.to, "right")) - 1
    target = passage if patterns.shards[number] == passage.shard else read_passage(folder, patterns.shards[number])
    place = move.to - patterns.starts[number]
    first = int(np.searchsorted(target.sample, place))
    for row in np.flatnonzero(passage.sample == move.sample - start).tolist():
        yield Repair(
            passage.uid(row),
            passage.shard,
            passage.key(move.sample - start),
            int(passage.caption_index[row]),
            target.shard,
            target.key(place),
            target.uid(first),
            move.pattern,
            move.confidence,
        )

"""Find all faults of an audit: which patterns are searched, in which order, and the sentence that reports each.

    find_faults(AuditDatabase("audit/"))

Reads the stored embeddings shard by shard, each with samples of its neighbors, and no media. Runs serially or on the
processes of an `engine`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from auditor.audit_folder.embeddings import name_embeddings_file
from auditor.audit_folder.fault_records import Fault
from auditor.audit_folder.folder import Folder
from auditor.faults import repeated_captions as repeated
from auditor.faults.corpus_window import (
    FaultsError,
    ShardWindow,
    concatenate_samples,
    list_embedded_shards,
    read_first_samples,
    read_last_samples,
    read_reference_pairs,
    read_window,
)
from auditor.faults.group_faults import find_group_faults
from auditor.faults.misplaced_shards import FEWEST, CaptionOrigin, find_best_fits, find_origins, sample_captions
from auditor.faults.mixed_blocks import CaptionBlock, find_blocks, is_alphabetical
from auditor.faults.near_captions import (
    UNLIKE,
    CaptionTemplate,
    find_near_groups,
    find_shard_templates,
    merge_templates,
    read_media_vectors,
)
from auditor.faults.pairing_evidence import (
    PairingEvidence,
    ReferencePairs,
    SampleVectors,
    fit_evidence,
    score_own_pairs,
    score_random_pairs,
)
from auditor.faults.shifted_stretches import (
    REACH,
    ChanceDistribution,
    ShardStretches,
    ShiftedStretch,
    compute_band,
    estimate_chance,
    find_shard_stretches,
    join_stretches,
    select_significant,
)
from auditor.query.database import AuditDatabase
from auditor.vectors import Bools, Floats
from auditor.workers.process_pool import SERIAL, Engine

CALIBRATION = 8192  # samples from which the evidence and the chance distribution are fitted
WHOLLY_LOST = 0.5  # a shard with at least this share of lost samples is searched for in other shards


@dataclass(frozen=True, slots=True)
class FaultCalibration:
    """What is fitted to a corpus before its patterns are searched; picklable."""

    reference: ReferencePairs
    evidence: PairingEvidence
    chance: ChanceDistribution


@dataclass(frozen=True, slots=True)
class ShardPatterns:
    """The patterns of one shard: a few numbers for each stretch or block, and the requested media vectors."""

    shard: str
    samples: int
    media: int
    stretches: ShardStretches
    blocks: tuple[CaptionBlock, ...]
    keys: dict[int, str]  # of the first and last samples of stretches and blocks
    media_vectors: dict[str, Floats]  # by uid
    templates: tuple[CaptionTemplate, ...]
    complete: bool  # whether all its captions have a medium


@dataclass(frozen=True, slots=True)
class CorpusPatterns:
    """The shifted stretches and blocks of a corpus, by position; `auditor repair` undoes them."""

    calibration: FaultCalibration
    shards: tuple[str, ...]
    starts: tuple[int, ...]  # position of each shard's first sample
    samples: int
    media: tuple[int, ...]
    stretches: tuple[ShiftedStretch, ...]
    blocks: dict[str, tuple[CaptionBlock, ...]]
    keys: dict[int, str]  # by position
    media_vectors: dict[str, Floats]  # by uid
    templates: tuple[CaptionTemplate, ...]  # captions that represent similar captions of any shard
    incomplete: frozenset[str]  # shards with captions that have no medium

    def shard_of(self, position: int) -> str:
        return self.shards[int(np.searchsorted(self.starts, position, "right")) - 1]


def find_faults(database: AuditDatabase, group_column: str = "shard", engine: Engine = SERIAL) -> list[Fault]:
    """All faults: shifted stretches, blocks, shards (or values of another column) and repeated captions."""
    if database.counts["rows"] < FEWEST:
        raise FaultsError(f"{database.path} has fewer than {FEWEST} rows: too few to tell a pattern from chance")
    groups = repeated.find_repeated_captions(database) if "caption_hash" in database.columns else []
    patterns = find_patterns(database, engine, [uid for group in groups for uid in group.members])
    faults = [_describe_shift(stretch, patterns) for stretch in patterns.stretches]
    blocks = ((shard, block) for shard, shard_blocks in patterns.blocks.items() for block in shard_blocks)
    faults += [_describe_block(database, block, shard, patterns) for shard, block in blocks if block.pattern != "lost"]
    faults += _find_origin_faults(database, patterns, engine)
    faults += find_group_faults(database, group_column)
    return faults + _find_caption_faults(database, groups, patterns, engine)


def find_patterns(database: AuditDatabase, engine: Engine = SERIAL, uids: Sequence[str] = ()) -> CorpusPatterns:
    """Shifted stretches and blocks of all shards, and the media vectors of the rows `uids`."""
    folder = Folder(database.path)
    shards = list_embedded_shards(folder)
    calibration = calibrate_evidence(folder, shards, float(database.manifest["model"]["logit_scale"]))
    numbers = list(range(len(shards)))
    work = partial(find_shard_patterns, folder, tuple(shards), calibration, frozenset(uids))
    findings: list[ShardPatterns] = []
    templates = merge_templates(_split_templates(engine.each(work, numbers), findings))
    samples = [shard.samples for shard in findings]
    starts = np.cumsum([0, *samples[:-1]])
    moved_stretches = [shard.stretches.shift_by(int(start)) for shard, start in zip(findings, starts, strict=True)]
    stretches = select_significant(join_stretches(moved_stretches), calibration.chance, sum(samples))
    keys = {int(s) + place: key for shard, s in zip(findings, starts, strict=True) for place, key in shard.keys.items()}
    media_vectors = {uid: vector for shard in findings for uid, vector in shard.media_vectors.items()}
    return CorpusPatterns(
        calibration,
        tuple(shards),
        tuple(int(start) for start in starts),
        sum(samples),
        tuple(shard.media for shard in findings),
        tuple(stretches),
        {shard.shard: shard.blocks for shard in findings if shard.blocks},
        keys,
        media_vectors,
        tuple(templates),
        frozenset(shard.shard for shard in findings if not shard.complete),
    )


def _split_templates(
    shard_patterns: Iterable[ShardPatterns], findings: list[ShardPatterns]
) -> Iterator[tuple[CaptionTemplate, ...]]:
    """Yield the templates of each shard and append the rest to `findings`, so that few templates stay in memory."""
    for patterns in shard_patterns:
        findings.append(replace(patterns, templates=()))
        yield patterns.templates


def calibrate_evidence(folder: Folder, shards: Sequence[str], scale: float) -> FaultCalibration:
    """Fit the evidence and the chance distribution to some shards spread over the corpus."""
    reference = read_reference_pairs(folder, scale)
    chosen: list[SampleVectors] = []
    for number in np.random.default_rng(0).permutation(len(shards)):
        chosen.append(read_first_samples(folder, shards[int(number)], CALIBRATION - sum(map(len, chosen))))
        if sum(map(len, chosen)) >= CALIBRATION:
            break
    samples = concatenate_samples(chosen)
    if samples.present.sum() < FEWEST:
        raise FaultsError(
            f"{folder.url} has fewer than {FEWEST} encoded samples: too few to tell a pattern from chance"
        )
    samples = samples.with_levels(reference)
    evidence = fit_evidence(score_own_pairs(samples, reference), score_random_pairs(samples, reference))
    return FaultCalibration(reference, evidence, estimate_chance(samples, reference, evidence))


def compute_shard_band(
    folder: Folder, shards: Sequence[str], number: int, calibration: FaultCalibration, samples: SampleVectors
) -> Floats:
    """The band of one shard's samples, whose captions may belong to media of the neighboring shards."""

    def band_of(*parts: SampleVectors) -> Floats:
        return compute_band(concatenate_samples(parts), calibration.reference, calibration.evidence)

    previous = [read_last_samples(folder, shards[number - 1], REACH)] if number else []
    following = [read_first_samples(folder, shards[number + 1], REACH)] if number + 1 < len(shards) else []
    lead = sum(map(len, previous))
    if len(samples) <= 2 * REACH:
        return band_of(*previous, samples, *following)[lead : lead + len(samples)]
    # only the ends are computed again with their neighbors, so that the shard is not copied
    ratios = compute_band(samples, calibration.reference, calibration.evidence)
    if previous:
        ratios[:REACH] = band_of(*previous, samples.take(slice(2 * REACH)))[lead : lead + REACH]
    if following:
        ratios[-REACH:] = band_of(samples.take(slice(-2 * REACH, None)), *following)[REACH : 2 * REACH]
    return ratios


def find_shard_patterns(
    folder: Folder, shards: Sequence[str], calibration: FaultCalibration, uids: frozenset[str], number: int
) -> ShardPatterns:
    """The stretches and blocks of one shard; depends only on it, its neighbors and the calibration."""
    window = read_window(folder, shards[number])
    samples = window.samples.with_levels(calibration.reference)
    ratios = compute_shard_band(folder, shards, number, calibration, samples)
    stretches = find_shard_stretches(ratios)
    explained = mark_explained(stretches, ratios, calibration.chance)
    reference, evidence, chance = calibration.reference, calibration.evidence, calibration.chance
    blocks = find_blocks(samples, ratios, explained, reference, evidence, chance)
    found_patterns: list[ShiftedStretch | CaptionBlock] = [*stretches.inside, *stretches.heads, *stretches.tails]
    found_patterns += blocks
    ends = {place for pattern in found_patterns for place in (pattern.first, pattern.last)}
    keys = {place: window.key(place) for place in ends}
    media = int(samples.present.sum())
    media_vectors, templates = collect_media(window, uids), tuple(find_shard_templates(window))
    complete = bool(samples.present[window.sample].all())
    return ShardPatterns(
        window.shard, len(window), media, stretches, tuple(blocks), keys, media_vectors, templates, complete
    )


def collect_media(window: ShardWindow, uids: frozenset[str]) -> dict[str, Floats]:
    """The media vectors of some rows, by uid."""
    if not uids:
        return {}
    rows = np.flatnonzero(pc.is_in(window.uids, pa.array(uids, window.uids.type)).to_numpy()).tolist()
    return {window.uid(row): window.samples.visual[window.sample[row]].copy() for row in rows}


def mark_explained(stretches: ShardStretches, ratios: Floats, chance: ChanceDistribution) -> Bools:
    """Mark samples that are lost because of a stretch: its own, and those beside it whose captions it displaced."""
    explained = np.zeros(len(ratios), bool)
    for stretch in join_stretches([stretches]):
        if chance.p_value(stretch.score, len(ratios)) <= 0.01:
            surroundings = slice(max(0, stretch.first - REACH), stretch.last + 1 + REACH)
            explained[surroundings] |= ratios[surroundings, REACH] < 0
    return explained


def _describe_shift(stretch: ShiftedStretch, patterns: CorpusPatterns) -> Fault:
    first, last = patterns.keys.get(stretch.first), patterns.keys.get(stretch.last)
    shard, end = patterns.shard_of(stretch.first), patterns.shard_of(stretch.last)
    place = f"shard {shard}" if shard == end else f"shards {shard} to {end}"
    direction = "later" if stretch.offset > 0 else "earlier"
    sentence = (
        f"{place}: the captions of {stretch.rows:,} samples, {first} to {last}, belong to the medium "
        f"{abs(stretch.offset)} {'place' if abs(stretch.offset) == 1 else 'places'} {direction}"
    )
    return Fault("shift", "shift", shard, first, last, stretch.offset, stretch.rows, stretch.p_value, sentence)


BLOCK_WORDS = {
    "exchanged": "the captions of {first} and {last} are exchanged",
    "reversed": "the captions of {rows:,} samples, {first} to {last}, are in reverse order",
    "permuted": "the captions of {rows:,} samples, {first} to {last}, are mixed up among each other",
    "sorted": "the captions of {rows:,} samples, {first} to {last}, are in alphabetical order, but their media are not",
}


def _describe_block(database: AuditDatabase, block: CaptionBlock, shard: str, patterns: CorpusPatterns) -> Fault:
    start = patterns.starts[patterns.shards.index(shard)]
    first, last = patterns.keys.get(start + block.first), patterns.keys.get(start + block.last)
    pattern = block.pattern
    if pattern == "permuted" and is_alphabetical(read_first_captions(database, shard)[block.first : block.last + 1]):
        pattern = "sorted"
    words = BLOCK_WORDS[pattern].format(first=first, last=last, rows=block.rows)
    return Fault("block", pattern, shard, first, last, None, block.rows, block.p_value, f"shard {shard}: {words}")


def read_first_captions(database: AuditDatabase, shard: str) -> list[str]:
    """The first caption of each sample of a shard, in order."""
    table = Folder(database.path).read_table(name_embeddings_file(shard), ["caption", "caption_index"])
    rows = zip(table["caption"].to_pylist(), table["caption_index"].to_pylist(), strict=True)
    return [caption or "" for caption, index in rows if index == 0]


def _find_origin_faults(database: AuditDatabase, patterns: CorpusPatterns, engine: Engine) -> list[Fault]:
    """Shards that lost most of their captions' media, with the shard that the captions come from, if any."""
    sizes = dict(zip(patterns.shards, patterns.media, strict=True))
    lost_samples = {
        s: [sample for b in blocks if b.pattern == "lost" for sample in b.samples]
        for s, blocks in patterns.blocks.items()
    }
    misplaced = {s: rows for s, rows in lost_samples.items() if len(rows) >= max(FEWEST, WHOLLY_LOST * sizes[s])}
    folder, reference = Folder(database.path), patterns.calibration.reference
    texts = {s: sample_captions(read_window(folder, s).samples.text[rows]) for s, rows in misplaced.items()}
    names = [shard for shard, text in texts.items() if len(text) >= FEWEST]
    if not names:
        return []
    sound = np.array([shard not in misplaced for shard in reference.shard], bool)
    captions = [*(texts[name] for name in names), sample_captions(reference.text[sound])]
    fits = engine.each(partial(_read_best_fits, folder, captions), list(patterns.shards))
    origins = find_origins(names, captions, patterns.shards, patterns.media, fits)
    return [_describe_origin(origin, len(misplaced[origin.shard])) for origin in origins]


def _read_best_fits(folder: Folder, texts: list[Floats], shard: str) -> list[Floats]:
    return find_best_fits(texts, read_window(folder, shard).samples)


def _describe_origin(origin: CaptionOrigin, rows: int) -> Fault:
    if origin.source is None:
        pattern = "nowhere" if origin.nowhere else "scattered"
        words = "no medium of the corpus" if origin.nowhere else "other media, but not to those of one shard"
    elif origin.source == origin.shard:
        pattern, words = "permuted", "its own media, mixed up"
    else:
        pattern, words = "elsewhere", f"media of shard {origin.source}"
    sentence = f"shard {origin.shard}: {rows:,} captions belong to {words}"
    return Fault("block", pattern, origin.shard, None, None, None, rows, origin.p_value, sentence)


def _find_caption_faults(
    database: AuditDatabase, groups: Sequence[repeated.CaptionGroup], patterns: CorpusPatterns, engine: Engine
) -> list[Fault]:
    """Repeated captions, and captions of one template if their media differ."""
    corpus_distance = repeated.compute_mean_distance(patterns.calibration.reference.visual)
    near_pairs = repeated.find_near_spellings([group.captions[0] for group in groups])
    repeated_groups = [
        repeated.add_spread(group, patterns.media_vectors, corpus_distance)
        for group in repeated.merge_groups(groups, near_pairs)
    ]
    folder = Folder(database.path)
    near_groups, places = find_near_groups(folder, patterns.shards, patterns.templates, patterns.incomplete, engine)
    new_groups = [group for group in near_groups if not repeated.is_covered(group, repeated_groups)]
    vectors = read_media_vectors(folder, {uid: places[uid] for group in new_groups for uid in group.members}, engine)
    spread = (repeated.add_spread(group, vectors, corpus_distance) for group in new_groups)
    new_groups = [group for group in spread if (group.spread or 0) > UNLIKE]
    groups = sorted([*repeated_groups, *new_groups], key=lambda group: -group.rows)
    return [repeated.describe_caption_group(group, database.counts["rows"]) for group in groups]

"""Find all faults of an audit: which patterns are searched, in which order, and the sentence that reports each.

    find_faults(AuditDatabase("audit/"))

Reads the stored embeddings shard by shard, each with samples of its neighbors, and no media. Runs serially or on the
processes of an `engine`.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate

import numpy as np

from auditor.audit_folder.embeddings import name_embeddings_file
from auditor.audit_folder.fault_records import Fault
from auditor.audit_folder.folder import Folder
from auditor.faults import repeated_captions as repeated
from auditor.faults.corpus_window import (
    FaultsError,
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
    take_most_frequent,
)
from auditor.faults.pairing_evidence import SampleVectors, fit_evidence, score_own_pairs, score_random_pairs
from auditor.faults.shared_openings import find_shared_openings
from auditor.faults.shifted_stretches import (
    REACH,
    ChanceDistribution,
    FaultCalibration,
    ShardStretches,
    ShiftedStretch,
    compute_band,
    estimate_chance,
    find_shard_stretches,
    join_stretches,
    select_significant,
)
from auditor.keep.caption_choice import count_sources
from auditor.query.database import AuditDatabase
from auditor.query.sandbox import quote_literal
from auditor.vectors import Bools, Floats
from auditor.workers.process_pool import SERIAL, Engine

CALIBRATION = 8192  # samples from which the evidence and the chance distribution are fitted
WHOLLY_LOST = 0.5  # a shard with at least this share of lost samples is searched for in other shards


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
    """The shifted stretches and blocks of a corpus; `auditor repair` undoes them."""

    calibration: FaultCalibration
    by_shard: tuple[ShardPatterns, ...]  # without templates
    starts: tuple[int, ...]  # position of each shard's first sample
    stretches: tuple[ShiftedStretch, ...]  # by position
    templates: tuple[CaptionTemplate, ...]  # captions that represent similar captions of any shard

    @property
    def shards(self) -> list[str]:
        return [patterns.shard for patterns in self.by_shard]

    @property
    def broken(self) -> set[str]:
        """The shards with blocks."""
        return {patterns.shard for patterns in self.by_shard if patterns.blocks}

    def locate(self, position: int) -> tuple[int, int]:
        """The number of the shard at a position of the corpus, and the position in the shard."""
        number = bisect_right(self.starts, position) - 1
        return number, position - self.starts[number]


def find_faults(database: AuditDatabase, group_column: str = "shard", engine: Engine = SERIAL) -> list[Fault]:
    """All faults: shifted stretches, blocks, shards (or values of a column), repeated captions, shared openings."""
    if database.counts["rows"] < FEWEST:
        raise FaultsError(f"{database.path} has fewer than {FEWEST} rows: too few to tell a pattern from chance")
    groups = repeated.find_repeated_captions(database) if "caption_hash" in database.columns else []
    patterns = find_patterns(database, engine, [uid for group in groups for uid in group.members])
    faults = [_describe_shift(database, stretch, patterns) for stretch in patterns.stretches]
    blocks = ((shard, block) for shard in patterns.by_shard for block in shard.blocks)
    faults += [_describe_block(database, block, shard) for shard, block in blocks if block.pattern != "lost"]
    faults += _find_origin_faults(database, patterns, engine)
    faults += find_group_faults(database, group_column)
    return [*faults, *_find_caption_faults(database, groups, patterns, engine), *find_shared_openings(database)]


def find_patterns(database: AuditDatabase, engine: Engine = SERIAL, uids: Sequence[str] = ()) -> CorpusPatterns:
    """Shifted stretches and blocks of all shards, and the media vectors of the rows `uids`."""
    folder = Folder(database.path)
    shards = list_embedded_shards(folder)
    calibration = calibrate_evidence(folder, shards, float(database.manifest["model"]["logit_scale"]))
    work = partial(find_shard_patterns, folder, tuple(shards), calibration, frozenset(uids))
    by_shard: list[ShardPatterns] = []
    templates: list[CaptionTemplate] = []
    for patterns in engine.each(work, list(range(len(shards)))):
        templates = take_most_frequent([*templates, *patterns.templates])
        by_shard.append(replace(patterns, templates=()))  # few templates stay in memory
    *starts, total = accumulate((patterns.samples for patterns in by_shard), initial=0)
    stretches = join_stretches(shard.stretches.shift_by(start) for shard, start in zip(by_shard, starts, strict=True))
    significant = select_significant(stretches, calibration.chance, total)
    return CorpusPatterns(
        calibration, tuple(by_shard), tuple(starts), tuple(significant), tuple(merge_templates(templates))
    )


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
    blocks = find_blocks(samples, ratios, explained, calibration)
    patterns: list[ShiftedStretch | CaptionBlock] = [*stretches.inside, *stretches.heads, *stretches.tails, *blocks]
    return ShardPatterns(
        shard=window.shard,
        samples=len(window),
        media=int(samples.present.sum()),
        stretches=stretches,
        blocks=tuple(blocks),
        keys={place: window.key(place) for pattern in patterns for place in (pattern.first, pattern.last)},
        media_vectors=window.collect_media(uids),
        templates=tuple(find_shard_templates(window)),
        complete=bool(samples.present[window.sample].all()),
    )


def mark_explained(stretches: ShardStretches, ratios: Floats, chance: ChanceDistribution) -> Bools:
    """Mark samples that are lost because of a stretch: its own, and those beside it whose captions it displaced."""
    explained = np.zeros(len(ratios), bool)
    for stretch in join_stretches([stretches]):
        if chance.p_value(stretch.score, len(ratios)) <= 0.01:
            surroundings = slice(max(0, stretch.first - REACH), stretch.last + 1 + REACH)
            explained[surroundings] |= ratios[surroundings, REACH] < 0
    return explained


def build_samples_condition(database: AuditDatabase, shard: str, positions: Sequence[int]) -> str:
    """The condition that selects the samples at some positions of a shard, which are in order."""
    table = Folder(database.path).read_table(name_embeddings_file(shard), ["key", "caption_index"])
    rows = zip(table["key"].to_pylist(), table["caption_index"].to_pylist(), strict=True)
    keys = [key for key, index in rows if index == 0]
    chosen = sorted({keys[position] for position in positions})
    in_shard = f"shard = {quote_literal(shard)}"
    if len(positions) == len(keys):
        return in_shard
    if sum(chosen[0] <= key <= chosen[-1] for key in keys) == len(positions):
        return f"{in_shard} AND key BETWEEN {quote_literal(chosen[0])} AND {quote_literal(chosen[-1])}"
    return f"{in_shard} AND key IN ({', '.join(map(quote_literal, chosen))})"


def _describe_shift(database: AuditDatabase, stretch: ShiftedStretch, patterns: CorpusPatterns) -> Fault:
    places = [patterns.locate(position) for position in (stretch.first, stretch.last)]
    first, last = (patterns.by_shard[number].keys[sample] for number, sample in places)
    shard, end = (patterns.by_shard[number].shard for number, _ in places)
    place = f"shard {shard}" if shard == end else f"shards {shard} to {end}"
    distance, direction = abs(stretch.offset), "later" if stretch.offset > 0 else "earlier"
    sentence = (
        f"{place}: the captions of {stretch.rows:,} samples, {first} to {last}, belong to the medium "
        f"{distance} {'place' if distance == 1 else 'places'} {direction}"
    )
    conditions = []
    for number in range(places[0][0], places[1][0] + 1):
        start, samples = patterns.starts[number], patterns.by_shard[number].samples
        positions = range(max(0, stretch.first - start), min(samples, stretch.last + 1 - start))
        conditions.append(build_samples_condition(database, patterns.by_shard[number].shard, positions))
    numbers, where = (stretch.offset, stretch.rows, stretch.p_value), " OR ".join(conditions)
    return Fault("shift", "shift", shard, first, last, *numbers, sentence, where=where)


BLOCK_WORDS = {
    "exchanged": "the captions of {first} and {last} are exchanged",
    "reversed": "the captions of {rows:,} samples, {first} to {last}, are in reverse order",
    "permuted": "the captions of {rows:,} samples, {first} to {last}, are mixed up among each other",
    "sorted": "the captions of {rows:,} samples, {first} to {last}, are in alphabetical order, but their media are not",
}


def _describe_block(database: AuditDatabase, block: CaptionBlock, patterns: ShardPatterns) -> Fault:
    shard, pattern = patterns.shard, block.pattern
    first, last = patterns.keys[block.first], patterns.keys[block.last]
    if pattern == "permuted" and is_alphabetical(read_first_captions(database, shard)[block.first : block.last + 1]):
        pattern = "sorted"
    words = BLOCK_WORDS[pattern].format(first=first, last=last, rows=block.rows)
    ends = (block.first, block.last) if pattern == "exchanged" else range(block.first, block.last + 1)
    where = build_samples_condition(database, shard, block.samples or ends)
    place, sentence = (shard, first, last, None), f"shard {shard}: {words}"
    return Fault("block", pattern, *place, block.rows, block.p_value, sentence, where=where)


def read_first_captions(database: AuditDatabase, shard: str) -> list[str]:
    table = Folder(database.path).read_table(name_embeddings_file(shard), ["caption", "caption_index"])
    rows = zip(table["caption"].to_pylist(), table["caption_index"].to_pylist(), strict=True)
    return [caption or "" for caption, index in rows if index == 0]


def _find_origin_faults(database: AuditDatabase, patterns: CorpusPatterns, engine: Engine) -> list[Fault]:
    """Shards that lost most of their captions' media, with the shard that the captions come from, if any."""
    misplaced: dict[str, list[int]] = {}
    for shard in patterns.by_shard:
        rows = [sample for block in shard.blocks if block.pattern == "lost" for sample in block.samples]
        if len(rows) >= max(FEWEST, WHOLLY_LOST * shard.media):
            misplaced[shard.shard] = rows
    folder, reference = Folder(database.path), patterns.calibration.reference
    texts = {s: sample_captions(read_window(folder, s).samples.text[rows]) for s, rows in misplaced.items()}
    names = [shard for shard, text in texts.items() if len(text) >= FEWEST]
    if not names:
        return []
    sound = np.array([shard not in misplaced for shard in reference.shard], bool)
    captions = [*(texts[name] for name in names), sample_captions(reference.text[sound])]
    fits = engine.each(partial(_read_best_fits, folder, captions), patterns.shards)
    origins = find_origins(names, captions, patterns.shards, [shard.media for shard in patterns.by_shard], fits)
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
    place, where = (origin.shard, None, None, None), f"shard = {quote_literal(origin.shard)}"
    return Fault("block", pattern, *place, rows, origin.p_value, sentence, where=where)


def _find_caption_faults(
    database: AuditDatabase, groups: Sequence[repeated.CaptionGroup], patterns: CorpusPatterns, engine: Engine
) -> list[Fault]:
    """Repeated captions, and captions of one template if their media differ."""
    corpus_distance = repeated.compute_mean_distance(patterns.calibration.reference.visual)
    near_pairs = repeated.find_near_spellings([group.captions[0] for group in groups])
    vectors = {uid: vector for shard in patterns.by_shard for uid, vector in shard.media_vectors.items()}
    merged = repeated.merge_groups(groups, near_pairs)
    repeated_groups = [repeated.add_spread(group, vectors, corpus_distance) for group in merged]
    folder, incomplete = Folder(database.path), {shard.shard for shard in patterns.by_shard if not shard.complete}
    near_groups, shard_of = find_near_groups(folder, patterns.shards, patterns.templates, incomplete, engine)
    new_groups = [group for group in near_groups if not repeated.is_covered(group, repeated_groups)]
    vectors = read_media_vectors(folder, {uid: shard_of[uid] for group in new_groups for uid in group.members}, engine)
    spread = (repeated.add_spread(group, vectors, corpus_distance) for group in new_groups)
    new_groups = [group for group in spread if (group.spread or 0) > UNLIKE]
    groups = sorted([*repeated_groups, *new_groups], key=lambda group: -group.rows)
    sources, rows, totals = (
        repeated.count_group_sources(database, groups),
        database.counts["rows"],
        count_sources(database),
    )
    described = zip(groups, sources, strict=True)
    return [repeated.describe_caption_group(group, rows, counts, totals) for group, counts in described]

"""All faults of an audit, from top to bottom: what is looked for, in which order, and how it is said.

    find_faults(AuditDatabase("audit/"))

Reads stored embeddings shard by shard with the neighbours each needs; touches no medium. Runs in turn or, through
`each`, on a cluster.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from auditor.audit_folder.embeddings import file_name
from auditor.audit_folder.fault_records import Fault
from auditor.audit_folder.folder import Folder
from auditor.faults import repeated_captions as repeated
from auditor.faults.bad_groups import shard_faults
from auditor.faults.corpus_window import (
    FaultsError,
    Passage,
    first_samples,
    joined_scenes,
    last_samples,
    read_passage,
    read_reference,
    stored_shards,
)
from auditor.faults.misplaced_shards import FEWEST, Origin, best_fits, origins, some_captions
from auditor.faults.mixed_blocks import Block, find_blocks, in_order
from auditor.faults.near_captions import UNLIKE, Template, media_at, merged_templates, near_groups, shard_templates
from auditor.faults.pairing_evidence import Evidence, Reference, Scene, fit_evidence, own_scores, random_scores
from auditor.faults.shifted_stretches import (
    REACH,
    Chance,
    Run,
    ShardRuns,
    band,
    chance_of,
    joined,
    shard_runs,
    significant,
)
from auditor.query.database import AuditDatabase
from auditor.vectors import Bools, Floats
from auditor.workers.process_pool import SERIAL, Engine

CALIBRATION = 8192  # samples that the evidence and its chances are learned from
WHOLLY_LOST = 0.5  # share of lost samples from which a shard's captions are looked for elsewhere


@dataclass(frozen=True, slots=True)
class Calibration:
    """What is known of a corpus before its patterns are looked for; picklable."""

    reference: Reference
    evidence: Evidence
    chance: Chance


@dataclass(frozen=True, slots=True)
class ShardFindings:
    """What one shard gives back: a few numbers a run or block, and vectors of media that were asked for."""

    shard: str
    samples: int
    media: int
    runs: ShardRuns
    blocks: tuple[Block, ...]
    keys: dict[int, str]  # of the samples that runs and blocks name
    vectors: dict[str, Floats]
    templates: tuple[Template, ...]
    complete: bool  # whether all its captions have a medium


@dataclass(frozen=True, slots=True)
class Patterns:
    """The runs and blocks of a corpus, by position; what `auditor repair` undoes."""

    calibration: Calibration
    shards: tuple[str, ...]
    starts: tuple[int, ...]  # position of each shard's first sample
    samples: int
    media: tuple[int, ...]
    runs: tuple[Run, ...]
    blocks: dict[str, tuple[Block, ...]]
    keys: dict[int, str]  # by position
    vectors: dict[str, Floats]
    templates: tuple[Template, ...]  # captions that stand for others near them, in any shard
    incomplete: frozenset[str]  # shards with captions that have no medium

    def shard_of(self, position: int) -> str:
        return self.shards[int(np.searchsorted(self.starts, position, "right")) - 1]


def find_faults(database: AuditDatabase, by: str = "shard", engine: Engine = SERIAL) -> list[Fault]:
    """Everything: runs, blocks, shards (or another column), captions; the surest patterns first."""
    if database.counts["rows"] < FEWEST:
        raise FaultsError(f"{database.path} has fewer than {FEWEST} rows: too few to tell a pattern from chance")
    groups = repeated.repeated_captions(database) if "caption_hash" in database.columns else []
    patterns = find_patterns(database, engine, [uid for group in groups for uid in group.members])
    found = [_shift_fault(run, patterns) for run in patterns.runs]
    blocks = ((shard, block) for shard, some in patterns.blocks.items() for block in some)
    found += [_block_fault(database, block, shard, patterns) for shard, block in blocks if block.pattern != "lost"]
    found += _origin_faults(database, patterns, engine)
    found += shard_faults(database, by)
    return found + _caption_faults(database, groups, patterns, engine)


def find_patterns(database: AuditDatabase, engine: Engine = SERIAL, wanted: Sequence[str] = ()) -> Patterns:
    """Runs and blocks of all shards; and the vectors of the media of some rows, by uid."""
    folder = Folder(database.path)
    shards = stored_shards(folder)
    calibration = calibrate(folder, shards, float(database.manifest["model"]["logit_scale"]))
    places = list(range(len(shards)))
    work = partial(look_at_shard, folder, tuple(shards), calibration, frozenset(wanted))
    findings: list[ShardFindings] = []
    templates = merged_templates(_templates(engine.each(work, places), findings))
    samples = [found.samples for found in findings]
    starts = np.cumsum([0, *samples[:-1]])
    moved = [_placed(found.runs, int(start)) for found, start in zip(findings, starts, strict=True)]
    runs = significant(joined(moved), calibration.chance, sum(samples))
    keys = {int(s) + at: key for found, s in zip(findings, starts, strict=True) for at, key in found.keys.items()}
    vectors = {uid: vector for found in findings for uid, vector in found.vectors.items()}
    return Patterns(
        calibration,
        tuple(shards),
        tuple(int(start) for start in starts),
        sum(samples),
        tuple(found.media for found in findings),
        tuple(runs),
        {found.shard: found.blocks for found in findings if found.blocks},
        keys,
        vectors,
        tuple(templates),
        frozenset(found.shard for found in findings if not found.complete),
    )


def _templates(found: Iterable[ShardFindings], rest: list[ShardFindings]) -> Iterator[tuple[Template, ...]]:
    """The templates of each shard, and in `rest` all else: only the most frequent of all shards are kept."""
    for one in found:
        rest.append(replace(one, templates=()))
        yield one.templates


def calibrate(folder: Folder, shards: Sequence[str], scale: float) -> Calibration:
    """The evidence and its chances, from some shards spread over the corpus."""
    reference = read_reference(folder, scale)
    chosen: list[Scene] = []
    for number in np.random.default_rng(0).permutation(len(shards)):
        chosen.append(first_samples(folder, shards[int(number)], CALIBRATION - sum(map(len, chosen))))
        if sum(map(len, chosen)) >= CALIBRATION:
            break
    scene = joined_scenes(chosen)
    if scene.present.sum() < FEWEST:
        raise FaultsError(
            f"{folder.url} has fewer than {FEWEST} encoded samples: too few to tell a pattern from chance"
        )
    scene = scene.levelled(reference)
    evidence = fit_evidence(own_scores(scene, reference), random_scores(scene, reference))
    return Calibration(reference, evidence, chance_of(scene, reference, evidence))


def shard_band(folder: Folder, shards: Sequence[str], number: int, calibration: Calibration, scene: Scene) -> Floats:
    """The band of one shard's samples, whose captions may belong to media of the shards before and after."""
    learned = calibration.reference, calibration.evidence
    before = [last_samples(folder, shards[number - 1], REACH)] if number else []
    after = [first_samples(folder, shards[number + 1], REACH)] if number + 1 < len(shards) else []
    lead = sum(map(len, before))
    if len(scene) <= 2 * REACH:
        return band(joined_scenes([*before, scene, *after]), *learned)[lead : lead + len(scene)]
    ratios = band(scene, *learned)  # the ends again, with their neighbours: the shard is not copied for their sake
    if before:
        ratios[:REACH] = band(joined_scenes([*before, scene.take(slice(2 * REACH))]), *learned)[lead : lead + REACH]
    if after:
        ratios[-REACH:] = band(joined_scenes([scene.take(slice(-2 * REACH, None)), *after]), *learned)[
            REACH : 2 * REACH
        ]
    return ratios


def look_at_shard(
    folder: Folder, shards: Sequence[str], calibration: Calibration, wanted: frozenset[str], number: int
) -> ShardFindings:
    """The runs and blocks of one shard; a function of it, its neighbours and the calibration alone."""
    passage = read_passage(folder, shards[number])
    scene = passage.scene.levelled(calibration.reference)
    ratios = shard_band(folder, shards, number, calibration, scene)
    runs = shard_runs(ratios, 0)
    explained = explained_by(runs, ratios, calibration.chance)
    learned = calibration.reference, calibration.evidence, calibration.chance
    blocks = find_blocks(scene, ratios, explained, *learned)
    named = {at for run in (*runs.inside, *runs.heads, *runs.tails) for at in (run.first, run.last)}
    named |= {at for block in blocks for at in (block.first, block.last)}
    keys = {at: passage.key(at) for at in named}
    media = int(scene.present.sum())
    named_media, templates = media_of(passage, wanted), tuple(shard_templates(passage))
    complete = bool(scene.present[passage.sample].all())
    return ShardFindings(
        passage.shard, len(passage), media, runs, tuple(blocks), keys, named_media, templates, complete
    )


def media_of(passage: Passage, wanted: frozenset[str]) -> dict[str, Floats]:
    """The vectors of the media of some rows, by uid."""
    if not wanted:
        return {}
    rows = np.flatnonzero(pc.is_in(passage.uids, pa.array(wanted, passage.uids.type)).to_numpy()).tolist()
    return {passage.uid(row): passage.scene.visual[passage.sample[row]].copy() for row in rows}


def explained_by(runs: ShardRuns, ratios: Floats, chance: Chance) -> Bools:
    """Samples that are lost because of a run: its own, and those next to it whose captions it pushed out of place."""
    explained = np.zeros(len(ratios), bool)
    for run in joined([runs]):
        if chance.p_value(run.score, len(ratios)) <= 0.01:
            near = slice(max(0, run.first - REACH), run.last + 1 + REACH)
            explained[near] |= ratios[near, REACH] < 0
    return explained


def _placed(runs: ShardRuns, start: int) -> ShardRuns:
    """The runs of a shard by their positions in the corpus."""

    def moved(some: tuple[Run, ...]) -> tuple[Run, ...]:
        return tuple(replace(run, first=run.first + start, last=run.last + start) for run in some)

    return ShardRuns(start, runs.size, moved(runs.inside), moved(runs.heads), moved(runs.tails))


def _shift_fault(run: Run, patterns: Patterns) -> Fault:
    first, last = patterns.keys.get(run.first), patterns.keys.get(run.last)
    shard, end = patterns.shard_of(run.first), patterns.shard_of(run.last)
    where = f"shard {shard}" if shard == end else f"shards {shard} to {end}"
    way = "later" if run.offset > 0 else "earlier"
    sentence = (
        f"{where}: the captions of {run.rows:,} samples, {first} to {last}, belong to the medium "
        f"{abs(run.offset)} {'place' if abs(run.offset) == 1 else 'places'} {way}"
    )
    return Fault("shift", "shift", shard, first, last, run.offset, run.rows, run.p_value, sentence)


BLOCK_WORDS = {
    "exchanged": "the captions of {first} and {last} are exchanged",
    "reversed": "the captions of {rows:,} samples, {first} to {last}, stand in reversed order",
    "permuted": "the captions of {rows:,} samples, {first} to {last}, are mixed up among each other",
    "sorted": "the captions of {rows:,} samples, {first} to {last}, are in alphabetical order, their media are not",
}


def _block_fault(database: AuditDatabase, block: Block, shard: str, patterns: Patterns) -> Fault:
    start = patterns.starts[patterns.shards.index(shard)]
    first, last = patterns.keys.get(start + block.first), patterns.keys.get(start + block.last)
    mixed = block.pattern == "permuted"
    pattern = (
        "sorted" if mixed and in_order(first_captions(database, shard)[block.first : block.last + 1]) else block.pattern
    )
    words = BLOCK_WORDS[pattern].format(first=first, last=last, rows=block.rows)
    return Fault("block", pattern, shard, first, last, None, block.rows, block.p_value, f"shard {shard}: {words}")


def first_captions(database: AuditDatabase, shard: str) -> list[str]:
    """The first caption of each sample of a shard, in order."""
    table = Folder(database.path).read_table(file_name(shard), ["caption", "caption_index"])
    rows = zip(table["caption"].to_pylist(), table["caption_index"].to_pylist(), strict=True)
    return [caption or "" for caption, index in rows if index == 0]


def _origin_faults(database: AuditDatabase, patterns: Patterns, engine: Engine) -> list[Fault]:
    """Shards most of whose captions are lost: from which shard they are, or from none."""
    sizes = dict(zip(patterns.shards, patterns.media, strict=True))
    lost = {s: [at for b in some if b.pattern == "lost" for at in b.samples] for s, some in patterns.blocks.items()}
    wholly = {s: rows for s, rows in lost.items() if len(rows) >= max(FEWEST, WHOLLY_LOST * sizes[s])}
    folder, reference = Folder(database.path), patterns.calibration.reference
    texts = {s: some_captions(read_passage(folder, s).scene.text[rows]) for s, rows in wholly.items()}
    names = [shard for shard, text in texts.items() if len(text) >= FEWEST]
    if not names:
        return []
    sound = np.array([shard not in wholly for shard in reference.shard], bool)
    captions = [*(texts[name] for name in names), some_captions(reference.text[sound])]
    fits = engine.each(partial(_best_fits, folder, captions), list(patterns.shards))
    found = origins(names, captions, patterns.shards, patterns.media, fits)
    return [_origin_fault(one, len(wholly[one.shard])) for one in found]


def _best_fits(folder: Folder, texts: list[Floats], shard: str) -> list[Floats]:
    return best_fits(texts, read_passage(folder, shard).scene)


def _origin_fault(origin: Origin, rows: int) -> Fault:
    if origin.source is None:
        pattern = "nowhere" if origin.nowhere else "scattered"
        words = "no medium of the corpus" if origin.nowhere else "other media, but not to those of one shard"
    elif origin.source == origin.shard:
        pattern, words = "permuted", "its own media, mixed up"
    else:
        pattern, words = "elsewhere", f"media of shard {origin.source}"
    sentence = f"shard {origin.shard}: {rows:,} captions belong to {words}"
    return Fault("block", pattern, origin.shard, None, None, None, rows, origin.p_value, sentence)


def _caption_faults(
    database: AuditDatabase, groups: Sequence[repeated.CaptionGroup], patterns: Patterns, engine: Engine
) -> list[Fault]:
    """Captions that repeat; those from one template only where their media are unlike."""
    rows, unlike = database.counts["rows"], repeated.mean_distance(patterns.calibration.reference.visual)
    near = repeated.near_by_words([group.captions[0] for group in groups])
    same = [repeated.with_spread(group, patterns.vectors, unlike) for group in repeated.merged(groups, near)]
    folder = Folder(database.path)
    found, places = near_groups(folder, patterns.shards, patterns.templates, patterns.incomplete, engine)
    new = [group for group in found if not repeated.covered(group, same)]
    vectors = media_at(folder, {uid: places[uid] for group in new for uid in group.members}, engine)
    spread = (repeated.with_spread(group, vectors, unlike) for group in new)
    new = [group for group in spread if (group.spread or 0) > UNLIKE]
    return [repeated.caption_fault(group, rows) for group in sorted([*same, *new], key=lambda group: -group.rows)]

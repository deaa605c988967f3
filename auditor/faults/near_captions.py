"""Captions made from one template: hardly two are the same, but most of their words are, and their media are unlike.

"Portrait of Ann Lee, free stock photo", four thousand times with another name. Within each shard captions are near by
MinHash of their pairs of neighbouring words, or by their embeddings; the one with the most near ones stands for its
group. Where there are any, the groups of all shards are counted in a second reading of captions and their vectors; of
media only those of a few members are read. So no more than one shard is in memory at once.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from auditor.audit_folder.embeddings import file_name, matrix
from auditor.audit_folder.folder import Folder
from auditor.faults.corpus_window import Passage, mean_media, samples_of, there, vectors_at
from auditor.faults.repeated_captions import (
    ALIKE_TEXT,
    HASHES,
    MEMBERS,
    SMALLEST,
    CaptionGroup,
    Hashes,
    min_hashes,
    signatures,
    word_pairs,
)
from auditor.sweep.caption_facts import normalised_all
from auditor.vectors import Bools, Floats, Ints
from auditor.workers.process_pool import SERIAL, Engine

CORE, COUNTED = 0.5, 0.35  # share of equal MinHashes, about the Jaccard of the word pairs: to be a group, to be counted
UNLIKE = 0.8  # spread of the media from which near captions are boilerplate: people say like things of like media
PER_SHARD = 500  # captions compared with each other
MOST_TEMPLATES = 200
SHOWN = 3  # spellings kept
AT_ONCE = 1024  # captions compared with all templates


@dataclass(frozen=True, slots=True)
class Captions:
    """The distinct captions of some rows, in alphabetical order."""

    texts: pa.Array
    rows: Ints  # how many have it
    first: Ints  # the first of those rows

    def take(self, chosen: Ints) -> "Captions":
        return Captions(self.texts.take(pa.array(chosen)), self.rows[chosen], self.first[chosen])

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True, slots=True)
class Template:
    """A caption that stands for those near it."""

    caption: str
    rows: int
    text: Floats  # (D,)


@dataclass(frozen=True, slots=True)
class Uses:
    """What one shard has of a template: rows; of the nearest captions how many there are, and where some stand."""

    rows: int
    spellings: int
    captions: tuple[str, ...]
    members: dict[str, int] = field(default_factory=dict)  # rows of the shard's file, by uid


Places = dict[str, tuple[str, int]]  # shard and row of its file, by uid


def near_groups(
    folder: Folder,
    shards: Sequence[str],
    templates: Sequence[Template],
    incomplete: Collection[str] = (),
    engine: Engine = SERIAL,
) -> tuple[list[CaptionGroup], Places]:
    """Groups of captions that are near each other, the largest first, and where their members stand."""
    if not templates:
        return [], {}
    uses = list(engine.each(partial(uses_in, folder, tuple(templates), frozenset(incomplete)), shards))
    groups = [as_group(template, [use[i] for use in uses]) for i, template in enumerate(templates)]
    found = apart([group for group in groups if group is not None])
    wanted = {uid for group in found for uid in group.members}
    named = ((uid, (shard, row)) for shard, use in zip(shards, uses, strict=True) for uid, row in _members(use))
    return found, {uid: place for uid, place in named if uid in wanted}


def _members(uses: Sequence[Uses]) -> Iterable[tuple[str, int]]:
    return (member for use in uses for member in use.members.items())


def media_at(folder: Folder, places: Mapping[str, tuple[str, int]], engine: Engine = SERIAL) -> dict[str, Floats]:
    """The vectors of the media of some rows, by uid."""
    by_shard: dict[str, dict[str, int]] = {}
    for uid, (shard, row) in places.items():
        by_shard.setdefault(shard, {})[uid] = row
    found = engine.each(partial(_shard_media, folder), list(by_shard.items()))
    return {uid: vector for some in found for uid, vector in some.items()}


def _shard_media(folder: Folder, wanted: tuple[str, dict[str, int]]) -> dict[str, Floats]:
    """Of the rows of one shard; only the row groups of their samples are read."""
    name, rows = file_name(wanted[0]), np.array(list(wanted[1].values()), np.int64)
    with folder.reading(name), folder.open_table(name) as file:
        index = file.read(["caption_index"]).column(0).to_numpy()
        sample = np.cumsum(index == 0) - 1
        needed = np.isin(sample, sample[rows])  # a medium stands with the first caption of its sample
        edges = np.cumsum([0, *(file.metadata.row_group(i).num_rows for i in range(file.num_row_groups))])
        parts, samples = [], []
        for group in np.unique(np.searchsorted(edges, np.flatnonzero(needed), "right") - 1).tolist():
            stretch = slice(edges[group], edges[group + 1])
            table = file.read_row_group(group, ["visual"]).filter(pa.array(needed[stretch]))
            has = there(table, "visual")
            parts.append(vectors_at(table, "visual", has))
            samples.append(sample[stretch][needed[stretch]][has])
    known, number = np.unique(np.concatenate(samples), return_inverse=True)
    media = mean_media(np.concatenate(parts), number, len(known))
    return {uid: media[np.searchsorted(known, sample[row])] for uid, row in wanted[1].items()}


def apart(groups: Sequence[CaptionGroup]) -> list[CaptionGroup]:
    """The largest first; a group that shares rows with a larger one is part of it."""
    kept: list[CaptionGroup] = []
    taken: set[str] = set()
    for group in sorted(groups, key=lambda group: -group.rows):
        if not taken & set(group.members):
            kept.append(group)
        taken |= set(group.members)
    return kept


def distinct_captions(captions: pa.ChunkedArray) -> Captions:
    coded = pc.fill_null(captions, "").cast(pa.large_string()).dictionary_encode().combine_chunks()
    number = coded.indices.to_numpy()
    _, first, counts = np.unique(number, return_index=True, return_counts=True)
    order = pc.sort_indices(coded.dictionary).to_numpy().astype(np.int64)
    return Captions(coded.dictionary.take(pa.array(order)), counts[order], first[order])


def shard_templates(passage: Passage) -> list[Template]:
    """The captions of a shard that have at least one near them, other than themselves; the most frequent first."""
    rows = np.flatnonzero(passage.scene.present[passage.sample])
    found = distinct_captions(passage.captions.take(pa.array(rows)))
    chosen = np.sort(np.random.default_rng(0).permutation(len(found))[:PER_SHARD])
    picked = found.take(chosen)
    return templates_of(picked, passage.text[rows[picked.first]]) if len(chosen) > 1 else []


def templates_of(found: Captions, text: Floats) -> list[Template]:
    texts = found.texts.to_pylist()
    near = near_each_other(signatures(texts), text)
    rows = found.rows.astype(np.float32)
    templates: list[Template] = []
    while len(templates) < MOST_TEMPLATES:
        weight = near.astype(np.float32) @ rows
        weight[near.sum(axis=1) < 2] = 0
        best = int(weight.argmax())
        if weight[best] == 0:
            break
        templates.append(Template(texts[best], int(weight[best]), text[best].copy()))
        taken = near[best].copy()
        near[taken] = False
        near[:, taken] = False
    return templates


def near_each_other(signature: Hashes, text: Floats) -> Bools:
    """(N, N): whether two captions share most of their word pairs, or nearly their vector."""
    near = text @ text.T >= ALIKE_TEXT
    return np.asarray(near | (agreement(signature, signature) >= CORE), bool)


def agreement(signature: Hashes, others: Hashes) -> Floats:
    """(N, M): the share of equal hashes.

    The lower halves of two are equal only where the hashes are: they are odd multiples of numbers of 32 bits.
    """
    mine, theirs = (np.ascontiguousarray(some.T.astype(np.uint32)) for some in (signature, others))
    same = np.zeros((len(signature), len(others)), np.uint8)
    for start in range(0, len(signature), AT_ONCE):
        block = same[start : start + AT_ONCE]
        for one, other in zip(mine[:, start : start + AT_ONCE], theirs, strict=True):
            block += one[:, None] == other
    return same.astype(np.float32) / np.float32(HASHES)


def merged_templates(found: Iterable[Sequence[Template]]) -> list[Template]:
    """The templates of all shards that may be a pattern, as they come: no more than the most frequent are kept."""
    kept: list[Template] = []
    for some in found:
        kept = most_frequent([*kept, *some])
    return [template for template in distinct(kept) if template.rows >= SMALLEST][:MOST_TEMPLATES]


def most_frequent(templates: Iterable[Template]) -> list[Template]:
    return sorted(templates, key=lambda template: (-template.rows, template.caption))[: 10 * MOST_TEMPLATES]


def distinct(templates: Sequence[Template]) -> list[Template]:
    """Templates of all shards, near ones as one, the most frequent first."""
    kept: list[Template] = []
    found = most_frequent(templates)
    if not found:
        return kept
    near = near_each_other(signatures([t.caption for t in found]), np.stack([t.text for t in found]))
    taken = np.zeros(len(found), bool)
    for i, template in enumerate(found):
        if not taken[i]:
            kept.append(
                Template(template.caption, int(sum(found[j].rows for j in np.flatnonzero(near[i]))), template.text)
            )
            taken |= near[i]
    return sorted(kept, key=lambda template: -template.rows)


def uses_in(folder: Folder, templates: Sequence[Template], incomplete: Collection[str], shard: str) -> list[Uses]:
    """What a shard has of each template; `incomplete` are the shards with captions that have no medium."""
    more = ["caption_index", "visual"] if shard in incomplete else []
    table = folder.read_table(file_name(shard), ["uid", "caption", "text", *more])
    rows = np.flatnonzero(with_medium(table) if more else there(table, "text"))
    found = distinct_captions(table.column("caption").take(pa.array(rows)))
    first = rows[found.first]
    counted, core = nearness(found.texts.to_pylist(), table.column("text"), first, templates)
    caption, template = np.nonzero(counted)
    total = np.bincount(template, found.rows[caption], len(templates))
    uses = []
    for i in range(len(templates)):
        near = np.flatnonzero(core[:, i])
        uids = table.column("uid").take(pa.array(first[near[:MEMBERS]])).to_pylist()
        members = dict(zip(uids, first[near[:MEMBERS]].tolist(), strict=True))
        shown = tuple(found.texts.take(pa.array(near[:SHOWN])).to_pylist())
        uses.append(Uses(int(total[i]), len(near), shown, members))
    return uses


def with_medium(table: pa.Table) -> Bools:
    """The encoded captions whose sample has a medium."""
    _, sample = samples_of(table)
    return there(table, "text") & np.isin(sample, sample[there(table, "visual")])


def nearness(
    texts: Sequence[str], vectors: pa.ChunkedArray, rows: Ints, templates: Sequence[Template]
) -> tuple[Bools, Bools]:
    """(N, T): the captions that count as uses of a template, and those that are near enough to be of its group."""
    same = alike_vectors(vectors, rows, np.stack([template.text for template in templates]))
    line, alike = alike_words(texts, [template.caption for template in templates])
    counted, core = same, same.copy()
    counted[line] |= alike >= COUNTED
    core[line] |= alike >= CORE
    return counted, core


def alike_vectors(vectors: pa.ChunkedArray, rows: Ints, others: Floats) -> Bools:
    """(N, T): whether the vectors of some rows are nearly those of others; a stretch of the column at a time."""
    found = np.empty((len(vectors), len(others)), bool)
    for start in range(0, len(vectors), AT_ONCE):
        stretch = matrix(vectors.slice(start, AT_ONCE), others.shape[1])
        found[start : start + AT_ONCE] = stretch @ others.T >= ALIKE_TEXT
    return found[rows]


def alike_words(texts: Sequence[str], others: Sequence[str]) -> tuple[Ints, Floats]:
    """Those of `texts` that share a pair of words with any of `others`, (M,), and their agreement with each, (M, T).

    Two captions without a pair in common have no hash in common.
    """
    lines = pa.array(normalised_all(texts), pa.large_string()).dictionary_encode()
    pairs, first = word_pairs(lines.dictionary.to_pylist())
    theirs = word_pairs(normalised_all(others))
    if not len(first):
        return np.zeros(0, np.int64), np.zeros((0, len(others)), np.float32)
    sharing = np.logical_or.reduceat(np.isin(pairs, theirs[0]), first)
    sizes = np.diff(first, append=len(pairs))
    kept = np.concatenate([[0], np.cumsum(sizes[sharing])[:-1]]).astype(np.int64)[: int(sharing.sum())]
    found = agreement(min_hashes(pairs[np.repeat(sharing, sizes)], kept), min_hashes(*theirs))
    number = lines.indices.to_numpy()
    chosen = np.flatnonzero(sharing[number])
    return chosen, found[(np.cumsum(sharing) - 1)[number[chosen]]]


def as_group(template: Template, uses: Sequence[Uses]) -> CaptionGroup | None:
    """The uses of a template in all shards; None where few captions are near it."""
    rows, spellings = sum(use.rows for use in uses), sum(use.spellings for use in uses)
    if spellings < SMALLEST:
        return None
    captions = dict.fromkeys([template.caption, *(caption for use in uses for caption in use.captions)])
    members = [uid for use in uses for uid in use.members]
    step = max(1, len(members) // MEMBERS)
    return CaptionGroup(tuple(captions)[:SHOWN], rows, 1, tuple(members[::step][:MEMBERS]), "near")

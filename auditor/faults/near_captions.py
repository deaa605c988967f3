"""Captions made from one template: few are equal, but they share most of their words, and their media differ.

Example: "Portrait of Ann Lee, free stock photo", four thousand times with different names. Within each shard, captions
are near if the MinHashes of their word pairs or their embeddings agree; the caption with the most neighbors becomes the
template of its group. If there are templates, a second pass over captions and text vectors counts their uses in all
shards; media are read for a few members only. So at most one shard is in memory. The MinHashes are our own because
datasketch takes nine times as long for 100,000 captions.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from auditor.audit_folder.embeddings import name_embeddings_file, read_vector_matrix
from auditor.audit_folder.folder import Folder
from auditor.faults.corpus_window import ShardWindow, average_media, has_vector, number_samples, read_vectors
from auditor.faults.repeated_captions import (
    HASH_COUNT,
    MEMBERS,
    SIMILAR_TEXT,
    SMALLEST,
    CaptionGroup,
    Hashes,
    compute_minhashes,
    hash_word_pairs,
    minhash_pairs,
)
from auditor.sweep.caption_facts import normalize_captions
from auditor.vectors import Bools, Floats, Ints
from auditor.workers.process_pool import SERIAL, Engine

CORE, COUNTED = 0.5, 0.35  # smallest share of equal MinHashes (about the Jaccard index) to form a group, to be counted
UNLIKE = 0.8  # near captions are boilerplate from this spread of their media up: similar media have similar captions
PER_SHARD = 500  # captions compared with each other
MOST_TEMPLATES = 200
SHOWN = 3  # spellings listed as examples
AT_ONCE = 1024  # captions compared with all templates at once


@dataclass(frozen=True, slots=True)
class DistinctCaptions:
    """The distinct captions of some rows, in alphabetical order."""

    texts: pa.Array
    rows: Ints  # number of rows with each caption
    first: Ints  # first row with each caption

    def take(self, chosen: Ints) -> "DistinctCaptions":
        return DistinctCaptions(self.texts.take(pa.array(chosen)), self.rows[chosen], self.first[chosen])

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True, slots=True)
class CaptionTemplate:
    """A caption that represents the captions near it."""

    caption: str
    rows: int
    text: Floats  # (D,)


@dataclass(frozen=True, slots=True)
class TemplateUses:
    """The uses of a template in one shard: rows, distinct near captions, and the positions of some members."""

    rows: int
    spellings: int
    captions: tuple[str, ...]
    members: dict[str, int] = field(default_factory=dict)  # rows of the shard's file, by uid


RowPositions = dict[str, tuple[str, int]]  # shard and row of its file, by uid


def find_near_groups(
    folder: Folder,
    shards: Sequence[str],
    templates: Sequence[CaptionTemplate],
    incomplete: Collection[str] = (),
    engine: Engine = SERIAL,
) -> tuple[list[CaptionGroup], RowPositions]:
    """Groups of captions near each template, the largest first, and the positions of their members."""
    if not templates:
        return [], {}
    uses = list(engine.each(partial(count_template_uses, folder, tuple(templates), frozenset(incomplete)), shards))
    groups = [build_group(template, [use[i] for use in uses]) for i, template in enumerate(templates)]
    groups_apart = drop_overlapping_groups([group for group in groups if group is not None])
    member_uids = {uid for group in groups_apart for uid in group.members}
    positions = (
        (uid, (shard, row)) for shard, use in zip(shards, uses, strict=True) for uid, row in _list_members(use)
    )
    return groups_apart, {uid: place for uid, place in positions if uid in member_uids}


def _list_members(uses: Sequence[TemplateUses]) -> Iterable[tuple[str, int]]:
    return (member for use in uses for member in use.members.items())


def read_media_vectors(
    folder: Folder, places: Mapping[str, tuple[str, int]], engine: Engine = SERIAL
) -> dict[str, Floats]:
    """The media vectors of some rows, by uid."""
    by_shard: dict[str, dict[str, int]] = {}
    for uid, (shard, row) in places.items():
        by_shard.setdefault(shard, {})[uid] = row
    shard_vectors = engine.each(partial(_read_shard_media, folder), list(by_shard.items()))
    return {uid: vector for vectors in shard_vectors for uid, vector in vectors.items()}


def _read_shard_media(folder: Folder, shard_rows: tuple[str, dict[str, int]]) -> dict[str, Floats]:
    """The media vectors of rows of one shard; reads only the row groups that hold them."""
    name, rows = name_embeddings_file(shard_rows[0]), np.array(list(shard_rows[1].values()), np.int64)
    with folder.reading(name), folder.open_table(name) as file:
        index = file.read(["caption_index"]).column(0).to_numpy()
        sample = np.cumsum(index == 0) - 1
        needed = np.isin(sample, sample[rows])  # a medium is stored with the first caption of its sample
        edges = np.cumsum([0, *(file.metadata.row_group(i).num_rows for i in range(file.num_row_groups))])
        parts, samples = [], []
        for group in np.unique(np.searchsorted(edges, np.flatnonzero(needed), "right") - 1).tolist():
            stretch = slice(edges[group], edges[group + 1])
            table = file.read_row_group(group, ["visual"]).filter(pa.array(needed[stretch]))
            has = has_vector(table, "visual")
            parts.append(read_vectors(table, "visual", has))
            samples.append(sample[stretch][needed[stretch]][has])
    distinct_samples, number = np.unique(np.concatenate(samples), return_inverse=True)
    media = average_media(np.concatenate(parts), number, len(distinct_samples))
    return {uid: media[np.searchsorted(distinct_samples, sample[row])] for uid, row in shard_rows[1].items()}


def drop_overlapping_groups(groups: Sequence[CaptionGroup]) -> list[CaptionGroup]:
    """The groups from the largest down, without those that share members with a larger one."""
    disjoint: list[CaptionGroup] = []
    claimed: set[str] = set()
    for group in sorted(groups, key=lambda group: -group.rows):
        if not claimed & set(group.members):
            disjoint.append(group)
        claimed |= set(group.members)
    return disjoint


def count_distinct_captions(captions: pa.ChunkedArray) -> DistinctCaptions:
    coded = pc.fill_null(captions, "").cast(pa.large_string()).dictionary_encode().combine_chunks()
    number = coded.indices.to_numpy()
    _, first, counts = np.unique(number, return_index=True, return_counts=True)
    order = pc.sort_indices(coded.dictionary).to_numpy().astype(np.int64)
    return DistinctCaptions(coded.dictionary.take(pa.array(order)), counts[order], first[order])


def find_shard_templates(window: ShardWindow) -> list[CaptionTemplate]:
    """The captions of a shard with at least one other caption near them, the most frequent first."""
    rows = np.flatnonzero(window.samples.present[window.sample])
    captions = count_distinct_captions(window.captions.take(pa.array(rows)))
    chosen = np.sort(np.random.default_rng(0).permutation(len(captions))[:PER_SHARD])
    picked = captions.take(chosen)
    return build_templates(picked, window.text[rows[picked.first]]) if len(chosen) > 1 else []


def build_templates(captions: DistinctCaptions, text: Floats) -> list[CaptionTemplate]:
    texts = captions.texts.to_pylist()
    is_near = mark_near_captions(compute_minhashes(texts), text)
    rows = captions.rows.astype(np.float32)
    templates: list[CaptionTemplate] = []
    while len(templates) < MOST_TEMPLATES:
        weight = is_near.astype(np.float32) @ rows
        weight[is_near.sum(axis=1) < 2] = 0
        best = int(weight.argmax())
        if weight[best] == 0:
            break
        templates.append(CaptionTemplate(texts[best], int(weight[best]), text[best].copy()))
        members = is_near[best].copy()
        is_near[members] = False
        is_near[:, members] = False
    return templates


def mark_near_captions(signature: Hashes, text: Floats) -> Bools:
    """(N, N): whether two captions share most of their word pairs or have nearly the same vector."""
    is_near = text @ text.T >= SIMILAR_TEXT
    return np.asarray(is_near | (estimate_jaccard(signature, signature) >= CORE), bool)


def estimate_jaccard(signature: Hashes, other_signature: Hashes) -> Floats:
    """(N, M): the share of equal hashes, an estimate of the Jaccard index.

    Comparing the lower 32 bits is enough: hashes are odd multiples of 32-bit numbers plus a constant.
    """
    hashes, other_hashes = (
        np.ascontiguousarray(matrix_of_hashes.T.astype(np.uint32)) for matrix_of_hashes in (signature, other_signature)
    )
    equal_hashes = np.zeros((len(signature), len(other_signature)), np.uint8)
    for start in range(0, len(signature), AT_ONCE):
        block = equal_hashes[start : start + AT_ONCE]
        for row, other_row in zip(hashes[:, start : start + AT_ONCE], other_hashes, strict=True):
            block += row[:, None] == other_row
    return equal_hashes.astype(np.float32) / np.float32(HASH_COUNT)


def merge_templates(templates_by_shard: Iterable[Sequence[CaptionTemplate]]) -> list[CaptionTemplate]:
    """Merge the templates of all shards as they arrive, holding only the most frequent ones."""
    frequent: list[CaptionTemplate] = []
    for templates in templates_by_shard:
        frequent = take_most_frequent([*frequent, *templates])
    return [template for template in merge_near_templates(frequent) if template.rows >= SMALLEST][:MOST_TEMPLATES]


def take_most_frequent(templates: Iterable[CaptionTemplate]) -> list[CaptionTemplate]:
    return sorted(templates, key=lambda template: (-template.rows, template.caption))[: 10 * MOST_TEMPLATES]


def merge_near_templates(templates: Sequence[CaptionTemplate]) -> list[CaptionTemplate]:
    """Merge templates that are near each other; returns the most frequent first."""
    merged: list[CaptionTemplate] = []
    frequent = take_most_frequent(templates)
    if not frequent:
        return merged
    is_near = mark_near_captions(compute_minhashes([t.caption for t in frequent]), np.stack([t.text for t in frequent]))
    is_merged = np.zeros(len(frequent), bool)
    for i, template in enumerate(frequent):
        if not is_merged[i]:
            merged.append(
                CaptionTemplate(
                    template.caption, int(sum(frequent[j].rows for j in np.flatnonzero(is_near[i]))), template.text
                )
            )
            is_merged |= is_near[i]
    return sorted(merged, key=lambda template: -template.rows)


def count_template_uses(
    folder: Folder, templates: Sequence[CaptionTemplate], incomplete: Collection[str], shard: str
) -> list[TemplateUses]:
    """Count the uses of each template in a shard; `incomplete` are the shards in which captions lack a medium."""
    medium_columns = ["caption_index", "visual"] if shard in incomplete else []
    table = folder.read_table(name_embeddings_file(shard), ["uid", "caption", "text", *medium_columns])
    rows = np.flatnonzero(mark_rows_with_medium(table) if medium_columns else has_vector(table, "text"))
    captions = count_distinct_captions(table.column("caption").take(pa.array(rows)))
    first = rows[captions.first]
    counted, core = match_templates(captions.texts.to_pylist(), table.column("text"), first, templates)
    caption, template = np.nonzero(counted)
    total = np.bincount(template, captions.rows[caption], len(templates))
    uses = []
    for i in range(len(templates)):
        core_captions = np.flatnonzero(core[:, i])
        uids = table.column("uid").take(pa.array(first[core_captions[:MEMBERS]])).to_pylist()
        members = dict(zip(uids, first[core_captions[:MEMBERS]].tolist(), strict=True))
        examples = tuple(captions.texts.take(pa.array(core_captions[:SHOWN])).to_pylist())
        uses.append(TemplateUses(int(total[i]), len(core_captions), examples, members))
    return uses


def mark_rows_with_medium(table: pa.Table) -> Bools:
    """Mark the encoded captions whose sample has a medium."""
    _, sample = number_samples(table)
    return has_vector(table, "text") & np.isin(sample, sample[has_vector(table, "visual")])


def match_templates(
    texts: Sequence[str], vectors: pa.ChunkedArray, rows: Ints, templates: Sequence[CaptionTemplate]
) -> tuple[Bools, Bools]:
    """(N, T): the captions that count as uses of a template, and those near enough to belong to its group."""
    is_similar = compare_vectors(vectors, rows, np.stack([template.text for template in templates]))
    lines, jaccard = compare_words(texts, [template.caption for template in templates])
    counted, core = is_similar, is_similar.copy()
    counted[lines] |= jaccard >= COUNTED
    core[lines] |= jaccard >= CORE
    return counted, core


def compare_vectors(vectors: pa.ChunkedArray, rows: Ints, template_vectors: Floats) -> Bools:
    """(N, T): whether the vectors of rows are nearly equal to those of templates; reads AT_ONCE rows at a time."""
    is_similar = np.empty((len(vectors), len(template_vectors)), bool)
    for start in range(0, len(vectors), AT_ONCE):
        stretch = read_vector_matrix(vectors.slice(start, AT_ONCE), template_vectors.shape[1])
        is_similar[start : start + AT_ONCE] = stretch @ template_vectors.T >= SIMILAR_TEXT
    return is_similar[rows]


def compare_words(texts: Sequence[str], other_texts: Sequence[str]) -> tuple[Ints, Floats]:
    """The `texts` that share a word pair with any of `other_texts`, (M,), and their Jaccard estimates, (M, T).

    Captions without a common pair have no common hash.
    """
    lines = pa.array(normalize_captions(texts), pa.large_string()).dictionary_encode()
    pairs, first = hash_word_pairs(lines.dictionary.to_pylist())
    other_pairs = hash_word_pairs(normalize_captions(other_texts))
    if not len(first):
        return np.zeros(0, np.int64), np.zeros((0, len(other_texts)), np.float32)
    sharing = np.logical_or.reduceat(np.isin(pairs, other_pairs[0]), first)
    sizes = np.diff(first, append=len(pairs))
    starts = np.concatenate([[0], np.cumsum(sizes[sharing])[:-1]]).astype(np.int64)[: int(sharing.sum())]
    jaccard = estimate_jaccard(minhash_pairs(pairs[np.repeat(sharing, sizes)], starts), minhash_pairs(*other_pairs))
    number = lines.indices.to_numpy()
    chosen = np.flatnonzero(sharing[number])
    return chosen, jaccard[(np.cumsum(sharing) - 1)[number[chosen]]]


def build_group(template: CaptionTemplate, uses: Sequence[TemplateUses]) -> CaptionGroup | None:
    """The group of a template's uses in all shards; None if few captions are near it."""
    rows, spellings = sum(use.rows for use in uses), sum(use.spellings for use in uses)
    if spellings < SMALLEST:
        return None
    captions = dict.fromkeys([template.caption, *(caption for use in uses for caption in use.captions)])
    members = [uid for use in uses for uid in use.members]
    step = max(1, len(members) // MEMBERS)
    return CaptionGroup(tuple(captions)[:SHOWN], rows, 1, tuple(members[::step][:MEMBERS]), "near")

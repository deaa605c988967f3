"""Captions made from one template: few are equal, but they share most of their words, and their media differ.

Example: "Portrait of Ann Lee, free stock photo", four thousand times with different names. Within each shard, captions
are near if the MinHashes of their word pairs agree, or their embeddings and some of their characters: an encoder gives
nearly the same vector to all captions in a script that it does not know. The caption with the most neighbors becomes
the template of its group. If there are templates, a second pass over captions and text vectors counts their uses in all
shards; media are read for some members. So at most one shard is in memory. The MinHashes are our own because datasketch
takes nine times as long for 100,000 captions.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from auditor.audit_folder.embeddings import name_embeddings_file, read_vector_matrix
from auditor.audit_folder.folder import Folder
from auditor.faults.corpus_window import ShardWindow, has_vector, number_samples, read_window
from auditor.faults.repeated_captions import (
    AT_ONCE,
    MEMBERS,
    SIMILAR_TEXT,
    SMALLEST,
    CaptionGroup,
    compute_minhashes,
    estimate_jaccard,
    hash_word_pairs,
    minhash_pairs,
)
from auditor.sweep.caption_facts import normalize_captions
from auditor.vectors import Bools, Floats, Ints
from auditor.workers.process_pool import SERIAL, Engine

CORE, COUNTED = 0.5, 0.35  # smallest share of equal MinHashes (about the Jaccard index) to form a group, to be counted
SHARED = 0.35  # smallest Jaccard index of the character pairs of captions with nearly the same vector
UNLIKE = 0.8  # near captions are boilerplate from this spread of their media up: similar media have similar captions
PER_SHARD = 500  # captions compared with each other
MOST_TEMPLATES = 200
SHOWN = 3  # spellings listed as examples


@dataclass(frozen=True, slots=True)
class DistinctCaptions:
    """The distinct captions of some rows, in alphabetical order."""

    texts: pa.Array
    rows: Ints  # number of rows with each caption
    first: Ints  # first row with each caption

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
    """The uses of a template in one shard: rows, distinct near captions, uids of some members, hashes of all rows."""

    rows: int
    spellings: int
    captions: tuple[str, ...]
    members: tuple[str, ...]
    hashes: frozenset[int]


def find_near_groups(
    folder: Folder,
    shards: Sequence[str],
    templates: Sequence[CaptionTemplate],
    incomplete: Collection[str] = (),
    engine: Engine = SERIAL,
) -> tuple[list[CaptionGroup], dict[str, str]]:
    """Groups of captions near each template, the largest first, and the shard of each member by uid."""
    if not templates:
        return [], {}
    uses = list(engine.each(partial(count_template_uses, folder, tuple(templates), frozenset(incomplete)), shards))
    groups = [build_group(template, [use[i] for use in uses]) for i, template in enumerate(templates)]
    groups_apart = drop_overlapping_groups([group for group in groups if group is not None])
    member_uids = {uid for group in groups_apart for uid in group.members}
    shard_uses = [(shard, use) for shard, of_shard in zip(shards, uses, strict=True) for use in of_shard]
    return groups_apart, {uid: shard for shard, use in shard_uses for uid in member_uids.intersection(use.members)}


def read_media_vectors(folder: Folder, shard_of: Mapping[str, str], engine: Engine = SERIAL) -> dict[str, Floats]:
    """The media vectors of some rows, by uid, from the shards that hold them."""
    by_shard: dict[str, set[str]] = defaultdict(set)
    for uid, shard in shard_of.items():
        by_shard[shard].add(uid)
    shard_vectors = engine.each(partial(_read_shard_media, folder), list(by_shard.items()))
    return {uid: vector for vectors in shard_vectors for uid, vector in vectors.items()}


def _read_shard_media(folder: Folder, shard_uids: tuple[str, set[str]]) -> dict[str, Floats]:
    return read_window(folder, shard_uids[0]).collect_media(shard_uids[1])


def drop_overlapping_groups(groups: Sequence[CaptionGroup]) -> list[CaptionGroup]:
    """The groups from the largest down, without those that share members with a larger one."""
    disjoint: list[CaptionGroup] = []
    claimed: set[str] = set()
    for group in sorted(groups, key=lambda group: -group.rows):
        if claimed.isdisjoint(group.members):
            disjoint.append(group)
        claimed.update(group.members)
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
    if len(chosen) < 2:
        return []
    texts, text = captions.texts.take(pa.array(chosen)).to_pylist(), window.text[rows[captions.first[chosen]]]
    is_near = mark_near_captions(texts, text)
    templates: list[CaptionTemplate] = []
    while len(templates) < MOST_TEMPLATES:
        weight = is_near.astype(np.float32) @ captions.rows[chosen].astype(np.float32)
        weight[is_near.sum(axis=1) < 2] = 0
        best = int(weight.argmax())
        if weight[best] == 0:
            break
        templates.append(CaptionTemplate(texts[best], int(weight[best]), text[best].copy()))
        members = is_near[best].copy()
        is_near[members] = False
        is_near[:, members] = False
    return templates


def mark_near_captions(texts: Sequence[str], text: Floats) -> Bools:
    """(N, N): whether two captions share most of their word pairs, or have nearly the same vector and characters."""
    is_similar = (text @ text.T >= SIMILAR_TEXT) & (compare_characters(texts, texts) >= SHARED)
    signature = compute_minhashes(texts)
    return np.asarray(is_similar | (estimate_jaccard(signature, signature) >= CORE), bool)


def take_most_frequent(templates: Iterable[CaptionTemplate]) -> list[CaptionTemplate]:
    return sorted(templates, key=lambda template: (-template.rows, template.caption))[: 10 * MOST_TEMPLATES]


def merge_templates(templates: Sequence[CaptionTemplate]) -> list[CaptionTemplate]:
    """Merge templates, the most frequent first, that are near each other; omits rare ones."""
    if not templates:
        return []
    is_near = mark_near_captions([t.caption for t in templates], np.stack([t.text for t in templates]))
    is_merged = np.zeros(len(templates), bool)
    merged = []
    for i, template in enumerate(templates):
        if not is_merged[i]:
            rows = sum(templates[j].rows for j in np.flatnonzero(is_near[i]).tolist())
            merged.append(replace(template, rows=rows))
            is_merged |= is_near[i]
    merged.sort(key=lambda template: -template.rows)
    return [template for template in merged if template.rows >= SMALLEST][:MOST_TEMPLATES]


def count_template_uses(
    folder: Folder, templates: Sequence[CaptionTemplate], incomplete: Collection[str], shard: str
) -> list[TemplateUses]:
    """Count the uses of each template in a shard; `incomplete` are the shards in which captions lack a medium."""
    medium_columns = ["caption_index", "visual"] if shard in incomplete else []
    table = folder.read_table(name_embeddings_file(shard), ["uid", "caption", "caption_hash", "text", *medium_columns])
    is_counted = has_vector(table, "text")
    if medium_columns:
        _, sample = number_samples(table)
        is_counted &= np.isin(sample, sample[has_vector(table, "visual")])
    rows = np.flatnonzero(is_counted)
    captions = count_distinct_captions(table.column("caption").take(pa.array(rows)))
    first = rows[captions.first]
    counted, core = match_templates(captions.texts.to_pylist(), table.column("text"), first, templates)
    caption, template = np.nonzero(counted)
    total = np.bincount(template, captions.rows[caption], len(templates))
    uses = []
    for i in range(len(templates)):
        near = np.flatnonzero(core[:, i])
        members = table.column("uid").take(pa.array(first[near[:MEMBERS]])).to_pylist()
        examples = captions.texts.take(pa.array(near[:SHOWN])).to_pylist()
        spellings = first[caption[template == i]]
        hashes = frozenset(table.column("caption_hash").take(pa.array(spellings)).to_pylist())
        uses.append(TemplateUses(int(total[i]), len(near), tuple(examples), tuple(members), hashes))
    return uses


def match_templates(
    texts: Sequence[str], vectors: pa.ChunkedArray, rows: Ints, templates: Sequence[CaptionTemplate]
) -> tuple[Bools, Bools]:
    """(N, T): the captions that count as uses of a template, and those near enough to belong to its group."""
    is_similar = compare_vectors(vectors, rows, np.stack([template.text for template in templates]))
    template_texts = [template.caption for template in templates]
    similar = np.flatnonzero(is_similar.any(axis=1))
    is_similar[similar] &= compare_characters([texts[row] for row in similar.tolist()], template_texts) >= SHARED
    lines, jaccard = compare_words(texts, template_texts)
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


def compare_characters(texts: Sequence[str], other_texts: Sequence[str]) -> Floats:
    """(N, M): the Jaccard index of the sets of adjacent characters, which captions have in every script."""
    from scipy.sparse import csr_array

    end = ord("\n")  # no normalized caption contains it
    lines = "\n".join([*normalize_captions([*texts, *other_texts]), ""])
    letters = np.frombuffer(lines.encode("utf-32-le"), np.uint32).astype(np.int64)
    is_pair = letters[:-1] != end  # the last character and the end are a pair, too
    row = np.cumsum(letters == end)[:-1][is_pair]
    kinds, column = np.unique((letters[:-1] << 32 | letters[1:])[is_pair], return_inverse=True)
    shape = len(texts) + len(other_texts), len(kinds)
    pairs = csr_array((np.ones(len(row), np.float32), (row, column)), shape=shape)
    pairs.sum_duplicates()
    pairs.data[:] = 1
    sizes = np.diff(pairs.indptr).astype(np.float32)
    shared: Floats = (pairs[: len(texts)] @ pairs[len(texts) :].T).toarray()
    union = sizes[: len(texts), None] + sizes[len(texts) :] - shared
    return np.asarray(shared / np.maximum(union, np.float32(1)), np.float32)


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
    hashes = frozenset[int]().union(*(use.hashes for use in uses))
    return CaptionGroup(tuple(captions)[:SHOWN], rows, 1, tuple(members[::step][:MEMBERS]), "near", hashes=hashes)

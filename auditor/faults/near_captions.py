"""Captions made from one template: hardly two are the same, but most of their words are, and their media are unlike.

"Portrait of Ann Lee, free stock photo", four thousand times with another name. Within each shard captions are near by
MinHash of their pairs of neighbouring words, or by their embeddings; the one with the most near ones stands for its
group. The groups of all shards are then counted in a second reading, so that no more than some captions of a shard are
in memory at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from auditor.faults.captions import ALIKE_TEXT, MEMBERS, SMALLEST, CaptionGroup, Hashes, signatures
from auditor.faults.passage import read_passage
from auditor.score.pair_sample import Each, in_turn
from auditor.store.embeddings import file_name, matrix
from auditor.store.folder import Folder
from auditor.vectors import Bools, Floats

CORE, COUNTED = 0.5, 0.35  # share of equal MinHashes, about the Jaccard of the word pairs: to be a group, to be counted
UNLIKE = 0.8  # spread of the media from which near captions are boilerplate: people say like things of like media
PER_SHARD = 500  # captions compared with each other
MOST_TEMPLATES = 200
SHOWN = 3  # spellings kept


@dataclass(frozen=True, slots=True)
class Captions:
    """The distinct captions of a shard, each with one of its rows."""

    texts: tuple[str, ...]
    uids: tuple[str, ...]
    rows: npt.NDArray[np.int64]  # how many have it
    text: Floats  # (N, D)
    visual: Floats  # (N, D) of that row

    def take(self, chosen: npt.NDArray[np.int64]) -> "Captions":
        picked = [self.texts[i] for i in chosen], [self.uids[i] for i in chosen]
        return Captions(tuple(picked[0]), tuple(picked[1]), self.rows[chosen], self.text[chosen], self.visual[chosen])


@dataclass(frozen=True, slots=True)
class Template:
    """A caption that stands for those near it."""

    caption: str
    rows: int
    text: Floats  # (D,)


@dataclass(frozen=True, slots=True)
class Uses:
    """What one shard has of a template: rows; of the nearest captions how many there are, and media of some."""

    rows: int
    spellings: int
    captions: tuple[str, ...]
    visual: dict[str, Floats]  # by uid


def near_groups(
    folder: Folder, shards: Sequence[str], each: Each = in_turn
) -> tuple[list[CaptionGroup], dict[str, Floats]]:
    """Groups of captions that are near each other, the largest first, and the vectors of some of their media."""
    found = [template for some in each(partial(shard_templates, folder), shards) for template in some]
    templates = [template for template in distinct(found) if template.rows >= SMALLEST][:MOST_TEMPLATES]
    if not templates:
        return [], {}
    uses = list(each(partial(uses_in, folder, templates), shards))
    groups = [as_group(template, [use[i] for use in uses]) for i, template in enumerate(templates)]
    vectors = {uid: vector for use in uses for one in use for uid, vector in one.visual.items()}
    return apart([group for group in groups if group is not None]), vectors


def apart(groups: Sequence[CaptionGroup]) -> list[CaptionGroup]:
    """The largest first; a group that shares rows with a larger one is part of it."""
    kept: list[CaptionGroup] = []
    taken: set[str] = set()
    for group in sorted(groups, key=lambda group: -group.rows):
        if not taken & set(group.members):
            kept.append(group)
        taken |= set(group.members)
    return kept


def read_captions(folder: Folder, shard: str) -> Captions:
    passage = read_passage(folder, shard)
    table = folder.read_table(file_name(shard), ["caption", "text"])
    vectors = table.column("text").combine_chunks()
    rows = np.flatnonzero(vectors.is_valid().to_numpy(zero_copy_only=False))  # those of passage.uids
    there = np.flatnonzero(passage.scene.present[passage.sample])
    captions = table.column("caption").take(rows[there]).to_pylist()
    # as objects: an array of str_ gives every caption the length of the longest
    texts, first, counts = np.unique(np.array(captions, object), return_index=True, return_counts=True)
    chosen = there[first]
    text = matrix(vectors, table.schema.field("text").type.list_size)[rows[chosen]]
    visual = passage.scene.visual[passage.sample[chosen]]
    return Captions(tuple(texts.tolist()), tuple(passage.uids[i] for i in chosen), counts, text, visual)


def shard_templates(folder: Folder, shard: str) -> list[Template]:
    """The captions of a shard that have at least one near them, other than themselves; the most frequent first."""
    found = read_captions(folder, shard)
    chosen = np.sort(np.random.default_rng(0).permutation(len(found.texts))[:PER_SHARD])
    return templates_of(found.take(chosen)) if len(chosen) > 1 else []


def templates_of(found: Captions) -> list[Template]:
    near = near_each_other(signatures(found.texts), found.text)
    rows = found.rows.astype(np.float32)
    templates: list[Template] = []
    while len(templates) < MOST_TEMPLATES:
        weight = near.astype(np.float32) @ rows
        weight[near.sum(axis=1) < 2] = 0
        best = int(weight.argmax())
        if weight[best] == 0:
            break
        templates.append(Template(found.texts[best], int(weight[best]), found.text[best]))
        taken = near[best].copy()
        near[taken] = False
        near[:, taken] = False
    return templates


def near_each_other(signature: Hashes, text: Floats) -> Bools:
    """(N, N): whether two captions share most of their word pairs, or nearly their vector."""
    near = text @ text.T >= ALIKE_TEXT
    return np.asarray(near | (agreement(signature, signature) >= CORE), bool)


def agreement(signature: Hashes, others: Hashes) -> Floats:
    """(N, M): the share of equal hashes."""
    same = np.zeros((len(signature), len(others)), np.float32)
    for i in range(signature.shape[1]):
        same += signature[:, i, None] == others[None, :, i]
    return same / np.float32(signature.shape[1])


def distinct(templates: Sequence[Template]) -> list[Template]:
    """Templates of all shards, near ones as one, the most frequent first."""
    kept: list[Template] = []
    found = sorted(templates, key=lambda template: (-template.rows, template.caption))[: 10 * MOST_TEMPLATES]
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


def uses_in(folder: Folder, templates: Sequence[Template], shard: str) -> list[Uses]:
    """What a shard has of each template."""
    found = read_captions(folder, shard)
    if not found.texts:
        return [Uses(0, 0, (), {}) for _ in templates]
    alike = agreement(signatures(found.texts), signatures([t.caption for t in templates]))  # (N, T)
    same = found.text @ np.stack([t.text for t in templates]).T >= ALIKE_TEXT
    return [_uses(found, alike[:, i], same[:, i]) for i in range(len(templates))]


def _uses(found: Captions, alike: Floats, same: Bools) -> Uses:
    rows = int(found.rows[same | (alike >= COUNTED)].sum())
    core = np.flatnonzero(same | (alike >= CORE))
    visual = {found.uids[j]: found.visual[j] for j in core[:MEMBERS]}
    return Uses(rows, len(core), tuple(found.texts[j] for j in core[:SHOWN]), visual)


def as_group(template: Template, uses: Sequence[Uses]) -> CaptionGroup | None:
    """The uses of a template in all shards; None where few captions are near it."""
    rows, spellings = sum(use.rows for use in uses), sum(use.spellings for use in uses)
    if spellings < SMALLEST:
        return None
    captions = dict.fromkeys([template.caption, *(caption for use in uses for caption in use.captions)])
    members = [uid for use in uses for uid in use.visual]
    step = max(1, len(members) // MEMBERS)
    return CaptionGroup(tuple(captions)[:SHOWN], rows, 1, tuple(members[::step][:MEMBERS]), "near")

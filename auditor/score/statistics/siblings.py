"""Siblings: the other captions of a medium, as one record, whatever their number.

Siblings are collected within a shard, so a reference sample includes the siblings of its pairs even if these are not
in the sample themselves. NumPy only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from auditor.vectors import Bools, Floats, Ints, MediaVectors, concatenate_ranges, multiply_rows

MOST_SIBLINGS = 8  # upper limit per caption, for media with very many captions
NEARLY_EQUAL = 0.98  # cosine from which one caption repeats another: it is no second opinion


@dataclass(frozen=True, slots=True)
class Siblings:
    """The other captions of the media of N pairs, concatenated."""

    owner: Ints  # (M,) row of the pair whose sibling it is, non-decreasing
    row: Ints  # (M,) row of `text`
    text: Floats  # (T, D)
    similarity: Floats  # (T,) of each caption with its medium

    def select(self, captions: Bools) -> "Siblings | None":
        """Only these captions (T,); None if none is left."""
        position = np.flatnonzero(captions[self.row])
        return replace(self, owner=self.owner[position], row=self.row[position]) if len(position) else None

    def take(self, pairs: Ints) -> "Siblings":
        """The siblings of these pairs, which are renumbered."""
        first = np.searchsorted(self.owner, pairs, "left")
        size = np.searchsorted(self.owner, pairs, "right") - first
        position = concatenate_ranges(first, size)
        captions, row = np.unique(self.row[position], return_inverse=True)
        return Siblings(np.repeat(np.arange(len(pairs)), size), row, self.text[captions], self.similarity[captions])


def collect_siblings(group: Ints, media: MediaVectors, text: Floats) -> Siblings | None:
    """The siblings of every pair; pairs of one group share a medium. None if no pair has any.

    A caption that repeats the pair's own, or another sibling, does not count: copies of a pair must not vouch for it.
    """
    owner, row = pair_sibling_rows(group)
    repeats = multiply_rows(text, owner, text, row) >= NEARLY_EQUAL
    first = np.arange(len(group))  # the first row of the group with this caption
    np.minimum.at(first, owner[repeats], row[repeats])
    position = np.flatnonzero(~repeats)
    distinct = np.unique(np.stack([owner[position], first[row[position]]]), axis=1, return_index=True)[1]
    owner, row = owner[position[distinct]], row[position[distinct]]
    return Siblings(owner, row, text, media.own_similarity(text)) if len(owner) else None


def pair_sibling_rows(group: Ints, limit: int = MOST_SIBLINGS) -> tuple[Ints, Ints]:
    """(row, sibling) of every two rows of one group; in large groups, only the next `limit` rows, cyclically."""
    order = np.argsort(group, kind="stable")
    _, first, size = np.unique(group[order], return_index=True, return_counts=True)
    start, length = np.repeat(first, size), np.repeat(size, size)
    owners, siblings = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for step in range(1, min(limit, int(size.max(initial=1)) - 1) + 1):
        position = np.flatnonzero(length > step)
        owners.append(order[position])
        siblings.append(order[start[position] + (position - start[position] + step) % length[position]])
    owner, sibling = np.concatenate(owners), np.concatenate(siblings)
    sort = np.argsort(owner, kind="stable")
    return owner[sort], sibling[sort]


def concatenate_siblings(parts: Sequence[Siblings | None], counts: Sequence[int]) -> Siblings | None:
    """The siblings of several parts with these numbers of pairs, as one."""
    columns, pairs, captions = [], 0, 0
    for part, count in zip(parts, counts, strict=True):
        if part is not None:
            columns.append((part.owner + pairs, part.row + captions, part.text, part.similarity))
            captions += len(part.text)
        pairs += count
    return Siblings(*map(np.concatenate, zip(*columns, strict=True))) if columns else None


def merge_siblings(first: Siblings | None, second: Siblings) -> Siblings:
    """The siblings of the same pairs from two sources."""
    if first is None:
        return second
    owner = np.concatenate([first.owner, second.owner])
    row = np.concatenate([first.row, second.row + len(first.text)])
    order = np.argsort(owner, kind="stable")
    text, similarity = (
        np.concatenate(sides) for sides in ((first.text, second.text), (first.similarity, second.similarity))
    )
    return Siblings(owner[order], row[order], text, similarity)

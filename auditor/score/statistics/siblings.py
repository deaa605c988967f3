"""The other captions of a medium, as one record, however many there are of each.

They are found where rows stand: in a shard. So a reference sample brings along the siblings of its pairs, though these
are not themselves in the sample. NumPy only.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from auditor.vectors import Floats, Ints, Rows

MOST = 8  # of a medium with very many captions only some are asked


@dataclass(frozen=True, slots=True)
class Siblings:
    """The other captions of the media of N pairs, one after another: whose they are, and which caption."""

    owner: Ints  # (M,) row of the pair whose sibling it is, non-decreasing
    row: Ints  # (M,) of the captions below
    text: Floats  # (T, D)
    similarity: Floats  # (T,) of each caption with its medium

    def __len__(self) -> int:
        return len(self.owner)

    def take(self, rows: Rows, count: int) -> "Siblings":
        """Those of some of the `count` pairs, which are numbered anew."""
        chosen = np.arange(count)[rows]
        first = np.searchsorted(self.owner, chosen, "left")
        size = np.searchsorted(self.owner, chosen, "right") - first
        at = np.arange(int(size.sum())) + np.repeat(first - (np.cumsum(size) - size), size)
        kept, row = np.unique(self.row[at], return_inverse=True)
        return Siblings(np.repeat(np.arange(len(chosen)), size), row, self.text[kept], self.similarity[kept])


def siblings_of(group: Ints, text: Floats, similarity: Floats) -> Siblings | None:
    """The siblings of every pair among pairs of which those of one group share a medium; None where none has any."""
    owner, row = sibling_rows(group)
    return Siblings(owner, row, text, similarity) if len(owner) else None


def sibling_rows(group: Ints, most: int = MOST) -> tuple[Ints, Ints]:
    """(row, sibling) of every two rows with one group; of large groups those that follow, round and round."""
    order = np.argsort(group, kind="stable")
    _, first, size = np.unique(group[order], return_index=True, return_counts=True)
    start, length = np.repeat(first, size), np.repeat(size, size)
    owners, others = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for step in range(1, min(most, int(size.max(initial=1)) - 1) + 1):
        at = np.flatnonzero(length > step)
        owners.append(order[at])
        others.append(order[start[at] + (at - start[at] + step) % length[at]])
    owner, other = np.concatenate(owners), np.concatenate(others)
    sort = np.argsort(owner, kind="stable")
    return owner[sort], other[sort]


def concatenate(parts: Sequence[Siblings | None], counts: Sequence[int]) -> Siblings | None:
    """Siblings of several parts of so many pairs as one."""
    found, pairs, captions = [], 0, 0
    for part, count in zip(parts, counts, strict=True):
        if part is not None:
            found.append(Siblings(part.owner + pairs, part.row + captions, part.text, part.similarity))
            captions += len(part.text)
        pairs += count
    if not found:
        return None
    return Siblings(
        np.concatenate([part.owner for part in found]),
        np.concatenate([part.row for part in found]),
        np.concatenate([part.text for part in found]),
        np.concatenate([part.similarity for part in found]),
    )

"""The other captions of a medium, as one record, however many there are of each.

They are found where rows stand: in a shard. So a reference sample brings along the siblings of its pairs, though these
are not themselves in the sample. NumPy only.
"""

from dataclasses import dataclass

import numpy as np

from auditor.vectors import Floats, Ints, Rows

MOST = 8  # of a medium with very many captions only some are asked


@dataclass(frozen=True, slots=True)
class Siblings:
    """The other captions of media, one after another: whose they are, their vectors, and how well they fit."""

    owner: Ints  # (M,) row of the pair whose sibling it is
    text: Floats  # (M, D)
    similarity: Floats  # (M,) with their medium

    def take(self, rows: Rows, count: int) -> "Siblings":
        """Those of some of the `count` pairs, which are numbered anew."""
        place = np.full(count, -1, np.int64)
        chosen = np.arange(count)[rows]
        place[chosen] = np.arange(len(chosen))
        keep = place[self.owner] >= 0
        return Siblings(place[self.owner[keep]], self.text[keep], self.similarity[keep])


def siblings_of(group: Ints, text: Floats, similarity: Floats) -> Siblings:
    """The siblings of every pair among pairs of which those of one group share a medium."""
    owner, other = sibling_rows(group)
    return Siblings(owner, text[other], similarity[other])


def sibling_rows(group: Ints, most: int = MOST) -> tuple[Ints, Ints]:
    """(row, sibling) of every pair of rows with one group; of large groups those that follow, round and round."""
    order = np.argsort(group, kind="stable")
    _, first, size = np.unique(group[order], return_index=True, return_counts=True)
    start, length = np.repeat(first, size), np.repeat(size, size)
    owners, others = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for step in range(1, min(most, int(size.max(initial=1)) - 1) + 1):
        at = np.flatnonzero(length > step)
        owners.append(order[at])
        others.append(order[start[at] + (at - start[at] + step) % length[at]])
    return np.concatenate(owners), np.concatenate(others)

"""Divide the rows of an audit into strata and allocate labels to them. NumPy only.

Rows that the flag and the filter treat alike form a group. Within a group, rows are ordered by suspicion and cut so
that each stratum has the same expected spread sqrt(p (1 - p)) and gets the same number of labels. If p_mismatch is
right, this is Neyman's optimal allocation; if it is wrong, intervals get wider but still cover, because they depend
on the labels only.
"""

from dataclasses import dataclass

import numpy as np

from auditor.vectors import Bools, Doubles, Ints

DOUBT = 0.05  # bounds p away from 0 and 1 when labels are allocated
PER_STRATUM = 8  # labels
MOST = 16  # strata per group; more do not help
PRECISION = 0.25  # the flag's precision may have an interval four times as wide as the corpus's share


@dataclass(frozen=True, slots=True)
class Stratification:
    """Rows divided into strata; the rows of a stratum share the flag and the filter's decision."""

    stratum: Ints  # (N,) of each row
    labels: Ints  # (H,) to draw from each
    flagged: Bools  # (H,)
    removed: Bools  # (H,)

    @property
    def rows(self) -> Ints:
        return np.bincount(self.stratum, minlength=len(self.labels))


def stratify_rows(p: Doubles, suspicion: Doubles, flagged: Bools, removed: Bools, labels: int) -> Stratification:
    """Divide rows for a number of labels. `suspicion` orders rows (on any scale); p may be wrong but not NaN."""
    doubtful = (p + DOUBT) / (1 + 2 * DOUBT)
    spread = np.sqrt(doubtful * (1 - doubtful))
    group = 2 * flagged.astype(np.int64) + removed
    present, sizes = np.unique(group, return_counts=True)
    share = max(int(flagged.sum()), 1) / len(p)
    boost = np.where(flagged, np.sqrt(1 + (PRECISION / share) ** 2), 1.0)
    mass = np.array([(spread * boost)[group == number].sum() for number in present])
    stratum = np.zeros(len(p), np.int64)
    groups: list[int] = []  # of each stratum
    label_counts: list[int] = []
    for number, labels_of_group in zip(present.tolist(), allocate_labels(mass, sizes, labels).tolist(), strict=True):
        members = np.flatnonzero(group == number)
        for rows, count in split_group(members, suspicion[members], spread[members], labels_of_group):
            stratum[rows] = len(groups)
            groups.append(number)
            label_counts.append(count)
    kinds = np.array(groups)
    return Stratification(stratum, np.array(label_counts, np.int64), kinds >= 2, kinds % 2 == 1)


def allocate_labels(mass: Doubles, rows: Ints, labels: int) -> Ints:
    """Allocate labels in proportion to mass, at least one for each part and at most its rows."""
    allocation: Ints = np.minimum(rows, 1)
    target = mass / mass.sum() * labels
    while (remaining := min(labels, int(rows.sum())) - int(allocation.sum())) > 0:
        room = allocation < rows
        added = np.floor(remaining * np.where(room, mass, 0) / mass[room].sum()).astype(np.int64)
        if not added.any():
            added[np.where(room, target - allocation, -np.inf).argmax()] = 1
        allocation = np.minimum(allocation + added, rows)
    return allocation


def split_group(members: Ints, suspicion: Doubles, spread: Doubles, labels: int) -> list[tuple[Ints, int]]:
    """Split a group into strata of equal spread, from the least to the most suspicious, with their label counts."""
    parts = max(1, min(labels // PER_STRATUM, MOST, len(members)))
    order = np.argsort(suspicion, kind="stable")
    reached = np.cumsum(spread[order]) / spread.sum()
    edges = np.searchsorted(reached, np.arange(1, parts) / parts, "right")
    pieces = [piece for piece in np.split(members[order], edges) if len(piece)]
    label_counts = allocate_labels(np.ones(len(pieces)), np.array([len(piece) for piece in pieces]), labels)
    return list(zip(pieces, label_counts.tolist(), strict=True))


def draw_rows(division: Stratification, seed: int) -> tuple[Ints, Ints]:
    """Draw rows to judge, and their strata, in an order in which every prefix is a fair sample."""
    generator = np.random.default_rng(seed)
    picked, place = [], []
    for h, count in enumerate(division.labels.tolist()):
        rows = generator.choice(np.flatnonzero(division.stratum == h), count, replace=False)
        picked.append(rows)
        place.append((np.arange(count) + generator.random()) / max(count, 1))
    rows = np.concatenate(picked)
    order = np.argsort(np.concatenate(place), kind="stable")
    return rows[order], division.stratum[rows[order]]

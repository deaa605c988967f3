"""Which rows to judge: strata of an audit and how many labels each gets. NumPy only.

Rows that a flag or a filter treats alike form a group. Within a group rows are ordered by suspicion and cut so that
each stratum holds the same expected spread sqrt(p (1 - p)), and each stratum gets the same number of labels: where
p_mismatch is right this is the best division there is (Neyman's), and where it is wrong only the width suffers, never
the coverage, because the interval reads nothing but the labels.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

DOUBT = 0.05  # no p is taken for surer than this when labels are divided
PER_STRATUM = 8  # labels
MOST = 16  # strata of a group: more gain nothing
PRECISION = 0.25  # the flag's precision may have an interval four times as wide as the corpus's share


@dataclass(frozen=True, slots=True)
class Division:
    """Rows divided into strata; a stratum's members share flag and filter decision."""

    stratum: Ints  # (N,) of each row
    labels: Ints  # (H,) to draw from each
    flagged: Bools  # (H,)
    removed: Bools  # (H,)

    @property
    def rows(self) -> Ints:
        return np.bincount(self.stratum, minlength=len(self.labels))


def divide(p: Doubles, suspicion: Doubles, flagged: Bools, removed: Bools, labels: int) -> Division:
    """Divide rows for a number of labels. `suspicion` orders rows (any scale); p may be wrong, but not NaN."""
    spread = np.sqrt(doubtful(p) * (1 - doubtful(p)))
    group = 2 * flagged.astype(np.int64) + removed
    present = np.unique(group)
    share = max(int(flagged.sum()), 1) / len(p)
    boost = np.where(flagged, np.sqrt(1 + (PRECISION / share) ** 2), 1.0)
    mass = np.array([(spread * boost)[group == one].sum() for one in present])
    given = allotted(mass, np.array([(group == one).sum() for one in present]), labels)
    stratum = np.zeros(len(p), np.int64)
    parts: list[tuple[int, int]] = []  # group, labels
    for one, count in zip(present.tolist(), given.tolist(), strict=True):
        at = np.flatnonzero(group == one)
        for rows, few in cut(at, suspicion[at], spread[at], count):
            stratum[rows] = len(parts)
            parts.append((one, few))
    groups = np.array([one for one, _ in parts])
    return Division(stratum, np.array([few for _, few in parts], np.int64), groups >= 2, groups % 2 == 1)


def doubtful(p: Doubles) -> Doubles:
    return (p + DOUBT) / (1 + 2 * DOUBT)


def allotted(mass: Doubles, rows: Ints, labels: int) -> Ints:
    """Whole labels in proportion to mass, at least one for each part, none beyond its rows."""
    found: Ints = np.minimum(rows, 1)
    target = mass / mass.sum() * labels
    while (left := min(labels, int(rows.sum())) - int(found.sum())) > 0:
        room = found < rows
        given = np.floor(left * np.where(room, mass, 0) / mass[room].sum()).astype(np.int64)
        if not given.any():
            given[np.where(room, target - found, -np.inf).argmax()] = 1
        found = np.minimum(found + given, rows)
    return found


def cut(at: Ints, suspicion: Doubles, spread: Doubles, labels: int) -> list[tuple[Ints, int]]:
    """A group cut into strata of equal spread, from the least to the most suspicious, with their labels."""
    parts = max(1, min(labels // PER_STRATUM, MOST, len(at)))
    order = np.argsort(suspicion, kind="stable")
    reached = np.cumsum(spread[order]) / spread.sum()
    edges = np.searchsorted(reached, np.arange(1, parts) / parts, "right")
    pieces = [piece for piece in np.split(at[order], edges) if len(piece)]
    few = allotted(np.ones(len(pieces)), np.array([len(piece) for piece in pieces]), labels)
    return list(zip(pieces, few.tolist(), strict=True))


def draw(division: Division, seed: int) -> tuple[Ints, Ints]:
    """Rows to judge, and their strata, in an order in which every beginning is itself a fair sample."""
    generator = np.random.default_rng(seed)
    picked, place = [], []
    for h, count in enumerate(division.labels.tolist()):
        rows = generator.choice(np.flatnonzero(division.stratum == h), count, replace=False)
        picked.append(rows)
        place.append((np.arange(count) + generator.random()) / max(count, 1))
    rows = np.concatenate(picked)
    order = np.argsort(np.concatenate(place), kind="stable")
    return rows[order], division.stratum[rows[order]]

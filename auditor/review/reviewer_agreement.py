"""How well reviewers agree: Cohen's kappa of each two, over the rows that both have marked. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from auditor.query.database import AuditDatabase


@dataclass(frozen=True, slots=True)
class Agreement:
    """Two reviewers: rows that both marked, the share on which they said the same, and kappa, which takes chance off.

    Kappa is None where both always said one and the same word: chance alone would agree then.
    """

    first: str
    second: str
    rows: int
    same: float
    kappa: float | None


def cohens_kappa(first: Sequence[str], second: Sequence[str]) -> float | None:
    """(observed - expected) / (1 - expected) agreement of two lists of marks (Cohen 1960)."""
    if not first:
        return None
    rows = len(first)
    observed = sum(a == b for a, b in zip(first, second, strict=True)) / rows
    counts = Counter(first), Counter(second)
    expected = sum(counts[0][mark] * counts[1][mark] for mark in counts[0]) / rows**2
    return None if expected == 1 else (observed - expected) / (1 - expected)


def agreements(marks: Iterable[Mapping[str, Any]]) -> list[Agreement]:
    """Of each two reviewers with rows in common, most rows first."""
    said: dict[str, dict[tuple[str, int], str]] = {}
    for mark in marks:
        said.setdefault(mark["reviewer"], {})[mark["uid"], mark["caption_index"]] = mark["mark"]
    found = []
    for first, second in combinations(sorted(said), 2):
        both = sorted(said[first].keys() & said[second].keys())
        pairs = [(said[first][row], said[second][row]) for row in both]
        if pairs:
            same = sum(a == b for a, b in pairs) / len(pairs)
            kappa = cohens_kappa([a for a, _ in pairs], [b for _, b in pairs])
            found.append(Agreement(first, second, len(pairs), same, kappa))
    return sorted(found, key=lambda one: -one.rows)


def reviewers_agreement(database: AuditDatabase) -> list[Agreement]:
    return agreements(database.rows("SELECT reviewer, uid, caption_index, mark FROM reviews"))

"""Agreement of reviewers: Cohen's kappa of each pair over the rows that both marked."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from auditor.query.database import AuditDatabase


@dataclass(frozen=True, slots=True)
class ReviewerAgreement:
    """Two reviewers: rows that both marked, the share with equal marks, and kappa, which corrects for chance.

    Kappa is None if both always used the same single mark, because chance alone would agree then.
    """

    first: str
    second: str
    rows: int
    same: float
    kappa: float | None


def compute_kappa(first: Sequence[str], second: Sequence[str]) -> float | None:
    """(observed - expected) / (1 - expected) agreement of two lists of marks (Cohen 1960)."""
    if not first:
        return None
    rows = len(first)
    observed = sum(a == b for a, b in zip(first, second, strict=True)) / rows
    counts = Counter(first), Counter(second)
    expected = sum(counts[0][mark] * counts[1][mark] for mark in counts[0]) / rows**2
    return None if expected == 1 else (observed - expected) / (1 - expected)


def compare_reviewers(marks: Iterable[Mapping[str, Any]]) -> list[ReviewerAgreement]:
    """The agreement of each two reviewers with common rows, the most rows first."""
    marks_by_reviewer: dict[str, dict[tuple[str, int], str]] = {}
    for mark in marks:
        marks_by_reviewer.setdefault(mark["reviewer"], {})[mark["uid"], mark["caption_index"]] = mark["mark"]
    agreements = []
    for first, second in combinations(sorted(marks_by_reviewer), 2):
        common_rows = sorted(marks_by_reviewer[first].keys() & marks_by_reviewer[second].keys())
        pairs = [(marks_by_reviewer[first][row], marks_by_reviewer[second][row]) for row in common_rows]
        if pairs:
            equal_share = sum(a == b for a, b in pairs) / len(pairs)
            kappa = compute_kappa([a for a, _ in pairs], [b for _, b in pairs])
            agreements.append(ReviewerAgreement(first, second, len(pairs), equal_share, kappa))
    return sorted(agreements, key=lambda agreement: -agreement.rows)


def measure_agreement(database: AuditDatabase) -> list[ReviewerAgreement]:
    return compare_reviewers(database.rows("SELECT reviewer, uid, caption_index, mark FROM reviews"))

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
    for (first, marks_a), (second, marks_b) in combinations(sorted(marks_by_reviewer.items()), 2):
        if rows := sorted(marks_a.keys() & marks_b.keys()):
            a, b = [marks_a[row] for row in rows], [marks_b[row] for row in rows]
            same = sum(x == y for x, y in zip(a, b, strict=True)) / len(rows)
            agreements.append(ReviewerAgreement(first, second, len(rows), same, compute_kappa(a, b)))
    return sorted(agreements, key=lambda agreement: -agreement.rows)


def compare_all_reviewers(database: AuditDatabase) -> list[ReviewerAgreement]:
    return compare_reviewers(database.rows("SELECT reviewer, uid, caption_index, mark FROM reviews"))

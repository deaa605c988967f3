"""Queues: which rows to review next, and in which order.

    queue(database, "most suspicious", most=200)

Certification samples (auditor.review) are queues too, in the order in which they were drawn.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from auditor.errors import AuditorError
from auditor.query.database import AuditDatabase
from auditor.query.row_queries import fetch
from auditor.query.sandbox import literal
from auditor.review.label_sample import list_samples
from auditor.schema import build_order_clause

MOST = 200  # rows of a queue
CERTIFICATION = "certification "


class QueueError(AuditorError):
    """A queue that there is not."""


@dataclass(frozen=True, slots=True)
class Place:
    """A row of a queue."""

    uid: str
    caption_index: int
    shard: str


def suspicious(_: AuditDatabase) -> str:
    return build_order_clause("p_mismatch", suspicious_first=True)


def undecided(database: AuditDatabase) -> str:
    """Nearest to where the flag is cut."""
    cut = database.thresholds.get("mismatch")
    return f"abs(p_mismatch - {literal(float(cut) if isinstance(cut, (int, float)) else 0.5)}), uid_order"


def random(_: AuditDatabase) -> str:
    return "hash(uid_order), uid_order"


def disagreement(database: AuditDatabase) -> str:
    """Where similarity and the score behind p_mismatch differ by most deviations of their kind of medium."""
    cases = [
        f"WHEN kind = {literal(row['kind'])} THEN abs((similarity - {row['s']!r}) / {row['ss'] or 1.0!r} - "
        f"(mismatch_score - {row['m']!r}) / {row['ms'] or 1.0!r})"
        for row in moments(database)
    ]
    return f"CASE {' '.join(cases)} END DESC NULLS LAST, uid_order" if cases else "uid_order"


def moments(database: AuditDatabase) -> list[dict[str, Any]]:
    """Mean and deviation of similarity and score, by kind."""
    return database.cached(
        "moments of scores",
        lambda: database.rows(
            "SELECT CAST(kind AS VARCHAR) AS kind, avg(similarity) AS s, stddev_pop(similarity) AS ss, "
            f"avg(mismatch_score) AS m, stddev_pop(mismatch_score) AS ms FROM {database.table('mismatch_score')} "
            "WHERE mismatch_score IS NOT NULL GROUP BY kind ORDER BY kind"
        ),
    )


ORDERS: dict[str, Callable[[AuditDatabase], str]] = {
    "most suspicious": suspicious,
    "nearest the decision": undecided,
    "random": random,
    "p_mismatch and similarity disagree": disagreement,
}


def queue_names(database: AuditDatabase) -> list[str]:
    """All that can be asked for: the orders, and the certification samples that were drawn."""
    drawn = [CERTIFICATION + sample.name for sample in list_samples(database.files.folder)]
    return [*ORDERS, *drawn]


def queue(database: AuditDatabase, name: str, where: str | None = None, most: int = MOST) -> list[Place]:
    """The rows of a queue in order; `where` narrows all but certification samples, which must stay as drawn."""
    if name.startswith(CERTIFICATION):
        wanted = name.removeprefix(CERTIFICATION)
        for sample in list_samples(database.files.folder):
            if sample.name == wanted:
                return [Place(row.uid, row.caption_index, row.shard) for row in sample.rows]
    if name not in ORDERS:
        raise QueueError(f"there is no queue {name!r}; queues are {', '.join(queue_names(database))}")
    condition = f"({database.where(where)}) AND status = 'ok' AND p_mismatch IS NOT NULL"
    rows = fetch(database, condition, ORDERS[name](database), most).to_pylist()
    return [Place(row["uid"], row["caption_index"] or 0, row["shard"]) for row in rows]


def marks_by(database: AuditDatabase, reviewer: str) -> dict[tuple[str, int], str]:
    """What one reviewer has said so far."""
    found = database.rows(f"SELECT uid, caption_index, mark FROM reviews WHERE reviewer = {literal(reviewer)}")
    return {(row["uid"], row["caption_index"]): row["mark"] for row in found}

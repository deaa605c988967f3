"""Review queues: which rows to review next, and in which order.

    fetch_queue(database, "most suspicious", limit=200)

Label samples are queues too, in the order in which they were drawn.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from auditor.errors import AuditorError
from auditor.query.database import AuditDatabase
from auditor.query.row_queries import fetch_rows
from auditor.query.sandbox import quote_literal
from auditor.review.label_sample import list_label_samples
from auditor.schema import build_order_clause

MOST = 200  # rows of a queue
CERTIFICATION = "certification "


@dataclass(frozen=True, slots=True)
class QueueRow:
    uid: str
    caption_index: int
    shard: str


def order_by_doubt(database: AuditDatabase) -> str:
    return f"abs(p_mismatch - {quote_literal(float(database.thresholds['mismatch']))}), uid_order"


def order_by_disagreement(database: AuditDatabase) -> str:
    """Order by the difference of similarity and mismatch_score, each standardized within its kind of medium."""
    cases = [
        f"WHEN kind = {quote_literal(row['kind'])} THEN abs((similarity - {row['s']!r}) / {row['ss'] or 1.0!r} - "
        f"(mismatch_score - {row['m']!r}) / {row['ms'] or 1.0!r})"
        for row in fetch_score_moments(database)
    ]
    return f"CASE {' '.join(cases)} END DESC NULLS LAST, uid_order" if cases else "uid_order"


def fetch_score_moments(database: AuditDatabase) -> list[dict[str, Any]]:
    return database.cached(
        "moments of scores",
        lambda: database.rows(
            "SELECT CAST(kind AS VARCHAR) AS kind, avg(similarity) AS s, stddev_pop(similarity) AS ss, "
            f"avg(mismatch_score) AS m, stddev_pop(mismatch_score) AS ms FROM {database.table('mismatch_score')} "
            "WHERE mismatch_score IS NOT NULL GROUP BY kind ORDER BY kind"
        ),
    )


ORDERS: dict[str, Callable[[AuditDatabase], str]] = {
    "most suspicious": lambda _: build_order_clause("p_mismatch", suspicious_first=True),
    "nearest the decision": order_by_doubt,
    "random": lambda _: "hash(uid_order), uid_order",
    "p_mismatch and similarity disagree": order_by_disagreement,
}


def list_queues(database: AuditDatabase) -> list[str]:
    """The names of all queues: the orders and the label samples that were drawn."""
    return [*ORDERS, *(CERTIFICATION + sample.name for sample in list_label_samples(database.files.folder))]


def fetch_queue(database: AuditDatabase, name: str, where: str | None = None, limit: int = MOST) -> list[QueueRow]:
    """The rows of a queue in order; `where` does not apply to label samples, which must stay as drawn.

    If the encoder cannot judge any of the rows, they come in random order.
    """
    if name.startswith(CERTIFICATION):
        for sample in list_label_samples(database.files.folder):
            if CERTIFICATION + sample.name == name:
                return [QueueRow(row.uid, row.caption_index, row.shard) for row in sample.rows]
    if name not in ORDERS:
        raise AuditorError(f"there is no queue {name!r}; queues are {', '.join(list_queues(database))}")
    chosen = ("uid", "caption_index", "shard")
    usable = f"({database.where(where)}) AND status = 'ok'"
    rows = fetch_rows(database, f"{usable} AND p_mismatch IS NOT NULL", ORDERS[name](database), limit, columns=chosen)
    rows = rows if rows.num_rows else fetch_rows(database, usable, ORDERS["random"](database), limit, columns=chosen)
    return [QueueRow(row["uid"], row["caption_index"] or 0, row["shard"]) for row in rows.to_pylist()]


def fetch_reviewer_marks(database: AuditDatabase, reviewer: str) -> dict[tuple[str, int], str]:
    rows = database.rows(f"SELECT uid, caption_index, mark FROM reviews WHERE reviewer = {quote_literal(reviewer)}")
    return {(row["uid"], row["caption_index"]): row["mark"] for row in rows}

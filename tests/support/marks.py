"""Many marks of a reviewer at once."""

from collections.abc import Callable, Sequence
from typing import Any

from auditor.python_api import Audit
from auditor.query.reviews import make_review
from auditor.review.label_sample import LabelRow


def mark_rows(audit: Audit, rows: Sequence[LabelRow], judge: Callable[[dict[str, Any]], str]) -> None:
    """Mark each row of a label sample as `judge` says of the audit's row."""
    stored = {row["uid"]: row for row in audit.page(limit=10_000).to_pylist()}
    marks = [make_review(row.uid, row.caption_index, judge(stored[row.uid]), "ann", "") for row in rows]
    audit.database.keep_reviews(marks)

"""Every column, flag, status and mark of an audit, declared once: type, label, meaning, direction, unit, use, storage.

All lists of columns derive from here: Parquet files, the view, rules and options of `auditor filter`, summaries,
comparisons, the report, the dashboard and docs/columns.md (written by `python docs/generate.py`). A new column is one
entry in row_columns.py or score_columns.py plus the code that computes it. Plain Python, so that --help starts fast.
"""

from auditor.schema.column import Column, Type, Use
from auditor.schema.row_columns import ROW_COLUMNS
from auditor.schema.score_columns import SCORE_COLUMNS
from auditor.schema.statuses import (
    DEFECTS,
    FLAG_THRESHOLD,
    FLAGS,
    MARKS,
    NO_CAPTIONS,
    STATUSES,
    Defect,
    Flag,
    Mark,
    Status,
    ValueText,
)

__all__ = [
    "COLUMNS", "DEFECTS", "FACTS", "FAILURES", "FLAGS", "FLAG_THRESHOLD", "HEADLINES", "HIGH_IS_SUSPICIOUS", "MARKS",
    "MEASUREMENTS", "NO_CAPTIONS", "RULES", "SCORES", "STATUSES", "STORED", "Column", "Defect", "Flag", "Mark",
    "Status", "Type", "ValueText", "build_order_clause", "list_column_names",
]  # fmt: skip

COLUMNS: dict[str, Column] = {  # in their order on disk
    column.name: column
    for column in (
        *ROW_COLUMNS,  # recorded by the sweep; the same in embeddings/ and samples/
        *SCORE_COLUMNS,  # added by scoring; empty if status is not ok
        *(
            Column(flag.name, "bool", flag.label.capitalize(), flag.meaning, "flag", suspicious="high")
            for flag in FLAGS.values()
        ),
        Column("review", "string", "Review", "mark given by most reviewers of the row", "review"),
    )
}


# The headlines, most informative first, then the others in their order on disk.
RANKED = sorted(COLUMNS.values(), key=lambda column: (column.use != "headline", column.name != "p_mismatch"))


def list_column_names(*uses: Use) -> tuple[str, ...]:
    """Names of the columns with one of these uses, headlines first."""
    return tuple(column.name for column in RANKED if column.use in uses)


FACTS = tuple(column.name for column in ROW_COLUMNS)
SCORES = tuple(column.name for column in SCORE_COLUMNS)
STORED = (*FACTS, *SCORES)  # the columns of samples/; the view joins flags and reviews
ORIGINAL_CAPTION = "original_caption"  # of exports: the audited caption, where another one is written
HEADLINES = list_column_names("headline")
HIGH_IS_SUSPICIOUS = frozenset(name for name, column in COLUMNS.items() if column.suspicious == "high")
MEASUREMENTS = list_column_names("headline", "measurement")
FAILURES = {column.name: column.failure for column in RANKED if column.failure}
RULES: dict[str, Column] = {column.rule_name: column for column in RANKED if column.rule}


def build_order_clause(name: str, *, suspicious_first: bool, quoted: str | None = None) -> str:
    """ORDER BY terms for a column; its tie breaker orders equal values, with the same end first."""
    column = COLUMNS.get(name)
    descending = (column is not None and column.suspicious == "high") == suspicious_first
    order = f"{quoted or name} {'DESC' if descending else 'ASC'} NULLS LAST"
    if column is None or not column.tie_breaker:
        return order
    return f"{order}, {build_order_clause(column.tie_breaker, suspicious_first=suspicious_first)}"

"""Every column, flag, status and mark of an audit, declared once: type, label, meaning, direction, unit, use, storage.

Whatever lists columns derives its list from here: Parquet files, the view, rules and options of `auditor filter`,
summaries, comparisons, the report, the dashboard and docs/columns.md (written by `python docs/generate.py`).
A new column is one entry in the file of its topic and the code that computes it. Plain Python, so that --help can list
columns at once.
"""

from auditor.schema.column import Column, Group, Type, Use
from auditor.schema.column_lists import (
    COLUMNS,
    FACTS,
    HEADLINES,
    HIGH_IS_SUSPICIOUS,
    MEASUREMENTS,
    RULES,
    SCORES,
    STORED,
    named,
    order_sql,
)
from auditor.schema.flags import FLAGS, Flag
from auditor.schema.statuses import MARKS, STATUSES, Mark, Status, Word

__all__ = [
    "COLUMNS",
    "FACTS",
    "FLAGS",
    "HEADLINES",
    "HIGH_IS_SUSPICIOUS",
    "MARKS",
    "MEASUREMENTS",
    "RULES",
    "SCORES",
    "STATUSES",
    "STORED",
    "Column",
    "Flag",
    "Group",
    "Mark",
    "Status",
    "Type",
    "Use",
    "Word",
    "named",
    "order_sql",
]

"""The share of mismatched, ambiguous and unusable rows of each shard, source, topic or any other column."""

from dataclasses import replace

import numpy as np

from auditor.audit_folder.fault_records import Fault
from auditor.query.database import AuditDatabase
from auditor.query.distributions import value_range
from auditor.query.sandbox import literal
from auditor.score.group_shares import FEWEST_GROUPS, GroupShare, estimate_group_shares

FRACTIONS = frozenset({"FLOAT", "DOUBLE"})
RANGES = 20
WORDS = {
    "mismatched": "mismatched",
    "ambiguous": "ambiguous",
    "unusable": "unusable",
}


def compared(database: AuditDatabase, by: str) -> str:
    """SQL of what is compared: the values of a column, or, of fractions that hardly repeat, parts of their range."""
    column = database.column(by, "by")
    found = database.rows(
        f"SELECT any_value(typeof({column})) AS kind, approx_count_distinct({column}) AS many "
        f"FROM {database.table(column)}"
    )[0]
    if found["kind"] not in FRACTIONS or found["many"] <= 2 * RANGES:
        return f"CAST({column} AS VARCHAR)"
    low, high = value_range(database, by)
    step = (high - low) / RANGES
    number = f"greatest(0, least(floor(({column} - {literal(low)}) / {literal(step)}), {RANGES - 1}))"
    first = f"{literal(low)} + {literal(step)} * {number}"
    return f"printf('%.4g to %.4g', {first}, {first} + {literal(step)})"


def group_shares(database: AuditDatabase, by: str) -> dict[str, tuple[list[GroupShare], float]]:
    """The shares of each value of a column, by defect."""
    column = database.column(by, "by")
    table = database.run(
        f"SELECT {compared(database, by)} AS value, count(*) AS rows, "
        "count(p_mismatch) AS scored, coalesce(sum(p_mismatch), 0) AS mismatched, "
        "count(*) FILTER (ambiguous_visual OR ambiguous_text) AS ambiguous, "
        "count(*) FILTER (status <> 'ok') AS unusable, count(*) FILTER (status = 'ok') AS usable "
        f"FROM {database.table(column)} WHERE {column} IS NOT NULL GROUP BY value ORDER BY value"
    )
    numbers = {c: table.column(c).to_numpy().astype(np.float64) for c in table.column_names if c != "value"}
    groups = table.column("value").to_pylist()
    if not groups:
        return {}
    of = {"mismatched": "scored", "ambiguous": "usable", "unusable": "rows"}
    return {defect: estimate_group_shares(groups, numbers[defect], numbers[rows]) for defect, rows in of.items()}


def shard_faults(database: AuditDatabase, by: str = "shard") -> list[Fault]:
    """The groups that stand out, the worst first."""
    found = []
    for defect, (listed, usual) in group_shares(database, by).items():
        if len(listed) < FEWEST_GROUPS:
            continue
        for share in sorted(listed, key=lambda share: -share.share):
            if share.stands_out(usual):
                found.append(_fault(share, defect, usual, by))
    return found


def _fault(share: GroupShare, defect: str, usual: float, by: str) -> Fault:
    sentence = (
        f"{by} {share.group}: {share.share:.0%} {WORDS[defect]} ({share.low:.0%} to {share.high:.0%}), "
        f"usually {usual:.1%}"
    )
    shard = share.group if by == "shard" else None
    fault = Fault("shard", defect, shard, None, None, None, share.rows, share.p_value, sentence, share.group)
    return replace(fault, share=share.share, low=share.low, high=share.high, usual=usual)

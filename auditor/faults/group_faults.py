"""Groups with an unusual share of mismatched, ambiguous or unusable rows, by shard or any other column."""

from dataclasses import replace

import numpy as np

from auditor.audit_folder.fault_records import Fault
from auditor.query.database import AuditDatabase
from auditor.query.distributions import find_value_range
from auditor.query.sandbox import quote_literal
from auditor.score.group_shares import FEWEST_GROUPS, GroupShare, estimate_group_shares

FRACTIONS = frozenset({"FLOAT", "DOUBLE"})
RANGES = 20
WORDS = {
    "mismatched": "mismatched",
    "ambiguous": "ambiguous",
    "unusable": "unusable",
}


def group_value_sql(database: AuditDatabase, column_name: str) -> str:
    """SQL of the group of a row: the value of a column, or its interval if the column has many different fractions."""
    column = database.column(column_name, "by")
    column_facts = database.rows(
        f"SELECT any_value(typeof({column})) AS kind, approx_count_distinct({column}) AS many "
        f"FROM {database.table(column)}"
    )[0]
    if column_facts["kind"] not in FRACTIONS or column_facts["many"] <= 2 * RANGES:
        return f"CAST({column} AS VARCHAR)"
    low, high = find_value_range(database, column_name)
    step = (high - low) / RANGES
    number = f"greatest(0, least(floor(({column} - {quote_literal(low)}) / {quote_literal(step)}), {RANGES - 1}))"
    first = f"{quote_literal(low)} + {quote_literal(step)} * {number}"
    return f"printf('%.4g to %.4g', {first}, {first} + {quote_literal(step)})"


def measure_group_shares(database: AuditDatabase, column_name: str) -> dict[str, tuple[list[GroupShare], float]]:
    """The shares of each value of a column and of the whole corpus, by defect."""
    column = database.column(column_name, "by")
    table = database.run(
        f"SELECT {group_value_sql(database, column_name)} AS value, count(*) AS rows, "
        "count(p_mismatch) AS scored, coalesce(sum(p_mismatch), 0) AS mismatched, "
        "count(*) FILTER (ambiguous_visual OR ambiguous_text) AS ambiguous, "
        "count(*) FILTER (status <> 'ok') AS unusable, count(*) FILTER (status = 'ok') AS usable "
        f"FROM {database.table(column)} WHERE {column} IS NOT NULL GROUP BY value ORDER BY value"
    )
    numbers = {c: table.column(c).to_numpy().astype(np.float64) for c in table.column_names if c != "value"}
    groups = table.column("value").to_pylist()
    if not groups:
        return {}
    totals = {"mismatched": "scored", "ambiguous": "usable", "unusable": "rows"}
    return {defect: estimate_group_shares(groups, numbers[defect], numbers[rows]) for defect, rows in totals.items()}


def find_group_faults(database: AuditDatabase, column_name: str = "shard") -> list[Fault]:
    """The groups with an unusual share, the worst first."""
    faults = []
    for defect, (listed, overall_share) in measure_group_shares(database, column_name).items():
        if len(listed) < FEWEST_GROUPS:
            continue
        for share in sorted(listed, key=lambda share: -share.share):
            if share.stands_out(overall_share):
                faults.append(_describe_group(share, defect, overall_share, column_name))
    return faults


def _describe_group(share: GroupShare, defect: str, overall_share: float, column_name: str) -> Fault:
    sentence = (
        f"{column_name} {share.group}: {share.share:.0%} {WORDS[defect]} ({share.low:.0%} to {share.high:.0%}), "
        f"usually {overall_share:.1%}"
    )
    shard = share.group if column_name == "shard" else None
    fault = Fault("shard", defect, shard, None, None, None, share.rows, share.p_value, sentence, share.group)
    return replace(fault, share=share.share, low=share.low, high=share.high, usual=overall_share)

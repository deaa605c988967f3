"""Groups with an unusual share of mismatched, ambiguous or unusable rows, by shard or any other column."""

import numpy as np

from auditor.audit_folder.fault_records import Fault
from auditor.query.database import AuditDatabase
from auditor.query.distributions import find_value_range
from auditor.query.sandbox import quote_literal
from auditor.score.group_shares import FEWEST_GROUPS, GroupShare, estimate_group_shares

FRACTIONS = frozenset({"FLOAT", "DOUBLE"})
RANGES = 20
TOTALS = {"mismatched": "scored", "ambiguous": "usable", "unusable": "rows"}  # the rows among which a defect counts
DEFECTS = {
    "mismatched": "mismatch",
    "ambiguous": "(ambiguous_visual OR ambiguous_text)",
    "unusable": "status <> 'ok'",
}


def group_value_sql(database: AuditDatabase, column_name: str) -> str:
    """SQL of the group of a row: the value of a column, or its interval if the column has many different fractions."""
    column = database.column(column_name, "by")
    sql = f"SELECT any_value(typeof({column})) AS kind, approx_count_distinct({column}) AS many"
    facts = database.rows(f"{sql} FROM {database.table(column)}")[0]
    if facts["kind"] not in FRACTIONS or facts["many"] <= 2 * RANGES:
        return f"CAST({column} AS VARCHAR)"
    lowest, highest = find_value_range(database, column_name)
    low, step = quote_literal(lowest), quote_literal((highest - lowest) / RANGES)
    first = f"{low} + {step} * greatest(0, least(floor(({column} - {low}) / {step}), {RANGES - 1}))"
    return f"printf('%.4g to %.4g', {first}, {first} + {step})"


def measure_group_shares(database: AuditDatabase, column_name: str) -> dict[str, tuple[list[GroupShare], float]]:
    column = database.column(column_name, "by")
    table = database.run(
        f"SELECT {group_value_sql(database, column_name)} AS value, count(*) AS rows, "
        "count(p_mismatch) AS scored, coalesce(sum(p_mismatch), 0) AS mismatched, "
        f"count(*) FILTER ({DEFECTS['ambiguous']}) AS ambiguous, count(*) FILTER ({DEFECTS['unusable']}) AS unusable, "
        "count(*) FILTER (status = 'ok') AS usable "
        f"FROM {database.table(column)} WHERE {column} IS NOT NULL GROUP BY value ORDER BY value"
    )
    numbers = {c: table.column(c).to_numpy().astype(np.float64) for c in table.column_names if c != "value"}
    groups = table.column("value").to_pylist()
    if not groups:
        return {}
    return {defect: estimate_group_shares(groups, numbers[defect], numbers[rows]) for defect, rows in TOTALS.items()}


def find_group_faults(database: AuditDatabase, column_name: str = "shard") -> list[Fault]:
    """The groups with an unusual share, the worst first."""
    value = "shard" if column_name == "shard" else group_value_sql(database, column_name)
    return [
        _describe_group(share, defect, usual, column_name, value)
        for defect, (shares, usual) in measure_group_shares(database, column_name).items()
        for share in sorted(shares, key=lambda share: -share.share)
        if len(shares) >= FEWEST_GROUPS and share.stands_out(usual)
    ]


def _describe_group(share: GroupShare, defect: str, usual: float, column_name: str, value: str) -> Fault:
    interval = f"({share.low:.0%} to {share.high:.0%})"
    sentence = f"{column_name} {share.group}: {share.share:.0%} {defect} {interval}, usually {usual:.1%}"
    shard = share.group if column_name == "shard" else None
    numbers = share.share, share.low, share.high, usual
    where = f"{value} = {quote_literal(share.group)} AND {DEFECTS[defect]}"
    facts = shard, None, None, None, share.rows, share.p_value, sentence, share.group, *numbers
    return Fault("shard", defect, *facts, where=where)

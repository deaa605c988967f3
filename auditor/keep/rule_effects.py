"""Translate rules into SQL and measure their effects: what each rule removes alone and together with the others.

Rows that could not be audited (status other than ok) are never kept. p_mismatch is calibrated, so its mean over the
removed rows is the expected precision, and the sum of 1 - p is the expected number of good pairs lost.

With `per_medium`, rules decide on media instead of captions; the captions of a medium stay or go together:

| per_medium | a medium is kept if ...                                                                                 |
|------------|---------------------------------------------------------------------------------------------------------|
| `any`      | one of its captions meets all rules                                                                     |
| `all`      | each of its captions meets all rules                                                                    |
| `mean`     | the means of its captions' values are within the limits; `where` still decides caption by caption       |
| `worst`    | the values of its most suspicious caption are within the limits; `where` still decides by caption       |
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from auditor.audit_folder.side_files import overlapping_digests
from auditor.query.database import AuditDatabase
from auditor.query.row_queries import fetch_rows
from auditor.query.rules import PerMedium, RuleError, Rules, build_bound_sql, parse_share
from auditor.query.sandbox import QueryError, quote_literal
from auditor.schema import COLUMNS, HIGH_IS_SUSPICIOUS, build_order_clause


@dataclass(frozen=True, slots=True)
class RuleClause:
    """The name of a rule and the SQL condition of the rows that it keeps."""

    rule: str
    sql: str


@dataclass(frozen=True, slots=True)
class RuleEffect:
    """The effect of a rule on the usable rows."""

    rule: str
    kept: int
    removed: int
    removed_only_by_it: int  # rows that all other rules would keep
    expected_precision: float | None  # share of the removed that are mismatched
    expected_loss: float | None  # share of all well-matched pairs that are removed


@dataclass(frozen=True, slots=True)
class RuleEffects:
    rows: int
    usable: int
    kept: int
    rules: list[RuleEffect]
    together: RuleEffect
    unscored: int = 0  # usable rows without p_mismatch
    unscored_kept: int = 0


STATUS = RuleClause("status", "status = 'ok'")


def build_clauses(database: AuditDatabase, rules: Rules) -> list[RuleClause]:
    """The rules as SQL, the status first; a user's condition has been checked by the sandbox."""
    clauses = [build_bound_clause(database, rules, rule) for rule in rules.limits]
    if rules.keep_top is not None and rules.by is not None:
        clauses.append(RuleClause("keep_top", build_top_sql(database, rules)))
    if rules.where:
        checked = database.where(rules.where)
        database.run(f"SELECT {checked} FROM reviewed AS samples LIMIT 0")  # binding reports unknown columns
        clauses.append(RuleClause("where", f"coalesce({checked}, FALSE)"))
    if rules.no_duplicates:
        clauses.append(RuleClause("no_duplicates", "duplicate_of IS NULL"))
    if rules.no_overlap:
        digests = ", ".join(map(quote_literal, overlapping_digests(database.files.folder, rules.no_overlap)))
        clauses.append(
            RuleClause("no_overlap", f"coalesce(media_digest NOT IN ({digests}), TRUE)" if digests else "TRUE")
        )
    return [STATUS, *(build_media_clauses(database, rules, clauses) if rules.per_medium in ("any", "all") else clauses)]


def build_bound_clause(database: AuditDatabase, rules: Rules, rule: str) -> RuleClause:
    column, comparison, threshold = rules.bounds()[rule]
    if math.isnan(threshold):
        raise RuleError(f"{rule} needs a number")
    quoted = database.column(column, rule)
    bound = build_bound_sql(column, comparison, threshold, missing=rules.unscored == "keep")
    if rules.per_medium in ("mean", "worst"):
        bound = media_value_sql(bound, media_values_sql(column, quoted, rules.per_medium))
    return RuleClause(rule, bound)


def build_media_clauses(database: AuditDatabase, rules: Rules, clauses: Sequence[RuleClause]) -> list[RuleClause]:
    """Turn rules on captions into rules on media; with `any`, one caption must meet all rules at once."""
    together = "bool_and" if rules.per_medium == "all" else "bool_or"
    whole = [
        RuleClause(clause.rule, media_group_sql(f"{together}({clause.sql})", database.stored_table(clause.sql)))
        for clause in clauses
    ]
    if together == "bool_or" and len(clauses) > 1:
        rows = conjoin_clauses(clauses)
        whole.append(RuleClause("per_medium", media_group_sql(f"bool_or({rows})", database.stored_table(rows))))
    return whole


def media_group_sql(having: str, table: str) -> str:
    """SQL condition of the rows of media whose usable rows together meet a HAVING condition."""
    media = f"SELECT shard, key FROM {table} WHERE status = 'ok' GROUP BY shard, key HAVING {having}"
    return f"(shard, key) IN ({media})"


def media_values_sql(column: str, quoted: str, rule: PerMedium) -> str:
    """SQL table with one row per medium: the mean or worst value of a column over its captions."""
    value = "avg" if rule == "mean" else "max" if column in HIGH_IS_SUSPICIOUS else "min"
    # rounded to the precision of measurements, because the last bits of a mean depend on the order of summation
    return (
        f"(SELECT shard, key, CAST({value}({quoted}) AS FLOAT) AS {quoted}, min(uid_order) AS uid_order "
        f"FROM measured WHERE status = 'ok' GROUP BY shard, key) AS media"
    )


def media_value_sql(condition: str, values: str) -> str:
    """SQL condition of the rows of media whose value meets a condition."""
    return f"(shard, key) IN (SELECT shard, key FROM {values} WHERE {condition})"


def conjoin_clauses(clauses: Sequence[RuleClause]) -> str:
    return " AND ".join(f"({clause.sql})" for clause in clauses)


def build_top_sql(database: AuditDatabase, rules: Rules) -> str:
    """SQL condition of the best share of the usable rows, or of media if these are ranked by mean or worst value."""
    assert rules.keep_top is not None and rules.by is not None
    rank_column, share, column = rules.by, parse_share(rules.keep_top), database.column(rules.by, "by")
    values = None
    if rules.per_medium == "mean" or rules.per_medium == "worst":
        values = media_values_sql(rank_column, column, rules.per_medium)
    source = f"{values} WHERE TRUE" if values else f"{database.table(column)} WHERE status = 'ok'"
    usable = f"{source} AND {column} IS NOT NULL"
    ties = "" if values or rank_column not in COLUMNS else COLUMNS[rank_column].tie_breaker
    top = database.cached(
        f"top {share!r} {usable}", lambda: find_top_condition(database, share, rank_column, column, usable, ties)
    )
    condition = f"({top} OR {column} IS NULL)" if rules.unscored == "keep" else top
    return media_value_sql(condition, values) if values else condition


def find_top_condition(
    database: AuditDatabase, share: float | int, rank_column: str, column: str, usable: str, ties: str
) -> str:
    """SQL condition of the exact number of best rows; ties are broken by the column `ties`, if any, then by uid."""
    total = database.rows(f"SELECT count(*) AS n FROM {usable}")[0]["n"]
    count = share if isinstance(share, int) else round(share * total)
    if count >= total:
        return f"{column} IS NOT NULL"
    if count < 1:
        return "FALSE"
    better, order = ("<", "ASC") if rank_column in HIGH_IS_SUSPICIOUS else (">", "DESC")
    cut = find_cut_value(database, usable, column, order, count, total)
    ahead = database.rows(f"SELECT count(*) AS n FROM {usable} AND {column} {better} {cut}")[0]["n"]
    order = ", ".join(
        part for part in (build_order_clause(ties, suspicious_first=False) if ties else "", "uid_order") if part
    )
    chosen = f"{ties or 'NULL'} AS tie, uid_order FROM {usable} AND {column} = {cut}"
    last = database.rows(f"SELECT {chosen} ORDER BY {order} LIMIT 1 OFFSET {count - ahead - 1}")[0]
    among = f"uid_order <= {last['uid_order']}"
    if last["tie"] is not None:
        better_tie, tie = "<" if ties in HIGH_IS_SUSPICIOUS else ">", f"CAST('{last['tie']!r}' AS FLOAT)"
        among = f"({ties} {better_tie} {tie} OR ({ties} = {tie} AND {among}))"
    return f"coalesce({column} {better} {cut} OR ({column} = {cut} AND {among}), FALSE)"


def find_cut_value(database: AuditDatabase, usable: str, column: str, order: str, count: int, total: int) -> str:
    """The exact value of the last row that is kept, as SQL."""
    place = (count if order == "ASC" else total - count + 1) / total
    # quantile_disc(p) is the smallest value with at least p * n values at or below it; half a row avoids rounding
    table = database.run(
        f"SELECT quantile_disc({column}, {place - 0.5 / total!r}) AS cut, any_value(typeof({column})) AS type "
        f"FROM {usable}"
    )
    value, sql_type = table["cut"][0].as_py(), table["type"][0].as_py()
    if isinstance(value, str):
        raise QueryError("keep_top needs a column of numbers")
    return f"CAST({quote_literal(repr(value) if isinstance(value, float) else value)} AS {sql_type})"


def measure_rule_effects(database: AuditDatabase, rules: Rules) -> RuleEffects:
    """Count rows by the combination of rules they meet, in one pass; the rest is arithmetic on a few groups."""
    clauses = build_clauses(database, rules)
    columns = ", ".join(f"({clause.sql}) AS c{i}" for i, clause in enumerate(clauses))
    groups = database.rows(
        f"SELECT {', '.join(f'c{i}' for i in range(len(clauses)))}, count(*) AS n, "
        "coalesce(sum(p_mismatch), 0) AS bad, coalesce(sum(1 - p_mismatch), 0) AS good, "
        "count(*) FILTER (p_mismatch IS NULL) AS unscored "
        f"FROM (SELECT {columns}, CAST(p_mismatch AS DOUBLE) AS p_mismatch "
        f"FROM {database.table(conjoin_clauses(clauses))}) GROUP BY ALL"
    )
    usable = [group for group in groups if group["c0"]]
    numbers = range(1, len(clauses))

    def meets(group: dict[str, Any], but: int | None = None) -> bool:
        return all(group[f"c{i}"] for i in numbers if i != but)

    effects = [
        compute_effect(
            clauses[i].rule,
            usable,
            [group for group in usable if not group[f"c{i}"]],
            sum(group["n"] for group in usable if not group[f"c{i}"] and meets(group, but=i)),
        )
        for i in numbers
    ]
    removed = [group for group in usable if not meets(group)]
    together = compute_effect("all together", usable, removed, sum_groups(removed, "n"))
    unscored = sum_groups(usable, "unscored")
    unscored_kept = unscored - sum_groups(removed, "unscored")
    return RuleEffects(
        sum_groups(groups, "n"), sum_groups(usable, "n"), together.kept, effects, together, unscored, unscored_kept
    )


def sum_groups(groups: Sequence[dict[str, Any]], field: str) -> int:
    return int(sum(group[field] for group in groups))


def compute_effect(
    rule: str, usable: Sequence[dict[str, Any]], removed: Sequence[dict[str, Any]], only: int
) -> RuleEffect:
    bad, good = sum(group["bad"] for group in removed), sum(group["good"] for group in removed)
    all_good = sum(group["good"] for group in usable)
    count = sum_groups(removed, "n")
    return RuleEffect(
        rule=rule,
        kept=sum_groups(usable, "n") - count,
        removed=count,
        removed_only_by_it=only,
        expected_precision=bad / (bad + good) if bad + good else None,
        expected_loss=good / all_good if all_good else None,
    )


def build_reason_sql(clauses: Sequence[RuleClause]) -> str:
    """SQL expression of why a row is removed: its status, or the names of all rules it fails."""
    failed = ", ".join(f"CASE WHEN NOT ({clause.sql}) THEN {quote_literal(clause.rule)} END" for clause in clauses[1:])
    rules = f"concat_ws(', ', {failed})" if failed else "''"
    return f"CASE WHEN status <> 'ok' THEN status ELSE {rules} END"


def fetch_rows_near_cut(database: AuditDatabase, rules: Rules, rule: str, n: int = 10) -> tuple[pa.Table, pa.Table]:
    """The usable rows nearest to the cut of a bound: (just kept, just removed), nearest first."""
    bounds = rules.bounds()
    if rule not in bounds:
        raise RuleError(f"{rule} is not a bound that is set: {', '.join(bounds) or 'none'}")
    column, comparison, threshold = bounds[rule]
    quoted = database.column(column)
    condition = build_bound_sql(column, comparison, threshold)
    down, up = f"{quoted} DESC", f"{quoted} ASC"
    first, second = (down, up) if comparison == "<=" else (up, down)
    usable = f"status = 'ok' AND {quoted} IS NOT NULL"
    return fetch_rows(database, f"{usable} AND {condition}", first, n), fetch_rows(
        database, f"{usable} AND NOT {condition}", second, n
    )

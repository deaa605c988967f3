"""From rules to a decision on every row: what each rule keeps, as SQL, and what it removes alone and together.

Rows that could not be audited (status other than ok) are never kept. Probabilities in p_mismatch are calibrated, so
their mean over removed rows is the expected precision, and the sum of 1 - p the good pairs expected to be lost.

Rules may decide on media instead of single captions (`per_medium`); the captions of a medium then stay or go together:

| per_medium | a medium is kept if ...                                                                                    |
|------------|------------------------------------------------------------------------------------------------------------|
| `any`      | one of its captions meets all rules                                                                        |
| `all`      | each of its captions meets all rules                                                                       |
| `mean`     | the means of its captions' numbers are within the limits; `where` still decides caption by caption         |
| `worst`    | the numbers of its most suspicious caption are within the limits; `where` still decides caption by caption |
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from auditor.audit_folder.side_files import overlapping_digests
from auditor.query.database import AuditDatabase
from auditor.query.row_queries import fetch
from auditor.query.rules import PerMedium, RuleError, Rules, bound_sql, parse_share
from auditor.query.sandbox import QueryError, literal
from auditor.schema import COLUMNS, HIGH_IS_SUSPICIOUS, build_order_clause


@dataclass(frozen=True, slots=True)
class RuleClause:
    """One rule: its name and the SQL of what it keeps."""

    rule: str
    sql: str


@dataclass(frozen=True, slots=True)
class RuleEffect:
    """What a rule does to the usable rows."""

    rule: str
    kept: int
    removed: int
    removed_only_by_it: int  # all other rules would keep them
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
    """The rules as SQL, the status first; a user's condition has passed the sandbox."""
    found = [build_bound_clause(database, rules, rule) for rule in rules.limits]
    if rules.keep_top is not None and rules.by is not None:
        found.append(RuleClause("keep_top", build_top_sql(database, rules)))
    if rules.where:
        checked = database.where(rules.where)
        database.run(f"SELECT {checked} FROM reviewed AS samples LIMIT 0")  # binds: an unknown column is told here
        found.append(RuleClause("where", f"coalesce({checked}, FALSE)"))
    if rules.no_duplicates:
        found.append(RuleClause("no_duplicates", "duplicate_of IS NULL"))
    if rules.no_overlap:
        digests = ", ".join(map(literal, overlapping_digests(database.files.folder, rules.no_overlap)))
        found.append(
            RuleClause("no_overlap", f"coalesce(media_digest NOT IN ({digests}), TRUE)" if digests else "TRUE")
        )
    return [STATUS, *(build_media_clauses(database, rules, found) if rules.per_medium in ("any", "all") else found)]


def build_bound_clause(database: AuditDatabase, rules: Rules, rule: str) -> RuleClause:
    column, comparison, threshold = rules.bounds()[rule]
    if math.isnan(threshold):
        raise RuleError(f"{rule} needs a number")
    quoted = database.column(column, rule)
    bound = bound_sql(column, comparison, threshold, missing=rules.unscored == "keep")
    if rules.per_medium in ("mean", "worst"):
        bound = media_value_sql(bound, media_values_sql(column, quoted, rules.per_medium))
    return RuleClause(rule, bound)


def build_media_clauses(database: AuditDatabase, rules: Rules, found: Sequence[RuleClause]) -> list[RuleClause]:
    """Each rule as one on media; with `any`, one caption must meet all rules at once."""
    together = "bool_and" if rules.per_medium == "all" else "bool_or"
    whole = [
        RuleClause(clause.rule, media_group_sql(f"{together}({clause.sql})", database.stored_table(clause.sql)))
        for clause in found
    ]
    if together == "bool_or" and len(found) > 1:
        rows = conjoin_clauses(found)
        whole.append(RuleClause("per_medium", media_group_sql(f"bool_or({rows})", database.stored_table(rows))))
    return whole


def media_group_sql(having: str, table: str) -> str:
    """SQL that is true for the rows of the media whose usable rows meet a condition together."""
    media = f"SELECT shard, key FROM {table} WHERE status = 'ok' GROUP BY shard, key HAVING {having}"
    return f"(shard, key) IN ({media})"


def media_values_sql(column: str, quoted: str, rule: PerMedium) -> str:
    """What stands after FROM for one row a medium, with the mean or the worst value of a column of its captions."""
    value = "avg" if rule == "mean" else "max" if column in HIGH_IS_SUSPICIOUS else "min"
    # as exact as measurements are: the last bits of a mean depend on the order it was summed in
    return (
        f"(SELECT shard, key, CAST({value}({quoted}) AS FLOAT) AS {quoted}, min(uid_order) AS uid_order "
        f"FROM measured WHERE status = 'ok' GROUP BY shard, key) AS media"
    )


def media_value_sql(condition: str, values: str) -> str:
    """SQL that is true for the rows of the media whose value meets a condition."""
    return f"(shard, key) IN (SELECT shard, key FROM {values} WHERE {condition})"


def conjoin_clauses(found: Sequence[RuleClause]) -> str:
    return " AND ".join(f"({clause.sql})" for clause in found)


def build_top_sql(database: AuditDatabase, rules: Rules) -> str:
    """The best share of the usable rows by a column, or of the media where those are ranked by mean or worst value."""
    assert rules.keep_top is not None and rules.by is not None
    by, share, column = rules.by, parse_share(rules.keep_top), database.column(rules.by, "by")
    values = None
    if rules.per_medium == "mean" or rules.per_medium == "worst":
        values = media_values_sql(by, column, rules.per_medium)
    source = f"{values} WHERE TRUE" if values else f"{database.table(column)} WHERE status = 'ok'"
    usable = f"{source} AND {column} IS NOT NULL"
    ties = "" if values or by not in COLUMNS else COLUMNS[by].tie_breaker
    top = database.cached(
        f"top {share!r} {usable}", lambda: find_top_condition(database, share, by, column, usable, ties)
    )
    kept = f"({top} OR {column} IS NULL)" if rules.unscored == "keep" else top
    return media_value_sql(kept, values) if values else kept


def find_top_condition(
    database: AuditDatabase, share: float | int, by: str, column: str, usable: str, ties: str
) -> str:
    """To the row: ties at the cut are decided by the column behind this one (`ties`, if any), then by uid."""
    total = database.rows(f"SELECT count(*) AS n FROM {usable}")[0]["n"]
    wanted = share if isinstance(share, int) else round(share * total)
    if wanted >= total:
        return f"{column} IS NOT NULL"
    if wanted < 1:
        return "FALSE"
    better, order = ("<", "ASC") if by in HIGH_IS_SUSPICIOUS else (">", "DESC")
    cut = find_cut_value(database, usable, column, order, wanted, total)
    ahead = database.rows(f"SELECT count(*) AS n FROM {usable} AND {column} {better} {cut}")[0]["n"]
    order = ", ".join(
        part for part in (build_order_clause(ties, suspicious_first=False) if ties else "", "uid_order") if part
    )
    chosen = f"{ties or 'NULL'} AS tie, uid_order FROM {usable} AND {column} = {cut}"
    last = database.rows(f"SELECT {chosen} ORDER BY {order} LIMIT 1 OFFSET {wanted - ahead - 1}")[0]
    among = f"uid_order <= {last['uid_order']}"
    if last["tie"] is not None:
        better_tie, tie = "<" if ties in HIGH_IS_SUSPICIOUS else ">", f"CAST('{last['tie']!r}' AS FLOAT)"
        among = f"({ties} {better_tie} {tie} OR ({ties} = {tie} AND {among}))"
    return f"coalesce({column} {better} {cut} OR ({column} = {cut} AND {among}), FALSE)"


def find_cut_value(database: AuditDatabase, usable: str, column: str, order: str, wanted: int, total: int) -> str:
    """The value of the last row that is kept, exactly."""
    place = (wanted if order == "ASC" else total - wanted + 1) / total
    # quantile_disc(p) is the smallest value with at least p * n values at or below it; half a row keeps rounding away
    found = database.run(
        f"SELECT quantile_disc({column}, {place - 0.5 / total!r}) AS cut, any_value(typeof({column})) AS type "
        f"FROM {usable}"
    )
    value, sql_type = found["cut"][0].as_py(), found["type"][0].as_py()
    if isinstance(value, str):
        raise QueryError("keep_top needs a column of numbers")
    return f"CAST({literal(repr(value) if isinstance(value, float) else value)} AS {sql_type})"


def measure_rule_effects(database: AuditDatabase, rules: Rules) -> RuleEffects:
    """One pass: rows are counted by the combination of rules they meet, all else is arithmetic on a few groups."""
    found = build_clauses(database, rules)
    columns = ", ".join(f"({clause.sql}) AS c{i}" for i, clause in enumerate(found))
    groups = database.rows(
        f"SELECT {', '.join(f'c{i}' for i in range(len(found)))}, count(*) AS n, "
        "coalesce(sum(p_mismatch), 0) AS bad, coalesce(sum(1 - p_mismatch), 0) AS good, "
        "count(*) FILTER (p_mismatch IS NULL) AS unscored "
        f"FROM (SELECT {columns}, CAST(p_mismatch AS DOUBLE) AS p_mismatch FROM {database.table(conjoin_clauses(found))}) "
        "GROUP BY ALL"
    )
    usable = [group for group in groups if group["c0"]]
    numbers = range(1, len(found))

    def meets(group: dict[str, Any], but: int | None = None) -> bool:
        return all(group[f"c{i}"] for i in numbers if i != but)

    each = [
        compute_effect(
            found[i].rule,
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
        sum_groups(groups, "n"), sum_groups(usable, "n"), together.kept, each, together, unscored, unscored_kept
    )


def sum_groups(groups: Sequence[dict[str, Any]], what: str) -> int:
    return int(sum(group[what] for group in groups))


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


def build_reason_sql(found: Sequence[RuleClause]) -> str:
    """Why a row is removed: its status, or the names of all rules it fails."""
    failed = ", ".join(f"CASE WHEN NOT ({clause.sql}) THEN {literal(clause.rule)} END" for clause in found[1:])
    rules = f"concat_ws(', ', {failed})" if failed else "''"
    return f"CASE WHEN status <> 'ok' THEN status ELSE {rules} END"


def fetch_rows_near_cut(database: AuditDatabase, rules: Rules, rule: str, n: int = 10) -> tuple[pa.Table, pa.Table]:
    """The usable rows nearest the cut of one bound: (just kept, just removed), nearest first."""
    bounds = rules.bounds()
    if rule not in bounds:
        raise RuleError(f"{rule} is not one of the bounds that are set: {', '.join(bounds) or 'none'}")
    column, comparison, threshold = bounds[rule]
    quoted = database.column(column)
    kept = bound_sql(column, comparison, threshold)
    down, up = f"{quoted} DESC", f"{quoted} ASC"
    first, second = (down, up) if comparison == "<=" else (up, down)
    usable = f"status = 'ok' AND {quoted} IS NOT NULL"
    return fetch(database, f"{usable} AND {kept}", first, n), fetch(database, f"{usable} AND NOT {kept}", second, n)

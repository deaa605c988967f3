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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from auditor.audit_folder.side_files import overlapping_digests
from auditor.keep.caption_changes import CaptionChanges, read_caption_changes
from auditor.keep.caption_choice import build_choice_clauses
from auditor.keep.ranked_rows import build_last_clause, build_top_sql, media_value_sql, media_values_sql
from auditor.query.database import AuditDatabase
from auditor.query.row_queries import fetch_rows
from auditor.query.rules import RuleError, Rules, build_bound_sql
from auditor.query.sandbox import quote_literal
from auditor.schema import DEFECTS
from auditor.vectors import Bools


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


Clauses = Mapping[str, str]  # the SQL condition of the rows that a rule keeps, by rule


def build_clauses(database: AuditDatabase, rules: Rules, changes: CaptionChanges | None = None) -> Clauses:
    """The rules as SQL, the status first; a user's condition has been checked by the sandbox."""
    clauses = {rule: build_bound_clause(database, rules, rule, *bound) for rule, bound in rules.bounds().items()}
    if rules.keep_top is not None and rules.by is not None:
        clauses["keep_top"] = build_top_sql(database, rules)
    if rules.where:
        checked = database.where(rules.where)
        database.run(f"SELECT {checked} FROM reviewed AS samples LIMIT 0")  # binding reports unknown columns
        clauses["where"] = f"coalesce({checked}, FALSE)"
    if rules.no_duplicates:
        clauses["no_duplicates"] = "duplicate_of IS NULL"
    if rules.no_generated_defects:
        clauses["no_generated_defects"] = (
            f"coalesce(looks_like NOT IN ({', '.join(map(quote_literal, DEFECTS))}), TRUE)"
        )
    if rules.no_overlap:
        clauses["no_overlap"] = build_overlap_sql(database, rules.no_overlap)
    clauses |= build_target_clauses(database, rules)
    if rules.per_medium in ("any", "all"):
        clauses = build_media_clauses(database, rules, clauses)
    if changes is None:
        changes = read_caption_changes(database, rules) if rules.drop_weak_parts is not None else CaptionChanges()
    if rules.drop_weak_parts is not None:
        clauses["drop_weak_parts"] = changes.condition
    clauses = {"status": "status = 'ok'", **clauses}
    clauses |= build_choice_clauses(database, rules, clauses)
    if rules.last_rule:
        clauses[rules.last_rule] = build_last_clause(database, rules, conjoin_clauses(clauses), changes)
    return clauses


def build_overlap_sql(database: AuditDatabase, other: str) -> str:
    digests = ", ".join(map(quote_literal, overlapping_digests(database.files.folder, other)))
    return f"coalesce(media_digest NOT IN ({digests}), TRUE)" if digests else "TRUE"


def build_target_clauses(database: AuditDatabase, rules: Rules) -> dict[str, str]:
    """Leave out the copies of a test set if a rule uses the similarity to it (auditor/run/compare_target.py)."""
    columns = {rules.by, rules.towards, *(column for column, *_ in rules.bounds().values())}
    tests = {
        source.name: source.about.get("test_set") for source in database.files.sources if columns & {*source.columns}
    }
    return {f"no copy of {name}": build_overlap_sql(database, str(test)) for name, test in tests.items() if test}


def build_bound_clause(
    database: AuditDatabase, rules: Rules, rule: str, column: str, comparison: str, threshold: float
) -> str:
    if math.isnan(threshold):
        raise RuleError(f"{rule} needs a number")
    quoted = database.column(column, rule)
    bound = build_bound_sql(column, comparison, threshold, missing=rules.unscored == "keep")
    if rules.per_medium in ("mean", "worst"):
        return media_value_sql(bound, media_values_sql(column, quoted, rules.per_medium))
    return bound


def build_media_clauses(database: AuditDatabase, rules: Rules, clauses: Clauses) -> dict[str, str]:
    """Turn rules on captions into rules on media; with `any`, one caption must meet all rules at once."""
    together = "bool_and" if rules.per_medium == "all" else "bool_or"
    if together == "bool_or" and len(clauses) > 1:
        clauses = {**clauses, "per_medium": conjoin_clauses(clauses)}
    return {
        rule: f"(shard, key) IN (SELECT shard, key FROM {database.stored_table(sql)} WHERE status = 'ok' "
        f"GROUP BY shard, key HAVING {together}({sql}))"
        for rule, sql in clauses.items()
    }


def conjoin_clauses(clauses: Clauses) -> str:
    return " AND ".join(f"({sql})" for sql in clauses.values())


def measure_rule_effects(database: AuditDatabase, rules: Rules | Mapping[str, Any]) -> RuleEffects:
    """Count what each rule removes alone and all rules together, with expected precision and loss."""
    # one pass counts the rows by the combination of rules that they meet; the rest is arithmetic on a few groups
    clauses = build_clauses(database, Rules.of(rules))
    names = [f"c{i}" for i in range(len(clauses))]
    columns = ", ".join(f"coalesce({sql}, FALSE) AS {name}" for name, sql in zip(names, clauses.values(), strict=True))
    groups = database.run(
        f"SELECT {', '.join(names)}, count(*) AS n, "
        "coalesce(sum(p_mismatch), 0) AS bad, coalesce(sum(1 - p_mismatch), 0) AS good, "
        "count(*) FILTER (p_mismatch IS NULL) AS unscored "
        f"FROM (SELECT {columns}, CAST(p_mismatch AS DOUBLE) AS p_mismatch "
        f"FROM {database.table(conjoin_clauses(clauses))}) GROUP BY ALL"
    )
    meets: Bools = np.array([groups[name].to_numpy() for name in names], bool)  # (rules, groups)
    usable, meets = meets[0], meets[1:, meets[0]]
    n, bad, good, unscored = (groups[name].to_numpy()[usable] for name in ("n", "bad", "good", "unscored"))

    def measure(rule: str, removed: Bools, removed_only_by_it: Bools) -> RuleEffect:
        lost, wrong = float(good[removed].sum()), float(bad[removed].sum())
        return RuleEffect(
            rule=rule,
            kept=int(n[~removed].sum()),
            removed=int(n[removed].sum()),
            removed_only_by_it=int(n[removed_only_by_it].sum()),
            expected_precision=wrong / (wrong + lost) if wrong + lost else None,
            expected_loss=lost / float(good.sum()) if good.any() else None,
        )

    fails: Bools = np.logical_not(meets)
    kept: Bools = np.asarray(meets.all(axis=0))
    only_one = fails.sum(axis=0) == 1
    effects = [measure(rule, fails[i], fails[i] & only_one) for i, rule in enumerate(list(clauses)[1:])]
    together = measure("all together", ~kept, ~kept)
    rows, unscored_kept = int(groups["n"].to_numpy().sum()), int(unscored[kept].sum())
    return RuleEffects(rows, int(n.sum()), together.kept, effects, together, int(unscored.sum()), unscored_kept)


def build_reason_sql(clauses: Clauses) -> str:
    """SQL expression of why a row is removed: its status, or the names of all rules it fails."""
    _, *rules = (f"CASE WHEN NOT ({sql}) THEN {quote_literal(rule)} END" for rule, sql in clauses.items())
    failed = ", ".join(rules)
    return f"CASE WHEN status <> 'ok' THEN status ELSE concat_ws(', ', {failed or 'NULL'}) END"


def fetch_rows_near_cut(
    database: AuditDatabase, rules: Rules | Mapping[str, Any], rule: str, n: int = 10
) -> tuple[pa.Table, pa.Table]:
    """The usable rows nearest to the cut of a bound: (just kept, just removed), nearest first."""
    bounds = Rules.of(rules).bounds()
    if rule not in bounds:
        raise RuleError(f"{rule} is not a bound that is set: {', '.join(bounds) or 'none'}")
    column, comparison, threshold = bounds[rule]
    quoted = database.column(column)
    condition = build_bound_sql(column, comparison, threshold)
    down, up = f"{quoted} DESC", f"{quoted} ASC"
    first, second = (down, up) if comparison == "<=" else (up, down)
    usable = f"status = 'ok' AND {quoted} IS NOT NULL"
    just_kept = fetch_rows(database, f"{usable} AND {condition}", first, n)
    return just_kept, fetch_rows(database, f"{usable} AND NOT {condition}", second, n)

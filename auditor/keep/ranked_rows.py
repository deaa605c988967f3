"""The best rows by a column: of all usable rows (`keep_top`), or of those that meet all other rules (`count`, `share`).

The last choice can be in balance: at most t rows of each cell, which is a topic, a language or the value of any column,
and t is such that the requested number is kept (MetaCLIP's rule). Small cells stay whole, large ones give their best
rows. Topics choose among the best CANDIDATES times that number of rows: without this limit, small topics give their
worst rows. Other cells do not, because an encoder may give all rows of a language lower scores. Cells that give one row
more than t are chosen by the order of uids, which is random, so the number is exact. With `per_medium`, media are
chosen instead of rows. Eight bytes are held in memory for each row that is chosen.
"""

import math

import numpy as np
import pyarrow as pa

from auditor.audit_folder.column_numbers import read_numbers
from auditor.keep.caption_changes import CaptionChanges
from auditor.keep.diverse_rows import choose_diverse_rows
from auditor.query.database import AuditDatabase
from auditor.query.rules import PerMedium, RuleError, Rules, parse_number, parse_share
from auditor.query.sample_tables import ROW_HASH
from auditor.query.sandbox import QueryError
from auditor.schema import COLUMNS, HIGH_IS_SUSPICIOUS, build_order_clause
from auditor.vectors import Ints

MOST_CELLS = 100_000
DEFAULT_ORDER, SET_ORDER = "p_mismatch", "similarity_normalised"  # the second one with a target or in balance
CANDIDATES = 1.5  # times the number to keep: the best rows by the score, among which topics are balanced
# With a target, this share of the rank by the similarity to it is added to the rank by the score, both from 0 to 1.
# Ranked by that similarity alone, the kept media are alike (docs/results.md).
TARGET_WEIGHT, TARGET_RANK = 0.1, "target_rank"


def media_values_sql(column: str, quoted: str, rule: PerMedium | None) -> str:
    """SQL table with one row per medium: the mean or worst value of a column over its captions."""
    value = "avg" if rule == "mean" else "max" if column in HIGH_IS_SUSPICIOUS else "min"
    # rounded to the precision of measurements, because the last bits of a mean depend on the order of summation
    return (
        f"(SELECT shard, key, CAST({value}({quoted}) AS FLOAT) AS {quoted}, min(uid_order) AS uid_order "
        f"FROM measured WHERE status = 'ok' GROUP BY shard, key) AS media"
    )


def media_value_sql(condition: str, values: str) -> str:
    return f"(shard, key) IN (SELECT shard, key FROM {values} WHERE {condition})"


def build_top_sql(database: AuditDatabase, rules: Rules) -> str:
    """SQL condition of the best share of the usable rows, or of media if these are ranked by mean or worst value."""
    assert rules.keep_top is not None and rules.by is not None
    rank_column, share, column = rules.by, parse_share(rules.keep_top), database.column(rules.by, "by")
    by_medium = rules.per_medium in ("mean", "worst")
    values = media_values_sql(rank_column, column, rules.per_medium) if by_medium else ""
    source = f"{values} WHERE TRUE" if values else f"{database.table(column)} WHERE status = 'ok'"
    usable = f"{source} AND {column} IS NOT NULL"
    top = database.cached(
        f"top {share!r} {usable}", lambda: find_top_condition(database, share, rank_column, usable, media=by_medium)
    )
    condition = f"({top} OR {column} IS NULL)" if rules.unscored == "keep" else top
    return media_value_sql(condition, values) if values else condition


def find_top_condition(
    database: AuditDatabase, share: float | int, rank_column: str, usable: str, *, media: bool = False
) -> str:
    """SQL condition of the exact number of best rows, or media.

    Ties are broken by the tie breaker of the column, if any and if rows are ranked, then by uid.
    """
    column = database.column(rank_column)
    ties = "" if media or rank_column not in COLUMNS else COLUMNS[rank_column].tie_breaker
    if not is_number(database.run(f"SELECT {column} FROM {usable} LIMIT 0").schema.types[0]):
        raise QueryError("keep_top needs a column of numbers")
    values = database.run(f"SELECT {column} FROM {usable}").column(0)
    total = len(values)
    count = share if isinstance(share, int) else round(share * total)
    if count >= total:
        return f"{column} IS NOT NULL"
    if count < 1:
        return "FALSE"
    better, order = ("<", "ASC") if rank_column in HIGH_IS_SUSPICIOUS else (">", "DESC")
    cut = find_cut_value(values, count - 1 if order == "ASC" else total - count)
    ahead = database.rows(f"SELECT count(*) AS n FROM {usable} AND {column} {better} {cut}")[0]["n"]
    tie_order = f"{build_order_clause(ties, suspicious_first=False)}, " if ties else ""
    chosen = f"{ties or 'NULL'} AS tie, uid_order FROM {usable} AND {column} = {cut}"
    last = database.rows(f"SELECT {chosen} ORDER BY {tie_order}uid_order LIMIT 1 OFFSET {count - ahead - 1}")[0]
    among = f"uid_order <= {last['uid_order']}"
    if last["tie"] is not None:
        better_tie, tie = "<" if ties in HIGH_IS_SUSPICIOUS else ">", f"CAST('{last['tie']!r}' AS FLOAT)"
        among = f"({ties} {better_tie} {tie} OR ({ties} = {tie} AND {among}))"
    return f"coalesce(if({column} = {cut}, {among}, {column} {better} {cut}), FALSE)"  # ties are tried only at the cut


def is_number(data_type: pa.DataType) -> bool:
    return any(test(data_type) for test in (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean))


def find_cut_value(values: pa.ChunkedArray, place: int) -> str:
    """The value at a place of the ascending order, as SQL. NumPy takes half the time of DuckDB's quantile_disc."""
    numbers = read_numbers(values.cast(pa.int8()) if pa.types.is_boolean(values.type) else values)
    cut = np.partition(numbers, place)[place].item()
    sql_type = {pa.float32(): "FLOAT", pa.float64(): "DOUBLE"}.get(values.type, "BIGINT")
    return f"CAST('{cut!r}' AS {sql_type})"


def build_last_clause(database: AuditDatabase, rules: Rules, other_rules: str, changes: CaptionChanges) -> str:
    """The rows chosen among those that meet all other rules; rows that do not meet them pass this one."""
    candidates = build_candidates_sql(database, rules, other_rules)
    key = f"{rules.count} {rules.share} {rules.diverse} {CANDIDATES} {candidates}"
    chosen = database.add_row_set(key, other_rules, lambda: choose_best_rows(database, rules, candidates, changes))
    return f"NOT coalesce({other_rules}, FALSE) OR {chosen}"


def build_candidates_sql(database: AuditDatabase, rules: Rules, other_rules: str) -> str:
    """SQL of the rows to choose from: hash, cell, unit (row or medium), and place in the cell by the order of units."""
    rank_column = rules.by or (SET_ORDER if rules.towards or rules.balance else DEFAULT_ORDER)
    rank = database.column(rank_column, "by")
    cell = database.column(rules.cell_column, "balance") if rules.balance or rules.diverse else "NULL"
    missing = f" AND {rank} IS NOT NULL" if rules.unscored == "drop" else ""
    places = "file, file_row_number, " if rules.diverse else ""
    read = database.placed_rows if rules.diverse else database.stored_table
    if rules.towards:
        target = database.column(rules.towards, "towards")
        source = f"{read(other_rules, cell, rank, target)} WHERE {other_rules}{missing}"
        source = f"(SELECT *, {build_target_rank(rank_column, rank, target)} AS {TARGET_RANK} FROM {source})"
        rank_column = rank = TARGET_RANK
    else:
        source = f"{read(other_rules, cell, rank)} WHERE {other_rules}{missing}"
    values, unit = {rank: rank_column}, "uid_order"
    if rules.per_medium:
        medium = "OVER (PARTITION BY shard, key)"
        best, worst = ("min", "max") if rank_column in HIGH_IS_SUSPICIOUS else ("max", "min")
        value = {"mean": "avg", "any": best}.get(rules.per_medium, worst)
        values, unit = {f"CAST({value}({rank}) {medium} AS FLOAT)": rank_column}, f"min(uid_order) {medium}"
        cell = f"first_value({cell}) OVER (PARTITION BY shard, key ORDER BY caption_index)"
    else:
        ties = COLUMNS[rank_column].tie_breaker if rank_column in COLUMNS else ""
        values |= {ties: ties} if ties else {}
    listed = "".join(f", {sql} AS value_{number}" for number, sql in enumerate(values))
    order = ", ".join(
        f"value_{number} {'ASC' if name in HIGH_IS_SUSPICIOUS else 'DESC'} NULLS LAST"
        for number, name in enumerate(values.values())
    )
    rows = f"SELECT {places}{ROW_HASH} AS row_hash, {cell} AS cell, {unit} AS unit{listed} FROM {source}"
    place = f"dense_rank() OVER (PARTITION BY cell ORDER BY {order}, unit) AS place"
    overall = f", dense_rank() OVER (ORDER BY {order}, unit) AS overall" if limits_candidates(rules) else ""
    return f"SELECT {places}row_hash, cell, unit, {place}{overall} FROM ({rows})"


def limits_candidates(rules: Rules) -> bool:
    """Whether only the best rows are in balance; diverse rows represent all rows, and need not be the best."""
    return rules.balance is not None and rules.balances_topics and not rules.diverse


def build_target_rank(rank_column: str, rank: str, target: str) -> str:
    """SQL of the rank of a row by a score and by the similarity to a target; null without a score."""
    order = "DESC" if rank_column in HIGH_IS_SUSPICIOUS else "ASC"
    by_score = f"percent_rank() OVER (ORDER BY {rank} {order} NULLS FIRST)"
    by_target = f"percent_rank() OVER (ORDER BY {target} NULLS FIRST)"
    return f"if({rank} IS NULL, NULL, {by_score} + {TARGET_WEIGHT} * {by_target})"


def choose_best_rows(database: AuditDatabase, rules: Rules, candidates: str, changes: CaptionChanges) -> pa.Table:
    """The hashes of the chosen rows."""
    sizes = count_units(database, rules, candidates)
    count = choose_count(rules, int(sizes.sum()))
    if limits_candidates(rules):
        candidates = f"SELECT * FROM ({candidates}) WHERE overall <= {math.ceil(CANDIDATES * count)}"
        sizes = count_units(database, rules, candidates)
    if rules.diverse:
        quotas = choose_quotas(sizes, count) if rules.balance else divide_in_proportion(sizes, count)
        return choose_diverse_rows(database, candidates, quotas, changes)
    cap, extra = find_cap(sizes, count)
    chosen = f"SELECT row_hash FROM ({candidates}) WHERE place <= {cap}"
    if extra:
        turns = (
            f"SELECT row_hash, dense_rank() OVER (ORDER BY unit) AS turn FROM ({candidates}) WHERE place = {cap + 1}"
        )
        chosen += f" UNION ALL SELECT row_hash FROM ({turns}) WHERE turn <= {extra}"
    return database.run(chosen)


def count_units(database: AuditDatabase, rules: Rules, candidates: str) -> Ints:
    """The number of rows, or media, of each cell."""
    cells = database.run(
        f"SELECT cell, max(place) AS units FROM ({candidates}) GROUP BY cell ORDER BY cell LIMIT {MOST_CELLS + 1}"
    )
    if len(cells) > MOST_CELLS:
        raise RuleError(
            f"balance: {rules.cell_column} has more than {MOST_CELLS:,} values; use a column with fewer, such as topic"
        )
    return np.asarray(cells["units"].to_numpy(), np.int64)


def choose_count(rules: Rules, total: int) -> int:
    """The number of rows or media to keep of `total`."""
    if rules.share is not None:
        return round(parse_number("share", rules.share, 0, 1) * total)
    count = rules.count or 0
    if count > total:
        units = "media" if rules.per_medium else "pairs"
        raise RuleError(
            f"count: only {total:,} {units} meet the other rules, and {count:,} are to be kept; ask for fewer"
        )
    return count


def find_cap(sizes: Ints, count: int) -> tuple[int, int]:
    """The largest t with sum(min(size, t)) <= count, and how many more are needed: one each of as many larger cells."""
    low, high = 0, int(sizes.max(initial=0))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if np.minimum(sizes, middle).sum() <= count else (low, middle - 1)
    return low, count - int(np.minimum(sizes, low).sum())


def choose_quotas(sizes: Ints, count: int) -> Ints:
    """The number of rows of each cell in balance; the largest cells give one more."""
    cap, extra = find_cap(sizes, count)
    quotas: Ints = np.minimum(sizes, cap)
    quotas[np.argsort(-sizes, kind="stable")[:extra]] += 1
    return quotas


def divide_in_proportion(sizes: Ints, count: int) -> Ints:
    """The number of rows of each cell in proportion to its size, by the largest remainders."""
    shares = sizes * (count / max(1, int(sizes.sum())))
    quotas: Ints = np.floor(shares).astype(np.int64)
    quotas[np.argsort(quotas - shares, kind="stable")[: count - int(quotas.sum())]] += 1
    return quotas

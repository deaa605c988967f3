"""Rows of an audit: a user's SELECT, counts, pages in any order, the most suspicious rows, one row and its medium.

A page may also list media instead of rows, each with the captions that meet a condition.
"""

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, SupportsIndex

import pyarrow as pa

from auditor.audit_folder.tag_estimates import MARGIN, list_tags
from auditor.query.database import AuditDatabase
from auditor.query.sample_tables import IN_MEMORY, UID_ORDER
from auditor.query.sandbox import Parameters, QueryError, quote_literal, quote_name
from auditor.schema import COLUMNS, HIGH_IS_SUSPICIOUS, build_order_clause


def run_select(
    database: AuditDatabase, query: str, parameters: Parameters = None, limit: int | None = None
) -> pa.Table:
    """Run a SELECT over the tables `samples` and `reviews` and return an Arrow table of at most `limit` rows.

    `parameters` replace each ? of the query or, as a mapping, each $name.
    """
    if not isinstance(query, str):
        raise QueryError(f"query is SQL as text, not {type(query).__name__}")
    return database.sql_pool.run(query, parameters, None if limit is None else check_whole_number("limit", limit))


def check_whole_number(argument: str, value: Any, minimum: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, SupportsIndex) or operator.index(value) < minimum:
        raise QueryError(f"{argument} is a whole number of at least {minimum}, not {value!r}")
    return operator.index(value)


def check_text(argument: str, value: Any) -> str:
    if not isinstance(value, str):
        raise QueryError(f"{argument} is text, not {value!r}")
    return value


def count_matching_rows(database: AuditDatabase, where: str | None = None) -> int:
    condition = database.where(where)
    source = database.find_remembered_places(condition) or f"{database.table(condition)} WHERE {condition}"
    return int(database.value(f"SELECT count(*) FROM {source}"))


def list_errors(database: AuditDatabase, limit: int = 50) -> list[dict[str, Any]]:
    """List the errors of unusable rows, the most frequent first, each with the key of an example."""
    return database.rows(
        "SELECT status, error_message, count(*) AS rows, min(key) AS example FROM measured WHERE status <> 'ok' "
        f"GROUP BY status, error_message ORDER BY rows DESC, status LIMIT {check_whole_number('limit', limit)}"
    )


def find_worst_rows(database: AuditDatabase, by: str = "p_mismatch", n: int = 20, where: str | None = None) -> pa.Table:
    """Return the n most suspicious usable rows by a column: its largest values, or smallest if large is good.

    Of a prompt column, those that show what the prompt says come first.
    """
    column = database.column(by, "by")
    condition = f"{database.where(where)} AND {column} IS NOT NULL"
    is_tag = by.removesuffix(MARGIN) in {tag.column for tag in list_tags(database.files.sources)}
    order = build_order_clause(by, suspicious_first=not is_tag, quoted=column)
    return fetch_rows(database, condition, order, check_whole_number("n", n))


def write_calm_note(rows: Sequence[Mapping[str, Any]], column: str) -> str:
    """Return a note for a list of the worst rows by p_mismatch if none of them is flagged, otherwise an empty text."""
    if column != "p_mismatch" or any(row["mismatch"] for row in rows):
        return ""
    if not rows:
        return "no pair has an estimate of p_mismatch: there are too few of their kind"
    highest = rows[0]["p_mismatch"]
    return f"nothing is suspicious: no p_mismatch is above {highest:.2g}, and none is flagged; these come nearest"


def read_page(
    database: AuditDatabase,
    where: str | None = None,
    order_by: str | None = None,
    descending: bool = False,
    limit: int = 50,
    offset: int = 0,
) -> pa.Table:
    """Return one page of rows with all columns, in corpus order unless `order_by` names a column."""
    order = ""
    if order_by:
        suspicious_first, quoted = descending == (order_by in HIGH_IS_SUSPICIOUS), database.column(order_by, "order_by")
        order = build_order_clause(order_by, suspicious_first=suspicious_first, quoted=quoted)
    place = check_whole_number("limit", limit), check_whole_number("offset", offset)
    return fetch_rows(database, database.where(where), order, *place, remember=True)


def fetch_rows(
    database: AuditDatabase,
    condition: str,
    order: str,
    limit: int,
    offset: int = 0,
    *,
    remember: bool = False,
    columns: Sequence[str] = (),
) -> pa.Table:
    """Return rows with all columns, or some. Finds their places first: wide columns are read from few files only.

    `remember` the rows that meet the condition, because other pages will need them.
    """
    ordering = ", ".join(part for part in (order, "file", "file_row_number") if part)
    places = database.rows(
        f"SELECT file, file_row_number FROM {build_from_clause(database, condition, order, remember)} "
        f"ORDER BY {ordering} LIMIT {int(limit)} OFFSET {int(offset)}"
    )
    return read_rows_at(database, places, columns)


def read_rows_at(database: AuditDatabase, places: Sequence[Mapping[str, int]], columns: Sequence[str] = ()) -> pa.Table:
    """Return rows by `file` and `file_row_number`, in the order of `places`, with all columns or some."""
    chosen = ", ".join(map(quote_name, columns or database.columns))
    if not places:
        return database.run(f"SELECT {chosen} FROM samples LIMIT 0")
    files = sorted({place["file"] for place in places})
    numbers = {file: number for number, file in enumerate(files)}
    listed = ", ".join(f"({numbers[p['file']]}, {p['file_row_number']}, {i})" for i, p in enumerate(places))
    view = database.view(database.files.only(files), with_places=True, extended=database.reads_extra_columns(chosen))
    verdicts = "LEFT JOIN verdicts USING (uid, caption_index) " if database.names_review(chosen) else ""
    return database.run(
        f"SELECT {chosen} FROM ({view}) JOIN (VALUES {listed}) place(file, file_row_number, position) "
        f"USING (file, file_row_number) {verdicts}ORDER BY position"
    )


def build_from_clause(database: AuditDatabase, condition: str, order: str, remember: bool) -> str:
    """Build the FROM clause of the rows that meet a condition, with their places and the columns that order them."""
    if remember and database.in_memory(order) and (places := database.find_remembered_places(condition)):
        return f"{IN_MEMORY} SEMI JOIN {places} USING (file, file_row_number)"
    return f"{database.placed_table(condition, order)} WHERE {condition}"


def read_row(
    database: AuditDatabase, uid: str, caption_index: int | None = None, shard: str | None = None
) -> dict[str, Any] | None:
    """Return one row or None. If its shard is given, only one file is read."""
    check_text("uid", uid)
    caption = ""
    if caption_index is not None:
        caption = f" AND caption_index = {check_whole_number('caption_index', caption_index)}"
    order = "status <> 'ok', caption_index"
    if database.memory and not shard:
        uid_order = UID_ORDER.replace("uid", quote_literal(uid))
        nearby = fetch_rows(database, f"uid_order = {uid_order}{caption}", order, 10).to_pylist()
        return next((row for row in nearby if row["uid"] == uid), None)
    columns = ", ".join(map(quote_name, database.columns))
    source = database.placed_rows(columns, files=database.files.shard(shard)) if shard else "reviewed"
    condition = f"uid = {quote_literal(uid)}{caption}"
    rows = database.rows(f"SELECT {columns} FROM {source} WHERE {condition} ORDER BY {order} LIMIT 1")
    return rows[0] if rows else None


def read_rows_by_uid(
    database: AuditDatabase, uids: Iterable[str], columns: str
) -> dict[tuple[str, int], dict[str, Any]]:
    """Return some columns of all rows with these uids, by uid and caption index."""
    listed = ", ".join(map(quote_literal, sorted(set(uids)))) or "''"
    rows = database.rows(
        f"SELECT uid, coalesce(caption_index, 0) AS caption_index, {columns} FROM measured WHERE uid IN ({listed})"
    )
    return {(row["uid"], row["caption_index"]): row for row in rows}


def read_row_media(database: AuditDatabase, row: Mapping[str, Any]) -> bytes:
    """Read the original bytes of a row's medium from the corpus."""
    if missing := {"media_path", "media_offset", "media_size"} - set(row):
        raise QueryError(f"row has no {min(missing)}: pass a complete row, as row(), page() and worst() return")
    place = row["media_path"], row["media_offset"], row["media_size"]
    return database.places.read(*place)


def find_usable_row(database: AuditDatabase) -> dict[str, Any] | None:
    return next(iter(database.rows("SELECT * FROM measured WHERE status = 'ok' LIMIT 1")), None)


def list_row_marks(database: AuditDatabase, uid: str, caption_index: int) -> list[dict[str, Any]]:
    """List the latest mark of each reviewer on a row, the newest first."""
    return database.rows(
        "SELECT reviewer, mark, note, time FROM reviews "
        f"WHERE uid = {quote_literal(uid)} AND caption_index = {int(caption_index)} ORDER BY time DESC"
    )


def select_samples(database: AuditDatabase, where: str | None, limit: int) -> pa.Table:
    """Return rows that meet a condition, of any status and in any order, with all columns."""
    rows = f"reviewed AS samples WHERE {database.where(where)} LIMIT {check_whole_number('limit', limit)}"
    return database.run(f"SELECT * EXCLUDE (uid_order) FROM {rows}")


def list_uids(database: AuditDatabase, where: str | None) -> list[str]:
    condition = database.where(where)
    source = database.stored_table(condition)
    uids: list[str] = database.run(f"SELECT DISTINCT uid FROM {source} WHERE {condition} ORDER BY uid")[0].to_pylist()
    return uids


MEDIUM_ROW = "file_row_number - coalesce(caption_index, 0)"  # the row of the medium's first caption
BLOCK_BITS = 12
BLOCK_ROWS = 1 << BLOCK_BITS  # rows of a file that are counted together


def has_several_captions(database: AuditDatabase) -> bool:
    sql = f"SELECT max(caption_index) FROM {database.table('caption_index')}"
    return bool(database.cached("several captions", lambda: database.value(sql)))


def count_media(database: AuditDatabase, where: str | None = None) -> int:
    return count_matching_media(database, database.where(where), remember=True)


def count_matching_media(database: AuditDatabase, condition: str, *, remember: bool = False) -> int:
    """Count the media that have a row which meets a checked condition.

    One bit for each row of a file takes a fifth of the time of DISTINCT.
    """
    source = build_from_clause(database, condition, "caption_index", remember=remember)
    media_in_block = f"bit_count(bitstring_agg(medium & {BLOCK_ROWS - 1}, 0, {BLOCK_ROWS - 1}))"
    media = f"SELECT file, CAST({MEDIUM_ROW} AS BIGINT) AS medium FROM {source}"
    blocks = f"SELECT {media_in_block} AS n FROM ({media}) GROUP BY file, medium >> {BLOCK_BITS}"
    return int(database.value(f"SELECT coalesce(sum(n), 0) FROM ({blocks})"))


def read_media_page(
    database: AuditDatabase,
    where: str | None = None,
    order_by: str | None = None,
    descending: bool = False,
    limit: int = 50,
    offset: int = 0,
) -> list[list[dict[str, Any]]]:
    """Return the media of a page, each as the list of its rows that meet the condition, in the order of the page."""
    value = database.column(order_by) if order_by else "NULL"
    way, foremost = ("DESC", "max") if descending else ("ASC", "min")
    tie = COLUMNS[order_by].tie_breaker if order_by in COLUMNS else ""
    tie_way, tie_foremost = ("ASC", "min") if descending == (order_by in HIGH_IS_SUSPICIOUS) else ("DESC", "max")
    source = build_from_clause(database, database.where(where), f"{value} {tie} caption_index", remember=True)
    places = database.rows(
        f"WITH matches AS (SELECT file, file_row_number, {MEDIUM_ROW} AS medium, {value} AS value, "
        f"{tie or 'NULL'} AS tie FROM {source}), "
        f"page AS (SELECT file, medium, {foremost}(value) AS best, {tie_foremost}(tie) AS best_tie FROM matches "
        f"GROUP BY file, medium ORDER BY best {way} NULLS LAST, best_tie {tie_way} NULLS LAST, file, medium "
        f"LIMIT {int(limit)} OFFSET {int(offset)}) "
        "SELECT file, file_row_number, medium FROM matches JOIN page USING (file, medium) "
        f"ORDER BY best {way} NULLS LAST, best_tie {tie_way} NULLS LAST, file, medium, "
        f"value {way} NULLS LAST, tie {tie_way} NULLS LAST, file_row_number"
    )
    grouped: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for place, row in zip(places, read_rows_at(database, places).to_pylist(), strict=True):
        grouped.setdefault((place["file"], place["medium"]), []).append(row)
    return list(grouped.values())


def count_duplicate_groups(database: AuditDatabase, where: str | None = None) -> int:
    """Count the groups of duplicates that have a repeated medium which meets the condition."""
    condition = database.where(where)
    source = f"{database.table(condition, 'duplicate_of')} WHERE {condition}"
    return int(database.value(f"SELECT count(DISTINCT duplicate_of) FROM {source}"))


def read_duplicate_groups(
    database: AuditDatabase, where: str | None = None, limit: int = 50, offset: int = 0
) -> list[list[dict[str, Any]]]:
    """Return groups of duplicates, the largest first: the medium that is repeated, then those that repeat it.

    Each medium is one row. The first of a group is there even if it does not meet the condition.
    """
    condition = database.where(where)
    place = f"LIMIT {check_whole_number('limit', limit)} OFFSET {check_whole_number('offset', offset)}"
    places = database.rows(
        "WITH repeats AS (SELECT duplicate_of AS first, file, min(file_row_number) AS file_row_number "
        f"FROM {database.placed_rows(condition, 'duplicate_of')} WHERE {condition} AND duplicate_of IS NOT NULL "
        "GROUP BY duplicate_of, file, uid), "
        f"page AS (SELECT first, count(*) AS n FROM repeats GROUP BY first ORDER BY n DESC, first {place}), "
        "firsts AS (SELECT uid AS first, file, min(file_row_number) AS file_row_number "
        f"FROM {database.placed_rows('uid')} WHERE uid IN (SELECT first FROM page) GROUP BY uid, file) "
        "SELECT n, first, file, file_row_number, part FROM page JOIN (SELECT *, 0 AS part FROM firsts UNION ALL "
        "SELECT *, 1 FROM repeats) USING (first) ORDER BY n DESC, first, part, file, file_row_number"
    )
    groups: dict[str, list[dict[str, Any]]] = {}
    for place_row, row in zip(places, read_rows_at(database, places).to_pylist(), strict=True):
        groups.setdefault(place_row["first"], []).append(row)
    return list(groups.values())


def list_captions(database: AuditDatabase, row: Mapping[str, Any]) -> pa.Table:
    """Return all rows of a row's medium in the order of its captions; reads one file of the audit."""
    return database.run(
        f"SELECT * FROM {database.placed_rows('review', files=database.files.shard(row['shard']))} "
        f"WHERE key = {quote_literal(row['key'])} "
        f"AND media_path IS NOT DISTINCT FROM {quote_literal(row['media_path'])} "
        f"AND media_offset IS NOT DISTINCT FROM {quote_literal(row['media_offset'])} ORDER BY caption_index"
    )

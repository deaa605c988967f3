"""Rows of an audit: a user's SELECT, counts, pages in any order, the most suspicious rows, one row and its medium.

A page may also list media instead of rows, each with the captions that meet a condition.
"""

import operator
from collections.abc import Mapping, Sequence
from typing import Any, SupportsIndex

import pyarrow as pa

from auditor.corpus.read_medium import read_media
from auditor.query.database import AuditDatabase
from auditor.query.sample_tables import IN_MEMORY, UID_ORDER
from auditor.query.sandbox import Parameters, QueryError, literal, name
from auditor.schema import COLUMNS, HIGH_IS_SUSPICIOUS, build_order_clause


def select(database: AuditDatabase, query: str, parameters: Parameters = None, limit: int | None = None) -> pa.Table:
    """The result of anybody's SELECT over the tables `samples` and `reviews`."""
    if not isinstance(query, str):
        raise QueryError(f"query is SQL as text, not {type(query).__name__}")
    return database.run_user_sql(query, parameters, None if limit is None else whole("limit", limit))


def whole(argument: str, given: Any, least: int = 0) -> int:
    """A whole number that is large enough; the error names the argument."""
    if isinstance(given, bool) or not isinstance(given, SupportsIndex) or operator.index(given) < least:
        raise QueryError(f"{argument} is a whole number of at least {least}, not {given!r}")
    return operator.index(given)


def text(argument: str, given: Any) -> str:
    """A text; the error names the argument."""
    if not isinstance(given, str):
        raise QueryError(f"{argument} is text, not {given!r}")
    return given


def count(database: AuditDatabase, where: str | None = None) -> int:
    condition = database.where(where)
    counted = database.remembered(condition) or f"{database.table(condition)} WHERE {condition}"
    found: int = database.rows(f"SELECT count(*) AS n FROM {counted}")[0]["n"]
    return found


def errors(database: AuditDatabase, limit: int = 50) -> list[dict[str, Any]]:
    """What went wrong, most frequent first, each with the key of one example."""
    return database.rows(
        "SELECT status, error_message, count(*) AS rows, min(key) AS example FROM measured WHERE status <> 'ok' "
        f"GROUP BY status, error_message ORDER BY rows DESC, status LIMIT {whole('limit', limit)}"
    )


def worst(database: AuditDatabase, by: str = "p_mismatch", n: int = 20, where: str | None = None) -> pa.Table:
    """The n most suspicious usable rows by a column: its largest values, or smallest where large is good."""
    column = database.column(by, "by")
    condition = f"{database.where(where)} AND {column} IS NOT NULL"
    return fetch(database, condition, build_order_clause(by, suspicious_first=True, quoted=column), whole("n", n))


def calm_note(found: Sequence[Mapping[str, Any]], by: str) -> str:
    """Words for a list of the worst rows by p_mismatch of which none is flagged; empty where one is."""
    if by != "p_mismatch" or any(row["mismatch"] for row in found):
        return ""
    if not found:
        return "no pair has an estimate of p_mismatch: there are too few of their kind"
    highest = found[0]["p_mismatch"]
    return f"nothing is suspicious: no p_mismatch is above {highest:.2g}, and none is flagged; these come nearest"


def page(
    database: AuditDatabase,
    where: str | None = None,
    order_by: str | None = None,
    descending: bool = False,
    limit: int = 50,
    offset: int = 0,
) -> pa.Table:
    """One page of whole rows. Without `order_by`, in corpus order."""
    order = ""
    if order_by:
        suspicious_first, quoted = descending == (order_by in HIGH_IS_SUSPICIOUS), database.column(order_by, "order_by")
        order = build_order_clause(order_by, suspicious_first=suspicious_first, quoted=quoted)
    place = whole("limit", limit), whole("offset", offset)
    return fetch(database, database.where(where), order, *place, again=True)


def fetch(
    database: AuditDatabase, condition: str, order: str, limit: int, offset: int = 0, *, again: bool = False
) -> pa.Table:
    """Whole rows in an order, by finding their places first: wide columns are read only of the files needed.

    `again`: the same condition will be asked for other pages.
    """
    ordering = ", ".join(part for part in (order, "file", "file_row_number") if part)
    places = database.rows(
        f"SELECT file, file_row_number AS number FROM {located(database, condition, order, again)} "
        f"ORDER BY {ordering} LIMIT {int(limit)} OFFSET {int(offset)}"
    )
    return at_places(database, places)


def at_places(database: AuditDatabase, places: Sequence[Mapping[str, int]]) -> pa.Table:
    """Whole rows by the number of their file and their number in it, in the order given."""
    if not places:
        return database.run("SELECT * FROM samples LIMIT 0")
    numbers = sorted({place["file"] for place in places})
    view = database.view(database.files.only(numbers), located=True, extended=True)
    listed = ", ".join(f"({numbers.index(p['file'])}, {p['number']}, {i})" for i, p in enumerate(places))
    columns = ", ".join(name(column) for column in database.columns)
    return database.run(
        f"SELECT {columns} FROM ({view}) "
        f"JOIN (VALUES {listed}) place(file, file_row_number, position) USING (file, file_row_number) "
        "LEFT JOIN verdicts USING (uid, caption_index) ORDER BY position"
    )


def located(database: AuditDatabase, condition: str, order: str, again: bool) -> str:
    """What stands after FROM for the rows that meet a condition, with their places and what orders them."""
    if again and database.in_memory(order) and (places := database.remembered(condition)):
        return f"{IN_MEMORY} SEMI JOIN {places} USING (file, file_row_number)"
    if database.in_memory(condition, order):
        return f"{IN_MEMORY} AS samples WHERE {condition}"
    every = f"({database.view(located=True, extended=database.extends(condition, order))})"
    if "review" in (condition + order).lower():
        every = f"(SELECT * FROM {every} LEFT JOIN verdicts USING (uid, caption_index))"
    return f"{every} AS samples WHERE {condition}"


def row(
    database: AuditDatabase, uid: str, caption_index: int | None = None, shard: str | None = None
) -> dict[str, Any] | None:
    """One row; naming its shard makes it one file to read instead of all."""
    text("uid", uid)
    same = f" AND caption_index = {whole('caption_index', caption_index)}" if caption_index is not None else ""
    order = "status <> 'ok', caption_index"
    if database.memory and not shard:
        uid_order = UID_ORDER.replace("uid", literal(uid))
        near = fetch(database, f"uid_order = {uid_order}{same}", order, 10).to_pylist()
        return next((found for found in near if found["uid"] == uid), None)
    condition = f"uid = {literal(uid)}{same}"
    source = f"({database.view(database.files.shard(shard), extended=True)})" if shard else "extended"
    rows = database.rows(
        f"SELECT * FROM {source} LEFT JOIN verdicts USING (uid, caption_index) WHERE {condition} "
        f"ORDER BY {order} LIMIT 1"
    )
    return {column: rows[0][column] for column in database.columns} if rows else None


def media(database: AuditDatabase, found: Mapping[str, Any]) -> bytes:
    """The original bytes of a row's medium, read from the corpus by offset."""
    if missing := {"media_path", "media_offset", "media_size"} - set(found):
        raise QueryError(f"row has no {min(missing)}: give a whole one, as of row(), page() or worst()")
    place = found["media_path"], found["media_offset"], found["media_size"]
    return read_media(*place, root=database.moved_to, old_root=database.old_root)


def find_usable_row(database: AuditDatabase) -> dict[str, Any] | None:
    """Any row that could be decoded and encoded, without sorting."""
    return next(iter(database.rows("SELECT * FROM measured WHERE status = 'ok' LIMIT 1")), None)


def list_row_marks(database: AuditDatabase, uid: str, caption_index: int) -> list[dict[str, Any]]:
    """The latest mark of each reviewer on a row, the newest first."""
    return database.rows(
        "SELECT reviewer, mark, note, time FROM reviews "
        f"WHERE uid = {literal(uid)} AND caption_index = {int(caption_index)} ORDER BY time DESC"
    )


def select_samples(database: AuditDatabase, where: str | None, limit: int) -> pa.Table:
    """Whole rows that meet a condition, with any status and in any order, up to a limit."""
    return database.run(f"SELECT * FROM samples WHERE {database.where(where)} LIMIT {whole('limit', limit)}")


def list_uids(database: AuditDatabase, where: str | None) -> list[str]:
    """The uids of the rows that meet a condition, sorted."""
    table = database.run(f"SELECT DISTINCT uid FROM samples WHERE {database.where(where)} ORDER BY uid")
    uids: list[str] = table["uid"].to_pylist()
    return uids


FIRST = "file_row_number - coalesce(caption_index, 0)"
PLACE_BITS = 12
PLACES = 1 << PLACE_BITS  # of a file that are counted together


def several_captions(database: AuditDatabase) -> bool:
    """Has any medium more than one caption?"""
    found = database.cached(
        "several captions",
        lambda: database.rows(f"SELECT max(caption_index) AS most FROM {database.table('caption_index')}"),
    )
    return bool(found[0]["most"])


def count_media(database: AuditDatabase, where: str | None = None) -> int:
    """Media with a row that meets a condition."""
    return count_media_that(database, database.where(where), again=True)


def count_media_that(database: AuditDatabase, condition: str, *, again: bool = False) -> int:
    """The same for a condition of ours: a bit for each place of a file, which takes a fifth of the time of DISTINCT."""
    source = located(database, condition, "caption_index", again=again)
    seen = f"bit_count(bitstring_agg(medium & {PLACES - 1}, 0, {PLACES - 1}))"
    found = database.rows(
        f"SELECT coalesce(sum(n), 0)::BIGINT AS n FROM (SELECT {seen} AS n FROM "
        f"(SELECT file, CAST({FIRST} AS BIGINT) AS medium FROM {source}) GROUP BY file, medium >> {PLACE_BITS})"
    )
    counted: int = found[0]["n"]
    return counted


def media_page(
    database: AuditDatabase,
    where: str | None = None,
    order_by: str | None = None,
    descending: bool = False,
    limit: int = 50,
    offset: int = 0,
) -> list[list[dict[str, Any]]]:
    """For each medium of a page its rows that meet the condition, the foremost first."""
    value = database.column(order_by) if order_by else "NULL"
    way, foremost = ("DESC", "max") if descending else ("ASC", "min")
    tie = COLUMNS[order_by].tie_breaker if order_by in COLUMNS else ""
    tie_way, tie_foremost = ("ASC", "min") if descending == (order_by in HIGH_IS_SUSPICIOUS) else ("DESC", "max")
    source = located(database, database.where(where), f"{value} {tie} caption_index", again=True)
    places = database.rows(
        f"WITH found AS (SELECT file, file_row_number AS number, {FIRST} AS medium, {value} AS value, "
        f"{tie or 'NULL'} AS tie FROM {source}), "
        f"page AS (SELECT file, medium, {foremost}(value) AS best, {tie_foremost}(tie) AS best_tie FROM found "
        f"GROUP BY file, medium ORDER BY best {way} NULLS LAST, best_tie {tie_way} NULLS LAST, file, medium "
        f"LIMIT {int(limit)} OFFSET {int(offset)}) "
        "SELECT file, number, medium FROM found JOIN page USING (file, medium) "
        f"ORDER BY best {way} NULLS LAST, best_tie {tie_way} NULLS LAST, file, medium, "
        f"value {way} NULLS LAST, tie {tie_way} NULLS LAST, number"
    )
    grouped: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for place, row in zip(places, at_places(database, places).to_pylist(), strict=True):
        grouped.setdefault((place["file"], place["medium"]), []).append(row)
    return list(grouped.values())


def captions_of(database: AuditDatabase, row: Mapping[str, Any]) -> pa.Table:
    """All rows of the medium of a row, in the order of their captions; reads one file of the audit."""
    view = database.view(database.files.shard(row["shard"]))
    return database.run(
        f"SELECT * FROM ({view}) LEFT JOIN verdicts USING (uid, caption_index) WHERE key = {literal(row['key'])} "
        f"AND media_path IS NOT DISTINCT FROM {literal(row['media_path'])} "
        f"AND media_offset IS NOT DISTINCT FROM {literal(row['media_offset'])} ORDER BY caption_index"
    )

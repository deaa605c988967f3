"""Pages of media instead of rows: a photo with five captions is one entry, at the place of its foremost caption.

The rows of a medium follow each other in their file, numbered by caption_index: the file and the number of the first of
them name the medium, without reading a path.
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from auditor.query.database import AuditDatabase
from auditor.query.row_queries import at_places, located
from auditor.query.sandbox import literal
from auditor.schema import COLUMNS, HIGH_IS_SUSPICIOUS

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
    tie = COLUMNS[order_by].ties_by if order_by in COLUMNS else ""
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

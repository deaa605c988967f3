"""Records to draw and files to download, beyond what auditor/query answers."""

import io
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from auditor.errors import AuditorError
from auditor.keep.subset import Subset
from auditor.query.by_medium import count_media, media_page, several_captions
from auditor.query.database import AuditDatabase
from auditor.query.distributions import Density, Histogram
from auditor.query.row_queries import count, media, page
from auditor.query.row_queries import row as row_of
from auditor.query.rules import Rules
from auditor.query.sandbox import literal
from auditor.query.search import Found, search
from dashboard.url_state import View, Wanted

EXPORT_ROWS = 1_000_000
SEARCHED = 120  # nearest rows that a search shows


def bars(found: Histogram) -> list[dict[str, float]]:
    """A histogram as records; `share` is of all rows with a value."""
    total = max(found.total, 1)
    return [
        {"low": float(low), "high": float(high), "rows": int(count), "share": float(count / total)}
        for low, high, count in zip(found.edges[:-1], found.edges[1:], found.counts, strict=True)
    ]


def cells(found: Density) -> list[dict[str, float]]:
    """The occupied cells of a density as records."""
    rows, columns = np.nonzero(found.counts)
    return [
        {
            "x_low": float(found.x_edges[column]),
            "x_high": float(found.x_edges[column + 1]),
            "y_low": float(found.y_edges[row]),
            "y_high": float(found.y_edges[row + 1]),
            "rows": int(found.counts[row, column]),
        }
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True)
    ]


def null_curves(database: AuditDatabase, kind: str) -> list[dict[str, Any]]:
    """Shares of the pairs of a kind by score: as observed, and of them those that re-pairings explain."""
    known = (database.manifest.get("statistics") or {}).get(kind) or {}
    histogram, share = known.get("histogram"), known.get("pi0")
    if not histogram or share is None:
        return []
    observed, null = (np.asarray(histogram[name], float) for name in ("observed", "null"))
    observed, null = observed / (observed.sum() or 1), null / (null.sum() or 1) * share
    edges = histogram["edges"]
    return [
        {
            "low": float(edges[i]),
            "high": float(edges[i + 1]),
            "all pairs": float(observed[i]),
            "mismatched": float(null[i]),
        }
        for i in range(len(observed))
    ]


def statistics_kinds(database: AuditDatabase) -> list[str]:
    """The kinds whose mismatches were estimated."""
    return [kind for kind in (database.manifest.get("statistics") or {}) if null_curves(database, kind)]


def corpus_problem(database: AuditDatabase) -> str | None:
    """Why no medium can be shown; None where the first usable one can be read."""
    first = "SELECT * FROM measured WHERE status = 'ok' LIMIT 1"  # any: nothing is sorted
    rows = database.cached("a usable row", lambda: database.rows(first))
    try:
        if rows:
            media(database, rows[0])
    except (AuditorError, OSError) as error:
        return str(error)
    return None


def cards(
    database: AuditDatabase, condition: str | None, view: View, limit: int, offset: int
) -> list[list[dict[str, Any]]]:
    """The cards of a page: each the rows of a medium, or one row, as the view has it.

    Rows that were searched for have their similarity to what was asked in `nearness`.
    """
    if view.wanted:
        nearest = searched(database, condition, view.wanted)[offset : offset + limit]
        rows = [row_of(database, one.uid, one.caption_index, one.shard) for one in nearest]
        return [[{**row, "nearness": one.similarity}] for row, one in zip(rows, nearest, strict=True) if row]
    if view.grouped and several_captions(database):
        return media_page(database, condition, view.sort, view.descending, limit, offset)
    return [[row] for row in page(database, condition, view.sort, view.descending, limit, offset).to_pylist()]


def searched(database: AuditDatabase, condition: str | None, wanted: Wanted) -> list[Found]:
    """The nearest rows, best first; asked once, but for conditions on marks, which change."""

    def compute() -> list[Found]:
        uid, index = wanted.row
        asked: dict[str, Any] = {"like": uid, "caption_index": index} if wanted.like else {"text": wanted.text.strip()}
        return search(database, **asked, over=wanted.over, where=condition, n=SEARCHED)

    changing = "review" in (condition or "").lower()
    return compute() if changing else database.cached(f"search {wanted} {condition}", compute)


def count_cards(database: AuditDatabase, condition: str | None, grouped: bool) -> int:
    return (count_media if grouped and several_captions(database) else count)(database, condition)


def neighbour(database: AuditDatabase, condition: str | None, view: View, at: int) -> dict[str, Any] | None:
    """The foremost row of the card at a place of a view, for going from one to the next."""
    found = cards(database, condition, view, limit=1, offset=at) if at >= 0 else []
    return found[0][0] if found else None


def others_say(database: AuditDatabase, row: Mapping[str, Any], reviewer: str, mark: str) -> list[str]:
    """What other reviewers said of a row, where it is something else: "ann: good"."""
    found = marks_of(database, row["uid"], row["caption_index"] or 0)
    return [f"{m['reviewer']}: {m['mark']}" for m in found if m["reviewer"] != reviewer and m["mark"] != mark]


def marks_of(database: AuditDatabase, uid: str, caption_index: int) -> list[dict[str, Any]]:
    """What each reviewer last said of a row."""
    return database.rows(
        "SELECT reviewer, mark, note, time FROM reviews "
        f"WHERE uid = {literal(uid)} AND caption_index = {int(caption_index)} ORDER BY time DESC"
    )


def rows_file(database: AuditDatabase, condition: str | None, most: int = EXPORT_ROWS) -> bytes:
    """The rows of a selection, whatever their status, as Parquet; no more than `most`."""
    table = database.run(f"SELECT * FROM samples WHERE {database.where(condition)} LIMIT {int(most)}")
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def uids_file(database: AuditDatabase, condition: str) -> bytes:
    """The uids of a selection, a line each."""
    table = database.run(f"SELECT DISTINCT uid FROM samples WHERE {database.where(condition)} ORDER BY uid")
    return "".join(f"{uid}\n" for uid in table["uid"].to_pylist()).encode()


def media_kept(database: AuditDatabase, rules: Rules) -> int:
    """How many media rules keep with at least one caption: as many keys as `subset_file` lists."""
    return Subset(database, rules).media


def subset_file(database: AuditDatabase, rules: Rules, form: str = "npy") -> bytes:
    """What `auditor filter --out kept.FORM` would write."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / f"kept.{form}"
        Subset(database, rules).write(target)
        return target.read_bytes()


def beside(drawn: Sequence[Sequence[Mapping[str, Any]]], names: Sequence[str]) -> list[dict[str, Any]]:
    """Lists of records as one that says whose each is."""
    return [{**row, "audit": name} for rows, name in zip(drawn, names, strict=True) for row in rows]

"""The rows of galleries, the records of tables and the files to download."""

import io
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow.parquet as pq

from auditor.errors import AuditorError
from auditor.query import row_queries
from auditor.query.corpus_groups import Group
from auditor.query.database import AuditDatabase
from auditor.query.distributions import Density
from auditor.query.explain import Fit
from auditor.query.rules import Rules
from auditor.query.search import search
from dashboard.url_state import GallerySearch, GalleryView, format_range

if TYPE_CHECKING:
    from auditor.keep.subset import Subset

EXPORT_ROWS = 1_000_000
SEARCH_ROWS = 120  # nearest rows that a search shows
Item = TypeVar("Item")


def estimated_kinds(database: AuditDatabase) -> dict[str, dict[str, Any]]:
    """The statistics of the kinds whose share of mismatched pairs was estimated."""
    return {kind: s for kind, s in database.statistics.items() if s and s.get("histogram") and s.get("pi0") is not None}


def cell_ranges(density: Density, cell: str) -> dict[str, list[str]]:
    """URL parameters for the rows of a cell of a density, named `COLUMN-ROW`."""
    column, row = map(int, cell.split("-"))
    x_ends, y_ends = density.x_edges[column : column + 2], density.y_edges[row : row + 2]
    return {density.x: format_range(x_ends), density.y: format_range(y_ends)}


def group_record(group: Group, with_faults: bool) -> dict[str, object]:
    """A line of the table of shards; shares are in percent."""
    ends = {"mismatched": "share", "at least": "low", "at most": "high"}
    return {
        "group": group.name,
        "rows": group.rows,
        "unusable": 100 * group.unusable.share,
        **{title: 100 * getattr(group.mismatched, end) if group.mismatched else None for title, end in ends.items()},
        "ambiguous": None if group.ambiguous is None else 100 * group.ambiguous.share,
        "similarity": group.similarity,
        **({"faults": "; ".join(group.faults)} if with_faults else {}),
    }


def count_pages(items: int, size: int) -> int:
    return max(1, -(-items // size))


def list_page(items: Sequence[Item], page_number: int, size: int) -> Sequence[Item]:
    """Pages count from 1."""
    return items[(page_number - 1) * size : page_number * size]


def find_corpus_problem(database: AuditDatabase) -> str | None:
    """Why no medium can be shown, or None if the first usable one can be read.

    Only success is cached: a store may be out of reach for a moment.
    """
    row = database.cached("a usable row", lambda: row_queries.find_usable_row(database))
    try:
        if row:
            database.cached("media can be read", lambda: len(row_queries.read_row_media(database, row)))
    except (AuditorError, OSError) as error:
        return str(error)
    return None


def list_cards(
    database: AuditDatabase, condition: str | None, view: GalleryView, limit: int, offset: int
) -> list[list[dict[str, Any]]]:
    """The cards of a page: each holds the rows of a medium, or one row if the view is not grouped.

    The rows of a search have their similarity in `nearness`.
    """
    if view.search:
        matches = search_rows(database, condition, view.search)[offset : offset + limit]
        rows = [row_queries.read_row(database, match.uid, match.caption_index, match.shard) for match in matches]
        return [[{**row, "nearness": match.similarity}] for row, match in zip(rows, matches, strict=True) if row]
    if view.duplicates:
        return row_queries.read_duplicate_groups(database, condition, limit, offset)
    page = (condition, view.sort, view.descending, limit, offset)
    if view.grouped and row_queries.has_several_captions(database):
        return row_queries.read_media_page(database, *page)
    return [[row] for row in row_queries.read_page(database, *page).to_pylist()]


def search_rows(database: AuditDatabase, condition: str | None, gallery_search: GallerySearch) -> list[Fit]:
    """The nearest rows, best first, computed once for each search and each state of the marks it depends on."""

    target: dict[str, Any] = {"over": gallery_search.over, "where": condition, "n": SEARCH_ROWS}
    if gallery_search.like:
        target["like"], target["caption_index"] = gallery_search.example
    else:
        target["text"] = gallery_search.text.strip()
    key = f"search {gallery_search} {condition} {database.freshness(condition)}"
    return database.cached(key, lambda: search(database, **target))


def count_cards(database: AuditDatabase, condition: str | None, grouped: bool, duplicates: bool = False) -> int:
    if duplicates:
        return row_queries.count_duplicate_groups(database, condition)
    several = grouped and row_queries.has_several_captions(database)
    return (row_queries.count_media if several else row_queries.count_matching_rows)(database, condition)


def find_neighbor(
    database: AuditDatabase, condition: str | None, view: GalleryView, position: int
) -> dict[str, Any] | None:
    cards = list_cards(database, condition, view, limit=1, offset=position) if position >= 0 else []
    return cards[0][0] if cards else None


def list_other_marks(database: AuditDatabase, row: Mapping[str, Any], reviewer: str, mark: str) -> list[str]:
    """The marks of other reviewers on a row that differ from this one: "ann: good"."""
    marks = row_queries.list_row_marks(database, row["uid"], row["caption_index"] or 0)
    return [f"{m['reviewer']}: {m['mark']}" for m in marks if m["reviewer"] != reviewer and m["mark"] != mark]


def make_rows_file(database: AuditDatabase, condition: str | None, limit: int = EXPORT_ROWS) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(row_queries.select_samples(database, condition, limit), buffer, compression="zstd")
    return buffer.getvalue()


def make_uids_file(database: AuditDatabase, condition: str) -> bytes:
    return "".join(f"{uid}\n" for uid in row_queries.list_uids(database, condition)).encode()


def choose_subset(database: AuditDatabase, rules: Rules) -> "Subset":
    from auditor.keep.subset import Subset  # the first page does not need it

    return Subset(database, rules)


def count_kept_media(database: AuditDatabase, rules: Rules) -> int:
    """The number of media of which the rules keep a caption: as many keys as `make_subset_file` lists."""
    return choose_subset(database, rules).media


def describe_kept_sources(database: AuditDatabase, rules: Rules) -> str:
    return choose_subset(database, rules).describe_sources()


def make_subset_file(database: AuditDatabase, rules: Rules, extension: str = "npy") -> bytes:
    """The file that `auditor filter --out kept.EXTENSION` would write."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / f"kept.{extension}"
        choose_subset(database, rules).write(target)
        return target.read_bytes()

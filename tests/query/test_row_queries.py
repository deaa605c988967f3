"""Pages of media, compared with grouping all rows in Python."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor.query.database import AuditDatabase
from auditor.query.row_queries import (
    count_duplicate_groups,
    count_media,
    has_several_captions,
    list_captions,
    read_duplicate_groups,
    read_media_page,
    read_page,
)
from tests.support.synthetic import write_audit, write_corpus_audit


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every fifth key has two captions."""
    return write_corpus_audit(tmp_path_factory.mktemp("several"))[0]


def medium(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["shard"], row["media_path"], row["media_offset"], row["key"]


def naive(database: AuditDatabase, where: str | None, by: str | None, descending: bool) -> list[list[str]]:
    """All rows in order, gathered by medium where each first appears."""
    found: dict[tuple[Any, ...], list[str]] = {}
    for row in read_page(database, where, by, descending, limit=10_000).to_pylist():
        found.setdefault(medium(row), []).append(f"{row['uid']}-{row['caption_index']}")
    return list(found.values())


@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize(
    ("by", "descending"), [("p_mismatch", True), ("similarity", False), ("key", False), (None, False)]
)
@pytest.mark.parametrize("where", [None, "similarity > 0.2", "contains(caption, 'dog')"])
def test_pages_of_media(audit: Path, in_memory: bool, by: str | None, descending: bool, where: str | None) -> None:
    with AuditDatabase(audit) as database:
        if in_memory:
            database.load_into_memory()
        wanted = naive(database, where, by, descending)
        assert count_media(database, where) == len(wanted)
        shown = [
            [f"{row['uid']}-{row['caption_index']}" for row in rows]
            for start in range(0, len(wanted) + 7, 7)
            for rows in read_media_page(database, where, by, descending, limit=7, offset=start)
        ]
        assert shown == wanted


def test_captions_of_a_medium(audit: Path) -> None:
    with AuditDatabase(audit) as database:
        assert has_several_captions(database)
        row = read_page(database, "caption_index = 1", limit=1).to_pylist()[0]
        assert [other["caption_index"] for other in list_captions(database, row).to_pylist()] == [0, 1]


def test_one_caption_each(tmp_path: Path) -> None:
    with AuditDatabase(write_audit(tmp_path / "audit", 50)) as database:
        assert not has_several_captions(database)


def test_media_of_a_long_file_are_counted_once(tmp_path: Path) -> None:
    """Longer than the places that are counted together, media lying across their borders."""
    path = write_audit(tmp_path / "audit", 9000, 9000)
    file = path / "samples" / "00000.parquet"
    table = pq.read_table(file)
    at = table.column_names.index("caption_index")
    pq.write_table(table.set_column(at, "caption_index", pa.array(np.arange(9000) % 3, pa.int32())), file)
    with AuditDatabase(path) as database:
        assert count_media(database) == 3000
        for where in ("caption_index > 0", "similarity > 0.31", "FALSE"):
            rows = database.rows(
                f"SELECT file_row_number // 3 AS m FROM ({database.view(with_places=True)}) WHERE {where}"
            )
            assert count_media(database, where) == len({row["m"] for row in rows})


@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize("where", [None, "similarity > 0.1"])
def test_duplicates_are_listed_as_groups(tmp_path: Path, in_memory: bool, where: str | None) -> None:
    """Groups over two shards and media with two captions, one of them with a first that the condition excludes."""
    folder = write_corpus_audit(tmp_path)[0]
    files = sorted((folder / "samples").iterdir())
    tables = [pq.read_table(file) for file in files]
    uids = list(dict.fromkeys(uid for table in tables for uid in table["uid"].to_pylist()))
    first_of = {
        uids[1]: uids[0],
        uids[-1]: uids[0],
        uids[5]: uids[0],
        uids[7]: uids[-3],
        uids[9]: uids[-3],
        uids[3]: uids[2],
    }
    for file, table in zip(files, tables, strict=True):
        place = table.schema.get_field_index("duplicate_of")
        values = pa.array([first_of.get(uid) for uid in table["uid"].to_pylist()], pa.string())
        pq.write_table(table.set_column(place, "duplicate_of", values), file)
    with AuditDatabase(folder) as database:
        if in_memory:
            database.load_into_memory()
        groups: dict[str, set[str]] = {}
        for row in read_page(database, where, limit=10_000).to_pylist():
            if row["duplicate_of"]:
                groups.setdefault(row["duplicate_of"], {row["duplicate_of"]}).add(row["uid"])
        assert count_duplicate_groups(database, where) == len(groups) >= 2
        found = [g for start in (0, 2) for g in read_duplicate_groups(database, where, limit=2, offset=start)]
        assert {group[0]["uid"]: {row["uid"] for row in group} for group in found} == groups
        assert all(len({row["uid"] for row in group}) == len(group) for group in found)  # a medium is there once
        assert [len(group) for group in found] == sorted(map(len, found), reverse=True)

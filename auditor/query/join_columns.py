"""`auditor join`: columns of somebody else's file, found by uid or key, beside the rows of an audit.

DuckDB joins 64 bits of the keys and gives for each row of the audit the row of the file; columns are then taken shard
by shard. Rows that the file does not know are null and counted. Nothing is seen before all of it is written.
"""

import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Literal

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from auditor.audit_folder.audit_files import AuditFiles, get_shard_name
from auditor.audit_folder.extra_columns import (
    CARRIED,
    LONGEST_NAME,
    RESERVED,
    ColumnSource,
    cast_columns,
    find_plain_type,
    publish_source,
    remove_source,
    write_columns,
)
from auditor.audit_folder.folder import Folder, split_target
from auditor.audit_folder.lock import hold_folder_lock
from auditor.errors import AuditorError
from auditor.query.database import AuditDatabase
from auditor.query.sample_tables import source_sql
from auditor.query.sandbox import name as quoted


class ColumnError(AuditorError):
    """Columns that cannot be added."""


def source_name(given: str) -> str:
    """A name for a folder, from a prefix or a path."""
    last = given.rstrip("/").rsplit("/", 1)[-1].split(".")[0]
    name = re.sub(r"[^\w-]+", "_", last).strip("_") or "columns"
    return f"{name}_" if name == CARRIED else name


def check_new(database: AuditDatabase, name: str, columns: Mapping[str, str], force: bool) -> None:
    """Refuse what would hide or mix columns that are there."""
    known = {source.name: source for source in database.files.sources}
    if name in known and not force:
        raise ColumnError(
            f"{database.path} has columns called {name} already; --force replaces them, --prefix keeps both"
        )
    taken = {column.lower() for column in database.columns}
    taken -= {column.lower() for column in known[name].columns} if name in known else set()
    for column in columns:
        check_name(column)
        if column.lower() in taken:
            raise ColumnError(f"{database.path} has a column {column!r} already: give the new ones a --prefix")
        taken.add(column.lower())


def check_name(column: str) -> None:
    """Refuse what no query could ask for, or would take for something else."""
    if not column.strip() or len(column) > LONGEST_NAME or any(ord(character) < 32 for character in column):
        raise ColumnError(f"a column cannot be called {column[:50]!r}: rename it, or give the new ones a --prefix")
    if column.lower() in RESERVED:
        raise ColumnError(f"queries need the name {column!r} for themselves: give the new columns a --prefix")


@contextmanager
def replace_source(folder: Folder, source: ColumnSource) -> Iterator[None]:
    """Take the old columns away, let the new ones be written, show them; after a failure there are none."""
    with hold_folder_lock(folder):
        remove_source(folder, source.name)
        try:
            yield
        except BaseException:
            remove_source(folder, source.name)
            raise
        publish_source(folder, source)


Which = Literal["first", "last"]
Ints = npt.NDArray[np.int64]


class JoinError(AuditorError):
    """A file that cannot be joined."""


@dataclass(frozen=True, slots=True)
class Joined:
    """What a join did."""

    name: str
    columns: tuple[str, ...]
    rows: int
    matched: int
    left_out: tuple[str, ...] = ()  # columns that are lists, structs or bytes

    @property
    def missing(self) -> int:
        return self.rows - self.matched

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "missing": self.missing}


def join(
    database: AuditDatabase,
    path: str,
    on: str,
    *,
    prefix: str = "",
    which: Which | None = None,
    force: bool = False,
) -> Joined:
    """Add the columns of a Parquet or CSV file to an audit; `which` row counts where a key stands in several."""
    if on not in ("uid", "key"):
        raise JoinError(f"join on uid or key, not on {on!r}")
    if which not in ("first", "last", None):
        raise JoinError(f"which is first or last, not {which!r}")
    given = read_table(path, on)
    if on not in given.column_names:
        raise JoinError(f"{path} has no column {on!r}; it has {', '.join(given.column_names[:20])}")
    kinds = {field.name: find_plain_type(field.type) for field in given.schema if field.name != on}
    columns = {prefix + column: kind for column, kind in kinds.items() if kind}
    left_out = tuple(column for column, kind in kinds.items() if not kind)
    if not columns:
        raise JoinError(f"{path} has no plain column beside {on!r}")
    name = source_name(prefix or path)
    check_new(database, name, columns, force)
    places, counts = find_rows(database.files, given.column(on), on, which, path)
    named = given.select([column for column, kind in kinds.items() if kind]).rename_columns(list(columns))
    matched = int((places >= 0).sum())
    about = {"from": path, "on": on, "rows": len(places), "matched": matched}
    with replace_source(database.files.folder, ColumnSource(name, columns, about)):
        write_shards(database.files, name, named, columns, places, counts)
    return Joined(name, tuple(columns), len(places), matched, left_out)


def read_table(path: str, on: str) -> pa.Table:
    """A Parquet or CSV file, local or behind fsspec."""
    folder, name = split_target(path)
    try:
        if not name.lower().endswith(".csv"):
            with folder.open_table(name) as file:
                return file.read()
        as_text = pyarrow.csv.ConvertOptions(column_types={on: pa.string()})  # keys may begin with zeros
        source = folder.path(name) if folder.local else pa.BufferReader(folder.read_bytes(name))
        return pyarrow.csv.read_csv(source, convert_options=as_text)
    except FileNotFoundError:
        raise JoinError(f"{path} does not exist") from None
    except (OSError, pa.ArrowException) as error:
        raise JoinError(f"{path} cannot be read as Parquet or CSV: {' '.join(str(error).split())}") from error


def find_rows(files: AuditFiles, keys: pa.ChunkedArray, on: str, which: Which | None, path: str) -> tuple[Ints, Ints]:
    """For every row of the audit the row of the file, -1 where there is none; and how many rows each shard has."""
    connection = duckdb.connect(":memory:", config={"python_enable_replacements": False})
    try:
        if files.filesystem:
            connection.register_filesystem(files.filesystem)
        numbered = pa.table({"k": keys.cast(pa.string()), "n": np.arange(len(keys), dtype=np.int64)})
        connection.register("given", numbered)
        clean = "lower(k)" if on == "uid" else "k"
        connection.execute(f"CREATE TABLE other AS SELECT hash({clean}) AS k, n FROM given WHERE k IS NOT NULL")
        connection.unregister("given")
        once(connection, on, which, path)
        source = f"({source_sql(files, located=True)})"
        if on == "key":
            refuse_shared_keys(connection, source)
        counted = connection.execute(f"SELECT file, count(*) FROM {source} GROUP BY file").fetchall()
        counts = np.zeros(len(files.all), np.int64)
        for file, count in counted:
            counts[file] = count
        sql = f"SELECT file, file_row_number, n FROM {source} JOIN other ON other.k = hash({quoted(on)})"
        return scattered(connection, sql, counts), counts
    finally:
        connection.close()


def once(connection: duckdb.DuckDBPyConnection, on: str, which: Which | None, path: str) -> None:
    """One row of the file for each key, or a complaint."""
    rows, different = connection.execute("SELECT count(*), count(DISTINCT k) FROM other").fetchone() or (0, 0)
    if rows == different:
        return
    if which is None:
        raise JoinError(
            f"{rows - different:,} rows of {path} repeat a {on}: say which one counts, --which first or --which last"
        )
    chosen = "min" if which == "first" else "max"
    connection.execute(f"CREATE OR REPLACE TABLE other AS SELECT k, {chosen}(n) AS n FROM other GROUP BY k")


def refuse_shared_keys(connection: duckdb.DuckDBPyConnection, source: str) -> None:
    shared = connection.execute(
        f"SELECT any_value(key) FROM {source} SEMI JOIN other ON other.k = hash(key) "
        "GROUP BY hash(key) HAVING min(shard) <> max(shard) LIMIT 1"
    ).fetchone()
    if shared:
        raise JoinError(f"key {shared[0]!r} stands in several shards of the audit: join on uid instead")


def scattered(connection: duckdb.DuckDBPyConnection, sql: str, counts: Ints) -> Ints:
    starts = np.cumsum(counts) - counts
    places = np.full(int(counts.sum()), -1, np.int64)
    for batch in connection.sql(sql).to_arrow_reader(1_000_000):
        file, row, number = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
        places[starts[file] + row] = number
    return places


def write_shards(
    files: AuditFiles, name: str, table: pa.Table, columns: dict[str, str], places: Ints, counts: Ints
) -> None:
    """The columns of each shard, in the order of its rows; a few at once, for Arrow works outside Python's lock."""
    kept = cast_columns(table, list(columns.items())).combine_chunks()
    ends = np.cumsum(counts)

    def write(shard: tuple[str, int, int]) -> None:
        here = places[shard[1] : shard[2]]
        write_columns(files.folder, name, get_shard_name(shard[0]), kept.take(pa.array(here, mask=here < 0)))

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:
        list(threads.map(write, zip(files.all, ends - counts, ends, strict=True)))  # raises what a thread raised

"""`auditor join`: add the columns of another file to the rows of an audit, matched by uid or key.

DuckDB joins 64-bit hashes of the keys and returns the row of the file for each row of the audit; the columns are then
written shard by shard. Rows that the file does not have are null and counted. The columns become visible when all
shards are written.
"""

import os
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import duckdb
import numpy as np
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
from auditor.audit_folder.folder import split_target
from auditor.audit_folder.lock import hold_folder_lock
from auditor.errors import AuditorError
from auditor.query.database import AuditDatabase
from auditor.query.sample_tables import build_source_sql
from auditor.query.sandbox import quote_name as quoted
from auditor.vectors import Ints


class ColumnError(AuditorError):
    """Columns that cannot be added."""


def make_source_name(prefix_or_path: str) -> str:
    last = prefix_or_path.rstrip("/").rsplit("/", 1)[-1].split(".")[0]
    name = re.sub(r"[^\w-]+", "_", last).strip("_") or "columns"
    return f"{name}_" if name == CARRIED else name


def check_new_columns(database: AuditDatabase, name: str, columns: Iterable[str], force: bool) -> None:
    """Refuse columns that would hide or replace existing ones, or that a query could not name."""
    sources = {source.name: source for source in database.files.sources}
    if name in sources and not force:
        raise ColumnError(
            f"{database.path} already has columns called {name}; --force replaces them, --prefix keeps both"
        )
    names_in_use = {column.lower() for column in database.columns}
    names_in_use -= {column.lower() for column in sources[name].columns} if name in sources else set()
    for column in columns:
        if not column.strip() or len(column) > LONGEST_NAME or any(ord(character) < 32 for character in column):
            raise ColumnError(f"a column cannot be called {column[:50]!r}: rename it, or give the new ones a --prefix")
        if column.lower() in RESERVED:
            raise ColumnError(f"the name {column!r} is reserved: give the new columns a --prefix")
        if column.lower() in names_in_use:
            raise ColumnError(f"{database.path} already has a column {column!r}: give the new ones a --prefix")
        names_in_use.add(column.lower())


Which = Literal["first", "last"]


class JoinError(AuditorError):
    """A file that cannot be joined."""


@dataclass(frozen=True, slots=True)
class JoinResult:
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


def join_columns(
    database: AuditDatabase,
    path: str | Path,
    on: str,
    *,
    prefix: str = "",
    which: Which | None = None,
    force: bool = False,
) -> JoinResult:
    """Add the columns of a Parquet or CSV file, matched by uid or key; `which` row if several have the same key."""
    path = str(path)
    if on not in ("uid", "key"):
        raise JoinError(f"join on uid or key, not on {on!r}")
    if which not in ("first", "last", None):
        raise JoinError(f"which is first or last, not {which!r}")
    table = read_column_file(path, on)
    if on not in table.column_names:
        raise JoinError(f"{path} has no column {on!r}; it has {', '.join(table.column_names[:20])}")
    kinds = {field.name: find_plain_type(field.type) for field in table.schema if field.name != on}
    columns = {prefix + column: kind for column, kind in kinds.items() if kind}
    left_out = tuple(column for column, kind in kinds.items() if not kind)
    if not columns:
        raise JoinError(f"{path} has no plain column beside {on!r}")
    name = make_source_name(prefix or path)
    check_new_columns(database, name, columns, force)
    places, counts = match_rows(database.files, table.column(on), on, which, path)
    renamed = table.select([column for column, kind in kinds.items() if kind]).rename_columns(list(columns))
    matched = int((places >= 0).sum())
    folder = database.files.folder
    with hold_folder_lock(folder):
        remove_source(folder, name)
        try:
            write_joined_shards(database.files, name, renamed, columns, places, counts)
        except BaseException:
            remove_source(folder, name)
            raise
        about = {"from": path, "on": on, "rows": len(places), "matched": matched}
        publish_source(folder, ColumnSource(name, columns, about))
    return JoinResult(name, tuple(columns), len(places), matched, left_out)


def read_column_file(path: str, on: str) -> pa.Table:
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


def match_rows(files: AuditFiles, keys: pa.ChunkedArray, on: str, which: Which | None, path: str) -> tuple[Ints, Ints]:
    """Return the row of the file for every row of the audit (-1: none), and the number of rows of each shard."""
    connection = duckdb.connect(":memory:", config={"python_enable_replacements": False})
    try:
        if files.filesystem:
            connection.register_filesystem(files.filesystem)
        numbered = pa.table({"k": keys.cast(pa.string()), "n": np.arange(len(keys), dtype=np.int64)})
        connection.register("given", numbered)
        clean = "lower(k)" if on == "uid" else "k"
        connection.execute(f"CREATE TABLE other AS SELECT hash({clean}) AS k, n FROM given WHERE k IS NOT NULL")
        connection.unregister("given")
        deduplicate_keys(connection, on, which, path)
        source = f"({build_source_sql(files, with_places=True)})"
        if on == "key":
            refuse_shared_keys(connection, source)
        counts = np.zeros(len(files.all), np.int64)
        for file, count in connection.execute(f"SELECT file, count(*) FROM {source} GROUP BY file").fetchall():
            counts[file] = count
        sql = f"SELECT file, file_row_number, n FROM {source} JOIN other ON other.k = hash({quoted(on)})"
        return read_row_numbers(connection, sql, counts), counts
    finally:
        connection.close()


def deduplicate_keys(connection: duckdb.DuckDBPyConnection, on: str, which: Which | None, path: str) -> None:
    """Reduce the file to one row for each key, or raise JoinError."""
    rows, different = connection.execute("SELECT count(*), count(DISTINCT k) FROM other").fetchone() or (0, 0)
    if rows == different:
        return
    if which is None:
        raise JoinError(
            f"{rows - different:,} rows of {path} repeat a {on}: choose one with --which first or --which last"
        )
    chosen = "min" if which == "first" else "max"
    connection.execute(f"CREATE OR REPLACE TABLE other AS SELECT k, {chosen}(n) AS n FROM other GROUP BY k")


def refuse_shared_keys(connection: duckdb.DuckDBPyConnection, source: str) -> None:
    shared = connection.execute(
        f"SELECT any_value(key) FROM {source} SEMI JOIN other ON other.k = hash(key) "
        "GROUP BY hash(key) HAVING min(shard) <> max(shard) LIMIT 1"
    ).fetchone()
    if shared:
        raise JoinError(f"key {shared[0]!r} is in several shards of the audit: join on uid instead")


def read_row_numbers(connection: duckdb.DuckDBPyConnection, sql: str, counts: Ints) -> Ints:
    starts = np.cumsum(counts) - counts
    places = np.full(int(counts.sum()), -1, np.int64)
    for batch in connection.sql(sql).to_arrow_reader(1_000_000):
        file, row, number = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
        places[starts[file] + row] = number
    return places


def write_joined_shards(
    files: AuditFiles, name: str, table: pa.Table, columns: dict[str, str], places: Ints, counts: Ints
) -> None:
    """Write the columns of each shard in the order of its rows, in threads: Arrow releases Python's lock."""
    values = cast_columns(table, list(columns.items())).combine_chunks()
    ends = np.cumsum(counts)

    def write(file: str, start: int, end: int) -> None:
        rows = places[start:end]
        write_columns(files.folder, name, get_shard_name(file), values.take(pa.array(rows, mask=rows < 0)))

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:
        list(threads.map(write, files.all, ends - counts, ends))  # re-raises the exceptions of threads

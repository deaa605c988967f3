"""columns/<source>/: extra columns of an audit's rows that are carried from the corpus, joined, or computed by a user.

A source has one file per shard, with the rows of the shard's own file in the same order, and about.json, which names
its columns and makes them visible.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from auditor.audit_folder.folder import Folder
from auditor.audit_folder.json_validation import CompleteShape, read_valid_json
from auditor.errors import AuditError
from auditor.schema import ORIGINAL_CAPTION

CARRIED = "carried"  # the source of columns that come from the corpus
# Names that queries use internally, and that DuckDB defines for every table.
RESERVED = {"file", "file_index", "file_row_number", "filename", "rowid", "uid_order"}
RESERVED |= {"position", "number", "is_kept", "reason", "edited", "exported", "target_rank", ORIGINAL_CAPTION}
LONGEST_NAME = 200
ABOUT = CompleteShape(columns={"": str})
SQL_TYPES = {"string": "VARCHAR", "bool": "BOOLEAN", "int64": "BIGINT", "float32": "FLOAT", "float64": "DOUBLE"}


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """Columns of one origin. `about` describes the origin for people."""

    name: str
    columns: Mapping[str, str]  # name -> Arrow type, one of SQL_TYPES
    about: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  # shard -> address

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(name, pa.type_for_alias(kind)) for name, kind in self.columns.items()])


def name_column_file(source: str, shard: str) -> str:
    return f"columns/{source}/{shard}.parquet"


def name_about_file(source: str) -> str:
    return f"columns/{source}/about.json"


def find_column_sources(folder: Folder) -> tuple[ColumnSource, ...]:
    """Return the sources of extra columns, without those that are still being written."""
    sources = []
    for name in folder.names("columns", ""):
        remedy = f"remove {folder.path(f'columns/{name}')} and join the columns again"
        try:
            stored = read_valid_json(folder, name_about_file(name), ABOUT, remedy)
        except (FileNotFoundError, NotADirectoryError):
            continue
        columns = stored.pop("columns")
        if strange := next((column for column, kind in columns.items() if kind not in SQL_TYPES), None):
            raise AuditError(f"{folder.path(name_about_file(name))} is damaged: no type {columns[strange]!r}; {remedy}")
        shards = folder.names(f"columns/{name}", ".parquet")
        files = {shard: folder.address(name_column_file(name, shard)) for shard in shards}
        sources.append(ColumnSource(name, columns, stored, files))
    return tuple(sources)


def publish_source(folder: Folder, source: ColumnSource) -> None:
    folder.write_json(name_about_file(source.name), {**source.about, "columns": dict(source.columns)})


def write_columns(
    folder: Folder, source: str, shard: str, table: pa.Table, metadata: Mapping[str, str] | None = None
) -> None:
    folder.write_table(name_column_file(source, shard), table, metadata, storage={"compression": "lz4"})


def remove_source(folder: Folder, source: str) -> None:
    folder.remove(name_about_file(source))  # first, so that no reader sees half of it
    folder.remove(f"columns/{source}")


def remove_shard_columns(folder: Folder, shard: str) -> None:
    for name in folder.names("columns", ""):
        folder.remove(name_column_file(name, shard))


def cast_columns(table: pa.Table, columns: Sequence[tuple[str, str]]) -> pa.Table:
    """Cast columns to their stored types; a column is null if it is missing or does not fit its type."""
    cast = {}
    for name, kind in columns:
        cast[name] = pa.nulls(table.num_rows, pa.type_for_alias(kind))
        if name in table.column_names:
            with suppress(pa.ArrowException):
                cast[name] = table.column(name).cast(pa.type_for_alias(kind), safe=False)
    return pa.table(cast)


def find_plain_type(arrow_type: pa.DataType) -> str | None:
    """Return the type that an extra column is stored as, or None for lists, structs and bytes."""
    types = pa.types
    if types.is_dictionary(arrow_type):
        return find_plain_type(arrow_type.value_type)
    if types.is_boolean(arrow_type):
        return "bool"
    if types.is_integer(arrow_type):
        return "int64"
    if types.is_floating(arrow_type) or types.is_decimal(arrow_type):
        return "float32" if arrow_type in (pa.float16(), pa.float32()) else "float64"
    text = (types.is_string, types.is_large_string, types.is_string_view, types.is_temporal)
    return "string" if any(check(arrow_type) for check in text) else None

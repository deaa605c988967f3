"""columns/<source>/: columns that are not ours, beside an audit's rows: carried from the corpus, joined, or computed.

A source is one file per shard, whose rows are those of the shard's own file in the same order, and about.json, which
names its columns and makes them visible. A shard that is swept again loses its files, because its rows may be others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from auditor.audit_folder.folder import Folder
from auditor.audit_folder.json_validation import Whole, read_shaped
from auditor.errors import AuditError

CARRIED = "carried"  # the source of what the corpus itself says
# Names that queries need for themselves, and that DuckDB has for every table.
RESERVED = frozenset(
    [
        "file",
        "file_index",
        "file_row_number",
        "filename",
        "rowid",
        "uid_order",
        "position",
        "number",
        "is_kept",
        "reason",
    ]
)
LONGEST_NAME = 200
ABOUT = Whole(columns={"": str})
SQL_TYPES = {"string": "VARCHAR", "bool": "BOOLEAN", "int64": "BIGINT", "float32": "FLOAT", "float64": "DOUBLE"}


@dataclass(frozen=True, slots=True)
class Source:
    """Columns that came together. `about` says from where, for people."""

    name: str
    columns: Mapping[str, str]  # name -> Arrow type, one of SQL_TYPES
    about: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  # shard -> address

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(name, pa.type_for_alias(kind)) for name, kind in self.columns.items()])


def file_name(source: str, shard: str) -> str:
    return f"columns/{source}/{shard}.parquet"


def about_name(source: str) -> str:
    return f"columns/{source}/about.json"


def find_sources(folder: Folder) -> tuple[Source, ...]:
    """What an audit has of others; sources that are still being written are not among them."""
    found = []
    for name in folder.names("columns", ""):
        remedy = f"remove {folder.path(f'columns/{name}')} and join the columns again"
        try:
            stored = read_shaped(folder, about_name(name), ABOUT, remedy)
        except (FileNotFoundError, NotADirectoryError):
            continue
        columns = stored.pop("columns")
        if strange := next((column for column, kind in columns.items() if kind not in SQL_TYPES), None):
            raise AuditError(f"{folder.path(about_name(name))} is damaged: no type {columns[strange]!r}; {remedy}")
        files = {shard: folder.address(file_name(name, shard)) for shard in folder.names(f"columns/{name}", ".parquet")}
        found.append(Source(name, columns, stored, files))
    return tuple(found)


def publish(folder: Folder, source: Source) -> None:
    """Make the columns of a source visible."""
    folder.write_json(about_name(source.name), {**source.about, "columns": dict(source.columns)})


def write_columns(
    folder: Folder, source: str, shard: str, table: pa.Table, metadata: Mapping[str, str] | None = None
) -> None:
    """The columns of one shard, a row for each of its rows."""
    folder.write_table(file_name(source, shard), table, metadata, storage={"compression": "lz4"})


def remove_source(folder: Folder, source: str) -> None:
    folder.remove(about_name(source))  # first: nobody may see half of it
    folder.remove(f"columns/{source}")


def remove_shard(folder: Folder, shard: str) -> None:
    """Of a shard that is swept again: what stood beside its old rows."""
    for name in folder.names("columns", ""):
        folder.remove(file_name(name, shard))


def cast_columns(table: pa.Table, columns: Sequence[tuple[str, str]]) -> pa.Table:
    """The columns as they are kept; null where the table has none, or a value that does not fit the type."""
    return pa.table({name: _cast(table, name, pa.type_for_alias(kind)) for name, kind in columns})


def _cast(table: pa.Table, name: str, wanted: pa.DataType) -> pa.ChunkedArray | pa.Array:
    if name not in table.column_names:
        return pa.nulls(table.num_rows, wanted)
    try:
        return table.column(name).cast(wanted, safe=False)
    except pa.ArrowException:
        return pa.nulls(table.num_rows, wanted)


def plain_type(found: pa.DataType) -> str | None:
    """The type a column of others is kept as; None for lists, structs and bytes."""
    if pa.types.is_dictionary(found):
        return plain_type(found.value_type)
    if pa.types.is_nested(found):
        return None
    if pa.types.is_boolean(found):
        return "bool"
    if pa.types.is_integer(found):
        return "int64"
    if pa.types.is_floating(found) or pa.types.is_decimal(found):
        return "float32" if found in (pa.float16(), pa.float32()) else "float64"
    text = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_temporal)
    return "string" if any(check(found) for check in text) else None

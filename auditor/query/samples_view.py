"""The view over an audit's files as SQL: every declared column, the flags, and a number that tells equal rows apart."""

import json
from collections.abc import Mapping, Sequence

from auditor.audit_folder.audit_files import AuditFiles, stem
from auditor.audit_folder.correction import corrected_sql
from auditor.audit_folder.extra_columns import RESERVED, Source
from auditor.audit_folder.extra_columns import SQL_TYPES as EXTRA_TYPES
from auditor.query.rules import Threshold, flag_sql
from auditor.query.sandbox import literal, name
from auditor.schema import COLUMNS, STORED

SQL_TYPES = {
    "string": "VARCHAR",
    "bool": "BOOLEAN",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "float32": "FLOAT",
    "float64": "DOUBLE",
}
UID_ORDER = "coalesce(TRY_CAST('0x' || uid[17:] AS UBIGINT), hash(uid))"


def source_sql(files: AuditFiles, *, located: bool = False) -> str:
    """All rows with the stored columns; `located` adds `file` (its place in files.all) and file_row_number."""
    parts = []
    groups = (0, files.scored, files.columns), (len(files.scored), files.swept, files.swept_columns)
    for first, group, stored in groups:
        if group:
            place = [f"CAST(file_index + {first} AS BIGINT) AS file", "file_row_number"] if located else []
            listed = ", ".join([*column_list(files, stored), *place])
            parts.append(f"SELECT {listed} FROM read_parquet({literal(list(group))})")
    if not parts:
        place = ["CAST(NULL AS BIGINT) AS file", "CAST(NULL AS BIGINT) AS file_row_number"] if located else []
        empty = ", ".join([*column_list(files, []), *place])
        parts = [f"SELECT {empty} WHERE FALSE"]
    return " UNION ALL ".join(parts)


def column_list(files: AuditFiles, stored: Sequence[str]) -> list[str]:
    """Every column of the view; those an older or unfinished file does not have are NULL of the right type."""
    wanted = [*STORED, *(column for column in files.columns if column not in STORED)]
    there = set(stored)
    return [
        name(column) if column in there else f"CAST(NULL AS {sql_type(column)}) AS {name(column)}" for column in wanted
    ]


def sql_type(column: str) -> str:
    return SQL_TYPES[COLUMNS[column].type] if column in COLUMNS else "VARCHAR"


def flag_columns(thresholds: Mapping[str, Threshold]) -> str:
    return ", ".join(f"{sql} AS {flag}" for flag, sql in flag_sql(thresholds).items())


def view_sql(files: AuditFiles, thresholds: Mapping[str, Threshold], *, located: bool = False) -> str:
    """Measurements and flags, and `uid_order`: a number by which rows that are equal otherwise are told apart."""
    source = source_sql(files, located=located)
    if files.correction:
        corrected = f"{corrected_sql(files.correction)} AS p_mismatch, p_mismatch AS p_mismatch_without_labels"
        source = f"SELECT * REPLACE ({corrected}) FROM ({source})"
    carried = "".join(f", {sql}" for sql in carried_columns(files))
    return f"SELECT *, {flag_columns(thresholds)}, {UID_ORDER} AS uid_order{carried} FROM ({source})"


def carried_columns(files: AuditFiles) -> list[str]:
    """The columns of the input that were carried into the audit, each by its own name unless that is taken."""
    wanted: list[str] = files.manifest.get("corpus", {}).get("carry") or []
    return [
        f"json_extract_string(carried, {literal('$.' + json.dumps(column))}) AS {name(carried_name(column))}"
        for column in wanted
    ]


def carried_name(column: str) -> str:
    return f"input_{column}" if column.lower() in COLUMNS or column.lower() in RESERVED else column


def extended_sql(files: AuditFiles, thresholds: Mapping[str, Threshold], *, located: bool = False) -> str:
    """The view with the columns of others beside it: files of the same shard have the same rows in the same order."""
    joins, nulls = [], []
    for number, source in enumerate(files.sources):
        found = beside_sql(files, source)
        if found:
            joins.append(f"LEFT JOIN ({found}) beside_{number} USING (file, file_row_number)")
        else:
            nulls += [f"CAST(NULL AS {EXTRA_TYPES[kind]}) AS {name(column)}" for column, kind in source.columns.items()]
    chosen = ", ".join(["*" if located else "* EXCLUDE (file, file_row_number)", *nulls])
    return f"SELECT {chosen} FROM ({view_sql(files, thresholds, located=True)}) {' '.join(joins)}"


def beside_sql(files: AuditFiles, source: Source) -> str:
    """The columns of a source, each row with its place in the audit; empty where it has none of these shards."""
    there = [(place, source.files[stem(file)]) for place, file in enumerate(files.all) if stem(file) in source.files]
    if not there:
        return ""
    places = [place for place, _ in there]
    file = "file_index" if places == list(range(len(places))) else f"{literal(places)}[file_index + 1]"
    columns = ", ".join(name(column) for column in source.columns)
    paths = literal([path for _, path in there])
    return f"SELECT CAST({file} AS BIGINT) AS file, file_row_number, {columns} FROM read_parquet({paths})"

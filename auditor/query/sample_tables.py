"""The samples of an audit as tables of DuckDB: views over its files, columns in memory, and rows that meet a condition."""

import hashlib
import itertools
import json
import re
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import pyarrow as pa

from auditor.audit_folder.audit_files import AuditFiles, get_shard_name
from auditor.audit_folder.correction import build_corrected_sql
from auditor.audit_folder.extra_columns import RESERVED, ColumnSource
from auditor.audit_folder.extra_columns import SQL_TYPES as EXTRA_TYPES
from auditor.query.rules import Threshold, flag_sql
from auditor.query.sandbox import Sandbox, literal, name
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
        corrected = f"{build_corrected_sql(files.correction)} AS p_mismatch, p_mismatch AS p_mismatch_without_labels"
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


def beside_sql(files: AuditFiles, source: ColumnSource) -> str:
    """The columns of a source, each row with its place in the audit; empty where it has none of these shards."""
    there = [(place, source.files[get_shard_name(file)]) for place, file in enumerate(files.all) if get_shard_name(file) in source.files]
    if not there:
        return ""
    places = [place for place, _ in there]
    file = "file_index" if places == list(range(len(places))) else f"{literal(places)}[file_index + 1]"
    columns = ", ".join(name(column) for column in source.columns)
    paths = literal([path for _, path in there])
    return f"SELECT CAST({file} AS BIGINT) AS file, file_row_number, {columns} FROM read_parquet({paths})"


MOST_ROWS = 20_000_000
IN_MEMORY = "in_memory"  # the view
_KEPT = [column for column in COLUMNS.values() if column.in_memory]
WORDS = tuple(column.name for column in _KEPT if column.type == "string" and not column.unique)  # as ENUMs
TEXTS = tuple(column.name for column in _KEPT if column.type == "string" and column.unique)  # where they fit
NUMBERS = (*(column.name for column in _KEPT if column.type != "string"), "uid_order")
REMEMBERED = 6  # conditions; as many that were forgotten last may still be in use

T = TypeVar("T")


class Cached(Generic[T]):
    """An answer that is computed once, by whoever asks first; others wait for it. One that fails is asked for again."""

    def __init__(self) -> None:
        self.answers: list[T] = []  # one, when it is known
        self._lock = threading.Lock()

    def get(self, compute: Callable[[], T]) -> T:
        with self._lock:
            if not self.answers:
                self.answers.append(compute())
            return self.answers[0]


class InMemory:
    """Tables in the sandbox of an audit that hold some of its columns, each row with its place."""

    def __init__(
        self,
        sandbox: Sandbox,
        located: str,  # SQL of all rows with their places
        thresholds: Mapping[str, Threshold],
        columns: Sequence[str],
        *,
        texts: bool,
        extra: Sequence[str] = (),  # numbers of others
    ) -> None:
        self.sandbox, self.located = sandbox, located
        self.plain = (*NUMBERS, *TEXTS, *extra) if texts else (*NUMBERS, *extra)
        kept = {column.lower() for column in (*WORDS, *self.plain, *flag_sql({}))}
        absent = {column.lower() for column in columns} - kept | {"columns"}
        self.absent = {column for column in absent if re.fullmatch(r"\w+", column)}
        self.absent_odd = absent - self.absent  # names that are not words
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Cached[str]] = OrderedDict()  # condition: table of the places that meet it
        self._forgotten: deque[Cached[str]] = deque()
        self._numbers = itertools.count(1)
        self._read(flag_columns(thresholds))

    def _read(self, flags: str) -> None:
        define = self.sandbox.define
        distinct = ", ".join(f"list(DISTINCT {word}) AS {word}" for word in WORDS)
        known = self.sandbox.rows(f"SELECT {distinct} FROM measured")[0]
        for word in WORDS:
            values = sorted(set(known[word] or ()) - {None} | {""})  # an ENUM of nothing is an error
            define(f"CREATE OR REPLACE TYPE {word}_word AS ENUM ({', '.join(map(literal, values))})")
        columns = [
            *(f"CAST({word} AS {word}_word) AS {word}" for word in WORDS),
            *map(name, self.plain),
            *place_columns(),
        ]
        chosen = f"SELECT {', '.join(columns)} FROM ({self.located})"
        define(f"CREATE TABLE in_memory_columns AS {chosen}", patient=True)
        define(f"CREATE VIEW {IN_MEMORY} AS SELECT *, {flags} FROM in_memory_columns")

    def covers(self, *sql: str) -> bool:
        """Are all columns that are named in memory? A word that only looks like another column costs time, no more."""
        text = " ".join(sql).lower()
        return not self.absent & set(re.findall(r"\w+", text)) and not any(odd in text for odd in self.absent_odd)

    def reads_text(self, condition: str) -> bool:
        """Does it look at text, in memory or not?"""
        return not self.covers(condition) or bool(set(TEXTS) & set(re.findall(r"\w+", condition.lower())))

    def places(self, condition: str) -> str:
        """The table of the places of all rows that meet a condition on any column."""
        with self._lock:
            if condition not in self._known:
                self._known[condition] = Cached()
                self._forget()
            self._known.move_to_end(condition)
            found = self._known[condition]
        return found.get(lambda: self._find(condition))

    def _find(self, condition: str) -> str:
        table = f"places_{next(self._numbers)}"
        source = IN_MEMORY if self.covers(condition) else f"({self.located})"
        chosen = f"SELECT {', '.join(place_columns())} FROM {source} AS samples WHERE {condition}"
        self.sandbox.define(f"CREATE TABLE {table} AS {chosen}")
        return table

    def _forget(self) -> None:
        if len(self._known) > REMEMBERED:
            self._forgotten.append(self._known.popitem(last=False)[1])
        if len(self._forgotten) > REMEMBERED:
            for table in self._forgotten.popleft().answers:
                self.sandbox.define(f"DROP TABLE {table}")


def place_columns() -> list[str]:
    return [f"CAST({column} AS INTEGER) AS {column}" for column in ("file", "file_row_number")]


# Identifies a row in every view of an audit: no two rows of a shard have the same uid and caption index.
ROW_HASH = "hash(CAST(shard AS VARCHAR), uid_order, CAST(coalesce(caption_index, 0) AS INTEGER))"
TABLE_NAME = re.compile(r"\bmatching_rows_[0-9a-f]{16}\b")
MOST_TABLES = 16


@dataclass(frozen=True, slots=True)
class StoredCondition:
    """A checked condition, and whether it reads reviews."""

    sql: str
    reads_reviews: bool


class MatchingRows:
    """The tables of one audit. `evaluate` runs a checked query in a SQL process, `version` is that of the reviews."""

    def __init__(self, sandbox: Sandbox, evaluate: Callable[[str], pa.Table], version: Callable[[], str]) -> None:
        self._sandbox, self._evaluate, self._version = sandbox, evaluate, version
        self._conditions: dict[str, StoredCondition] = {}
        self._tables: OrderedDict[str, str] = OrderedDict()  # name: version of the reviews it was made from
        self._lock = threading.RLock()

    def replace_condition(self, condition: StoredCondition) -> str:
        """Return SQL that is true for the rows that meet the condition; evaluates it if that was not done yet."""
        table = f"matching_rows_{hashlib.blake2b(condition.sql.encode(), digest_size=8).hexdigest()}"
        self._conditions[table] = condition
        sql = f"{ROW_HASH} IN (SELECT row_hash FROM {table})"
        self.make_tables(sql)
        return f"coalesce({sql}, FALSE)"

    def make_tables(self, sql: str) -> None:
        """Make the tables that `sql` names, unless they are there and fresh."""
        for table in set(TABLE_NAME.findall(sql)) & self._conditions.keys():
            condition = self._conditions[table]
            version = self._version() if condition.reads_reviews else ""
            with self._lock:
                if self._tables.get(table) != version:
                    row_hash = ROW_HASH.replace("uid_order", UID_ORDER)
                    rows = self._evaluate(f"SELECT {row_hash} AS row_hash FROM samples WHERE {condition.sql}")
                    self._sandbox.load_table(table, rows)
                    self._tables[table] = version
                self._tables.move_to_end(table)
                if len(self._tables) > MOST_TABLES:
                    self._sandbox.define(f"DROP TABLE {self._tables.popitem(last=False)[0]}")

    def copy_tables(self, sql: str, sandbox: Sandbox) -> None:
        """Copy the tables that `sql` names into another sandbox."""
        self.make_tables(sql)
        for table in set(TABLE_NAME.findall(sql)) & self._conditions.keys():
            sandbox.load_table(table, self._sandbox.run(f"SELECT * FROM {table}"))

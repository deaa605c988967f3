"""The samples of an audit as tables of DuckDB: views over its files, columns in memory, rows that meet a condition.

Ten million rows with captions take about 1.6 GB of memory and ten seconds of two cores to load; a count or histogram
then takes a tenth of a second instead of half a second. Captions that do not fit stay in the files. A query that names
a column which is not in memory (keys, paths) reads the files.
"""

import hashlib
import itertools
import json
import os
import re
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, Generic, TypeVar

import duckdb
import pyarrow as pa

from auditor.audit_folder.audit_files import AuditFiles, get_shard_name
from auditor.audit_folder.confirmed_places import AUDIT_ID, find_state_folder
from auditor.audit_folder.correction import build_corrected_sql
from auditor.audit_folder.extra_columns import RESERVED, ColumnSource
from auditor.audit_folder.extra_columns import SQL_TYPES as EXTRA_TYPES
from auditor.audit_folder.json_validation import CompleteShape, read_valid_json
from auditor.errors import AuditorError
from auditor.query.rules import build_flag_sql
from auditor.query.sandbox import Sandbox, quote_literal, quote_name
from auditor.schema import COLUMNS, FLAGS, STORED

SQL_TYPES = {**EXTRA_TYPES, "int16": "SMALLINT", "int32": "INTEGER"}
UID_ORDER = "coalesce(TRY_CAST('0x' || uid[17:] AS UBIGINT), hash(uid))"


def build_source_sql(files: AuditFiles, *, with_places: bool = False) -> str:
    """Build the SQL of all rows with the stored columns.

    `with_places` adds `file` (the index in files.all) and `file_row_number`.
    """
    parts = []
    groups = (0, files.scored, files.columns), (len(files.scored), files.swept, files.swept_columns)
    for first, group, stored in groups:
        if group:
            place = [f"CAST(file_index + {first} AS BIGINT) AS file", "file_row_number"] if with_places else []
            listed = ", ".join([*build_column_list(files, stored), *place])
            parts.append(f"SELECT {listed} FROM read_parquet({quote_literal(list(group))})")
    if not parts:
        place = ["CAST(NULL AS BIGINT) AS file", "CAST(NULL AS BIGINT) AS file_row_number"] if with_places else []
        empty = ", ".join([*build_column_list(files, []), *place])
        parts = [f"SELECT {empty} WHERE FALSE"]
    return " UNION ALL ".join(parts)


def build_column_list(files: AuditFiles, stored: Sequence[str]) -> list[str]:
    """List every column of the view; a column that an unfinished file does not have is NULL of its type."""
    listed = []
    for column in dict.fromkeys([*STORED, *files.columns]):
        sql_type = SQL_TYPES[COLUMNS[column].type] if column in COLUMNS else "VARCHAR"
        name = quote_name(column)
        listed.append(name if column in stored else f"CAST(NULL AS {sql_type}) AS {name}")
    return listed


def build_flag_columns(thresholds: Mapping[str, float]) -> str:
    return ", ".join(f"{sql} AS {flag}" for flag, sql in build_flag_sql(thresholds).items())


def build_view_sql(files: AuditFiles, thresholds: Mapping[str, float], *, with_places: bool = False) -> str:
    """Build the SQL of measurements, flags and `uid_order`, a number that orders rows which are equal otherwise."""
    source = build_source_sql(files, with_places=with_places)
    if files.correction:
        corrected = f"{build_corrected_sql(files.correction)} AS p_mismatch, p_mismatch AS p_mismatch_without_labels"
        source = f"SELECT * REPLACE ({corrected}) FROM ({source})"
    carried = "".join(f", {sql}" for sql in build_carried_columns(files))
    return f"SELECT *, {build_flag_columns(thresholds)}, {UID_ORDER} AS uid_order{carried} FROM ({source})"


def build_carried_columns(files: AuditFiles) -> list[str]:
    """List the columns carried over from the corpus, each under its own name unless that name is taken."""
    listed = []
    for column in files.manifest.get("corpus", {}).get("carry") or []:
        name = f"input_{column}" if column.lower() in COLUMNS or column.lower() in RESERVED else column
        path = quote_literal("$." + json.dumps(column))
        listed.append(f"json_extract_string(carried, {path}) AS {quote_name(name)}")
    return listed


def build_extended_sql(files: AuditFiles, thresholds: Mapping[str, float], *, with_places: bool = False) -> str:
    """Build the SQL of the view with joined and applied columns, whose files have the same rows in the same order."""
    joins, nulls = [], []
    for number, source in enumerate(files.sources):
        if extra_sql := build_extra_columns_sql(files, source):
            joins.append(f"LEFT JOIN ({extra_sql}) source_{number} USING (file, file_row_number)")
        else:
            columns = source.columns.items()
            nulls += [f"CAST(NULL AS {SQL_TYPES[kind]}) AS {quote_name(column)}" for column, kind in columns]
    chosen = ", ".join(["*" if with_places else "* EXCLUDE (file, file_row_number)", *nulls])
    return f"SELECT {chosen} FROM ({build_view_sql(files, thresholds, with_places=True)}) {' '.join(joins)}"


def build_extra_columns_sql(files: AuditFiles, source: ColumnSource) -> str:
    """Build the SQL of a source's columns with the places of their rows; empty if it has none of these shards."""
    shards = [get_shard_name(file) for file in files.all]
    places = [place for place, shard in enumerate(shards) if shard in source.files]
    if not places:
        return ""
    file = "file_index" if places == list(range(len(places))) else f"{quote_literal(places)}[file_index + 1]"
    columns = ", ".join(map(quote_name, source.columns))
    paths = quote_literal([source.files[shards[place]] for place in places])
    return f"SELECT CAST({file} AS BIGINT) AS file, file_row_number, {columns} FROM read_parquet({paths})"


MOST_ROWS = 20_000_000
IN_MEMORY = "in_memory"  # the view
IN_MEMORY_COLUMNS = [column for column in COLUMNS.values() if column.in_memory]
STRINGS = [column for column in IN_MEMORY_COLUMNS if column.type == "string"]
WORDS = tuple(column.name for column in STRINGS if not column.unique)  # stored as ENUMs
TEXTS = tuple(column.name for column in STRINGS if column.unique)  # loaded if they fit
NUMBERS = (*(column.name for column in IN_MEMORY_COLUMNS if column.type != "string"), "uid_order")
PLACE = ", ".join(f"CAST({column} AS INTEGER) AS {column}" for column in ("file", "file_row_number"))
REMEMBERED = 6  # conditions; the tables of as many older ones stay, and those that a thread may still read
LAST_READ = 3  # tables that a thread asked for last: its query may not have run yet

LEAST_SECONDS = 0.1  # of a query whose rows are stored
STORED_SHAPE = CompleteShape(version=str, rows=[dict])

T = TypeVar("T")
Row = dict[str, Any]


class CachedAnswer(Generic[T]):
    """An answer that the first caller computes while others wait. If that fails, the next caller tries again."""

    def __init__(self) -> None:
        self.answers: list[T] = []  # one answer, once it is computed
        self._lock = threading.Lock()

    def get(self, compute: Callable[[], T]) -> T:
        with self._lock:
            if not self.answers:
                self.answers.append(compute())
            return self.answers[0]


class StoredRows:
    """Rows of costly queries over a whole local audit, stored for this user until a file of the audit changes.

    They belong to their SQL and to the path, size and times of each file; no program can set the time of the last
    change (ctime) back. They are in the user's state folder and not in the audit, which may come from a stranger.
    """

    def __init__(self, files: AuditFiles, view: str) -> None:
        self._files, self._view = files, view

    def fetch(self, name: str, sql: str, compute: Callable[[], list[Row]]) -> list[Row]:
        audit_id = str(self._files.manifest.get("id"))
        if not (self._files.folder.local and AUDIT_ID.fullmatch(audit_id) and self._file_facts):
            return compute()
        file, version = f"{audit_id}.{name}.json", self._digest(sql)
        with suppress(OSError, AuditorError, RuntimeError):  # RuntimeError: no home folder
            stored = read_valid_json(find_state_folder(), file, STORED_SHAPE, "")
            if stored["version"] == version:
                return list(stored["rows"])
        started = time.monotonic()
        rows = compute()
        if time.monotonic() - started >= LEAST_SECONDS:
            with suppress(OSError, AuditorError, RuntimeError, ValueError):  # ValueError: not a number
                find_state_folder().write_json(file, {"version": version, "rows": rows})
        return rows

    def _digest(self, sql: str) -> str:
        facts = [duckdb.__version__, self._view, sql, *self._file_facts]
        return hashlib.blake2b("\n".join(facts).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()

    @cached_property
    def _file_facts(self) -> list[str]:
        """Path, size and times of each file; empty if a file is missing."""
        with suppress(OSError):
            files = [(path, os.stat(path)) for path in self._files.readable]
            return [f"{path} {facts.st_size} {facts.st_mtime_ns} {facts.st_ctime_ns}" for path, facts in files]
        return []


class MemoryColumns:
    """Tables in the sandbox of an audit that hold the columns used most, each row with its place."""

    def __init__(
        self,
        sandbox: Sandbox,
        row_sql: str,  # of all rows with their places
        thresholds: Mapping[str, float],
        columns: Sequence[str],
        *,
        texts: bool,
        extra: Sequence[str] = (),  # joined and applied columns of numbers
    ) -> None:
        self.sandbox, self.row_sql = sandbox, row_sql
        self.plain = (*NUMBERS, *(TEXTS if texts else ()), *extra)
        names = {column.lower() for column in (*WORDS, *self.plain, *FLAGS)}
        absent = {column.lower() for column in columns} - names | {"columns"}
        self.absent = {column for column in absent if re.fullmatch(r"\w+", column)}
        self.absent -= {"end"}  # it also ends a CASE; the column of that name is always quoted, as END is reserved
        self.absent_odd = {f'"{column}"' if column == "end" else column for column in absent - self.absent}
        self._lock = threading.Lock()
        self._known: OrderedDict[str, CachedAnswer[str]] = OrderedDict()  # condition: table of the places that meet it
        self._forgotten: deque[CachedAnswer[str]] = deque()
        self._last_read: dict[int, deque[CachedAnswer[str]]] = {}  # by thread
        self._numbers = itertools.count(1)
        self._read(build_flag_columns(thresholds))

    def _read(self, flags: str) -> None:
        define = self.sandbox.define
        distinct = ", ".join(f"list(DISTINCT {word}) AS {word}" for word in WORDS)
        distinct_values = self.sandbox.rows(f"SELECT {distinct} FROM measured")[0]
        for word in WORDS:
            values = sorted(set(distinct_values[word] or ()) - {None} | {""})  # an empty ENUM is an error
            define(f"CREATE OR REPLACE TYPE {word}_word AS ENUM ({', '.join(map(quote_literal, values))})")
        columns = [*(f"CAST({word} AS {word}_word) AS {word}" for word in WORDS), *map(quote_name, self.plain), PLACE]
        chosen = f"SELECT {', '.join(columns)} FROM ({self.row_sql})"
        define(f"CREATE TABLE in_memory_columns AS {chosen}", patient=True)
        define(f"CREATE VIEW {IN_MEMORY} AS SELECT *, {flags} FROM in_memory_columns")

    def covers(self, *sql: str) -> bool:
        """Whether all columns that `sql` names are in memory. A false negative only costs time."""
        text = " ".join(sql).lower().replace('""', '"')
        return not self.absent & set(re.findall(r"\w+", text)) and not any(odd in text for odd in self.absent_odd)

    def reads_text(self, condition: str) -> bool:
        return not self.covers(condition) or bool(set(TEXTS) & set(re.findall(r"\w+", condition.lower())))

    def places(self, condition: str) -> str:
        """Return the table with the places of all rows that meet a condition on any column."""
        with self._lock:
            if condition not in self._known:
                self._known[condition] = CachedAnswer()
                self._forget()
            self._known.move_to_end(condition)
            answer = self._known[condition]
            self._last_read.setdefault(threading.get_ident(), deque(maxlen=LAST_READ)).append(answer)
        return answer.get(lambda: self._find(condition))

    def _find(self, condition: str) -> str:
        table = f"places_{next(self._numbers)}"
        source = IN_MEMORY if self.covers(condition) else f"({self.row_sql})"
        self.sandbox.define(f"CREATE TABLE {table} AS SELECT {PLACE} FROM {source} AS samples WHERE {condition}")
        return table

    def _forget(self) -> None:
        if len(self._known) > REMEMBERED:
            self._forgotten.append(self._known.popitem(last=False)[1])
        if len(self._forgotten) <= REMEMBERED:
            return
        alive = {thread.ident for thread in threading.enumerate()}
        self._last_read = {ident: answers for ident, answers in self._last_read.items() if ident in alive}
        readable = {id(answer) for answers in self._last_read.values() for answer in answers}
        for answer in [answer for answer in self._forgotten if id(answer) not in readable][:-REMEMBERED]:
            self._forgotten.remove(answer)
            for table in answer.answers:
                self.sandbox.define(f"DROP TABLE {table}")


# Identifies a row in every view of an audit: no two rows of a shard have the same uid and caption index.
ROW_HASH = "hash(shard, uid, CAST(coalesce(caption_index, 0) AS INTEGER))"
TABLE_NAME = re.compile(r"\bmatching_rows_[0-9a-f]{16}\b")
MOST_TABLES = 16


class MatchingRows:
    """Sets of rows as tables of row hashes, so that `row hash IN table` can stand in any SQL over the samples.

    A set holds the rows that meet a condition which is too general to run beside the auditor's own SQL, or the rows
    that a selection has chosen. A table is made again if it was dropped to save memory, or if it depends on reviews and
    those have changed. `evaluate` runs a checked query in a SQL process, `version` returns the version of the reviews.
    """

    def __init__(self, sandbox: Sandbox, evaluate: Callable[[str], pa.Table], version: Callable[[], str]) -> None:
        self._sandbox, self._evaluate, self._version = sandbox, evaluate, version
        self._makers: dict[str, Callable[[], pa.Table]] = {}  # by table: computes its row hashes
        self._reads_reviews: set[str] = set()  # tables that depend on reviews
        self._tables: OrderedDict[str, str] = OrderedDict()  # name: version of the reviews it was made from
        self._lock = threading.RLock()

    def replace_condition(self, condition: str, reads_reviews: bool) -> str:
        """Return SQL that is true for the rows that meet a checked condition, which is evaluated if it is new."""
        query = f"SELECT {ROW_HASH} AS row_hash FROM samples WHERE {condition}"
        return self.add_rows(condition, lambda: self._evaluate(query), reads_reviews)

    def add_rows(self, key: str, make: Callable[[], pa.Table], reads_reviews: bool) -> str:
        """Return SQL that is true for the rows whose hashes `make` returns; `key` determines them."""
        table = f"matching_rows_{hashlib.blake2b(key.encode(), digest_size=8).hexdigest()}"
        self._makers.setdefault(table, make)
        if reads_reviews:
            self._reads_reviews.add(table)
        sql = f"{ROW_HASH} IN (SELECT row_hash FROM {table})"
        self.make_tables(sql)
        return f"coalesce({sql}, FALSE)"

    def make_tables(self, sql: str) -> set[str]:
        """Make the tables that `sql` names, unless they are there and fresh; return their names."""
        tables = set(TABLE_NAME.findall(sql)) & self._makers.keys()
        for table in tables:
            version = self._version() if table in self._reads_reviews else ""
            with self._lock:
                if self._tables.get(table) != version:
                    self._sandbox.load_table(table, self._makers[table]())
                    self._tables[table] = version
                self._tables.move_to_end(table)
                if len(self._tables) > MOST_TABLES:
                    self._sandbox.define(f"DROP TABLE {self._tables.popitem(last=False)[0]}")
        return tables

    def reads_reviews(self, sql: str) -> bool:
        """Whether `sql` names a table that depends on reviews."""
        return bool(self._reads_reviews & set(TABLE_NAME.findall(sql)))

    def read_tables(self, sql: str) -> dict[str, pa.Table]:
        """Return the tables that `sql` names, for another sandbox."""
        return {table: self._sandbox.run(f"SELECT * FROM {table}") for table in self.make_tables(sql)}

"""DuckDB that can read one audit and nothing else: where every query runs, ours and other people's.

The engine itself is locked down (no external access but the audit's own files, no extensions, configuration locked,
memory limit, no spilling); text written by a user must in addition be a single SELECT whose syntax tree names only the
audit's tables and functions of bounded cost (auditor/query/allowed.py); and a timer interrupts what runs too long.
"""

import json
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from typing import Any

import duckdb
import pyarrow as pa

from auditor.query.allowed import LONGEST_TEXT, MOST_COLUMNS, check_tree
from auditor.query.allowed import QueryError as QueryError

Parameters = Sequence[Any] | Mapping[str, Any] | None
LONGEST = 100_000  # characters of SQL
VECTOR = 2048  # rows that DuckDB makes at a time
UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


@dataclass(frozen=True, slots=True)
class Limits:
    memory: str = "1500MB"
    seconds: float | None = 60.0  # None: as long as it takes
    threads: int | None = None  # all cores

    def __post_init__(self) -> None:
        if self.seconds is not None and not 0 < self.seconds <= threading.TIMEOUT_MAX:
            raise QueryError(f"a query cannot be given {self.seconds:g} s; the time limit is a number above 0")


def literal(value: Any) -> str:
    """A Python value as SQL text."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | float):
        return f"CAST('{value}' AS DOUBLE)" if isinstance(value, float) else str(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(literal(item) for item in value) + "]"
    return "'" + str(value).replace("'", "''") + "'"


def name(column: str) -> str:
    """A column name as SQL text."""
    return '"' + column.replace('"', '""') + '"'


def in_words(error: Exception) -> str:
    """DuckDB's message in one line, without the lines that draw where it happened."""
    text = re.split(r"\n\s*LINE \d+:", str(error))[0]
    return " ".join(text.split())


def is_text(given: str) -> bool:
    """Whether it has no half of a surrogate pair, which undecodable bytes of a command line become."""
    return not any("\ud800" <= character <= "\udfff" for character in given)


class Sandbox:
    """A locked DuckDB over the files in `readable`; `writable` are the only paths a COPY of ours may write."""

    def __init__(
        self,
        readable: Sequence[str],
        limits: Limits = Limits(),  # noqa: B008 (frozen)
        filesystems: Sequence[Any] = (),  # of fsspec, for remote files
        writable: Sequence[str] = (),
    ) -> None:
        if odd := next((path for path in (*readable, *writable) if not is_text(path)), None):
            raise QueryError(f"{odd} cannot be opened: its name is not in UTF-8; rename it")
        self.limits = limits
        self._running: set[duckdb.DuckDBPyConnection] = set()  # questions
        self._last, self.stopped = time.monotonic(), False  # when one began or ended; whether there will be no more
        self._connection = duckdb.connect(":memory:")
        for filesystem in filesystems:
            self._connection.register_filesystem(filesystem)
        settings: dict[str, Any] = {
            "memory_limit": limits.memory,
            "temp_directory": "",
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "python_enable_replacements": False,
            "parquet_metadata_cache": True,  # an audit's files are replaced, never changed
            "allowed_paths": [*readable, *writable],
            "enable_external_access": False,
        }
        if limits.threads:
            settings["threads"] = limits.threads
        settings["lock_configuration"] = True
        try:
            for setting, value in settings.items():
                self._connection.execute(f"SET {setting} = {literal(value)}")
        except duckdb.OutOfMemoryException:
            raise QueryError(f"needs more than {limits.memory} of memory, the limit of a query") from None
        except duckdb.Error as error:
            raise QueryError(f"{setting} cannot be {value!r}: {in_words(error)}") from None

    def close(self) -> None:
        self.stop()
        self._connection.close()

    def stop(self) -> None:
        """Interrupt what runs; whoever waits for quiet waits no longer."""
        self.stopped = True
        for session in list(self._running):
            session.interrupt()

    def wait_until_quiet(self, seconds: float) -> bool:
        """Until nobody has asked anything for so long; False where it was stopped in the meantime."""
        while not self.stopped:
            if not self._running and time.monotonic() - self._last >= seconds:
                return True
            time.sleep(min(seconds, 0.1))
        return False

    def define(self, statement: str, *, patient: bool = False) -> None:
        """Run a statement of ours that makes a view or table; `patient` takes as long as it takes."""
        with self._session(patient) as session:
            session.execute(statement).fetchall()

    def run(self, sql: str) -> pa.Table:
        """The result of a query of ours."""
        with self._session() as session:
            return session.sql(sql).to_arrow_table()

    def memory_limit(self) -> int:
        """In bytes, as DuckDB has understood it."""
        number, unit = str(self.rows("SELECT current_setting('memory_limit') AS most")[0]["most"]).split()
        return int(float(number) * UNITS[unit])

    def run_select(self, sql: str, parameters: Parameters = None) -> pa.Table:
        """The result of a checked query of a user, as far as the memory limit goes: Arrow's is not part of DuckDB's."""
        check_parameters(parameters)
        with self._session() as session:
            most = self.memory_limit()
            reader = session.sql(sql, params=parameters or None).to_arrow_reader(VECTOR)
            if len(reader.schema) > MOST_COLUMNS:
                raise QueryError(f"a query may give {MOST_COLUMNS} columns at most, not {len(reader.schema):,}")
            batches: list[pa.RecordBatch] = []
            for batch in reader:
                most -= batch.nbytes
                if most < 0:
                    raise QueryError(f"its rows take more than {self.limits.memory} of memory; LIMIT or aggregate them")
                batches.append(batch)
            return pa.Table.from_batches(batches, reader.schema)

    def rows(self, sql: str) -> list[dict[str, Any]]:
        result: list[dict[str, Any]] = self.run(sql).to_pylist()
        return result

    def rows_of(self, statement: str) -> int:
        """Run a COPY of ours; returns how many rows it wrote."""
        with self._session() as session:
            answer = session.execute(statement).fetchall()
            return int(answer[0][0])

    def stream(self, sql: str, batch: int = 100_000) -> Iterator[pa.RecordBatch]:
        """The result in batches; the time limit is for the whole."""
        with self._session() as session:
            yield from session.sql(sql).to_arrow_reader(batch)

    @contextmanager
    def _session(self, patient: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection of its own (threads of a dashboard share the database) that is interrupted when time is up."""
        session = self._connection.cursor()
        self._running.add(session)
        self._last = time.monotonic()
        timer = threading.Timer(self.limits.seconds or 0, session.interrupt)
        timer.daemon = True
        if self.limits.seconds is not None and not patient:
            timer.start()
        try:
            yield session
        except duckdb.InterruptException:
            if self.stopped:
                raise QueryError("the audit was closed") from None
            raise QueryError(f"stopped after {self.limits.seconds:g} s, the time limit of a query") from None
        except duckdb.OutOfMemoryException:
            raise QueryError(f"needs more than {self.limits.memory} of memory, the limit of a query") from None
        except duckdb.Error as error:
            raise QueryError(in_words(error)) from None
        finally:
            timer.cancel()
            self._running.discard(session)
            self._last = time.monotonic()
            session.close()

    def _parse(self, sql: str) -> dict[str, Any]:
        """The syntax tree of the one SELECT in `sql`."""
        if len(sql) > LONGEST:
            raise QueryError(f"a query of {len(sql):,} characters is too long")
        if not is_text(sql):
            raise QueryError("a query must be text in UTF-8")
        try:
            with self._session() as session:
                duckdb.extract_statements(sql)  # for its message: better than that of the serializer
                answer = session.execute("SELECT json_serialize_sql(?)", [sql]).fetchone()
            tree: dict[str, Any] = json.loads(answer[0]) if answer else {}
        except (RecursionError, UnicodeError, duckdb.Error) as error:
            message = "is nested too deeply" if isinstance(error, RecursionError) else in_words(error)
            raise QueryError(message) from None
        if tree.get("error") or len(tree["statements"]) != 1:
            raise QueryError("only a single SELECT statement can be run on an audit")
        statement: dict[str, Any] = tree["statements"][0]
        return statement

    def check_select(self, sql: str) -> None:
        """Refuse text that is anything but one SELECT over the audit's own tables."""
        check_tree(self._parse(sql))

    def check_condition(self, text: str) -> str:
        """A user's WHERE text as one closed expression, ready to stand between ANDs."""
        closed = f"coalesce(\n{text}\n, FALSE)"
        tree = self._parse(f"SELECT 1 FROM samples WHERE {closed}")
        plain = self._parse("SELECT 1 FROM samples WHERE coalesce(TRUE, FALSE)")
        # All but the first argument must be as if that were TRUE: nothing has broken out of the brackets.
        if without_first_argument(tree) != without_first_argument(plain):
            raise QueryError("a condition must be a single expression, like: similarity > 0.3 AND kind = 'video'")
        check_tree(tree)
        return closed


def check_parameters(given: Parameters) -> None:
    """Numbers, texts, dates and lists of them: what constants of a query may be, and no larger."""
    if given is not None and not isinstance(given, list | tuple | Mapping):
        raise QueryError(f"parameters are a list for ?, or a mapping for $name, not {type(given).__name__}")
    named = given.items() if isinstance(given, Mapping) else enumerate(given or (), start=1)
    for place, value in named:
        for item in value if isinstance(value, list | tuple) else [value]:
            if not isinstance(item, str | int | float | date | None):
                raise QueryError(f"parameter {place} is {type(item).__name__}: numbers, texts and dates can be given")
            if isinstance(item, str) and len(item) > LONGEST_TEXT:
                raise QueryError(f"parameter {place} has {len(item):,} characters; {LONGEST_TEXT:,} are the most")


def without_first_argument(tree: dict[str, Any]) -> Any:
    bare = without_positions(tree)
    arguments = (bare["node"].get("where_clause") or {}).get("children")
    if arguments:
        arguments[0] = None
    return bare


def without_positions(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: without_positions(value) for key, value in tree.items() if not key.startswith("query_location")}
    if isinstance(tree, list):
        return [without_positions(item) for item in tree]
    return tree

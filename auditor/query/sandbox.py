"""A locked DuckDB that can read the files of one audit and nothing else.

It has no external access except to the files of the audit, no extensions, a locked configuration, a memory limit and
no temporary files; a timer interrupts a query that runs too long. SQL that a user wrote is checked in addition
(auditor/query/user_sql.py) and runs in a process of its own (auditor/query/sql_process.py).
"""

import re
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from auditor.errors import AuditorError

Parameters = Sequence[Any] | Mapping[str, Any] | None
BATCH_ROWS = 2048  # the size of DuckDB's own vectors
UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
LONGEST_MESSAGE = 1000  # characters of an error


class QueryError(AuditorError):
    """A query that cannot be run; the message is DuckDB's or ours, in one line."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of each query. `seconds` None means no time limit, `threads` None means all cores."""

    memory: str = "1500MB"
    seconds: float | None = 60.0
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.seconds is not None and not 0 < self.seconds <= threading.TIMEOUT_MAX:
            raise QueryError(f"the time limit of a query must be above 0, not {self.seconds:g} s")

    def memory_error(self) -> QueryError:
        return QueryError(f"needs more than {self.memory} of memory, the limit of a query")

    def time_error(self) -> QueryError:
        return QueryError(f"stopped after {self.seconds:g} s, the time limit of a query")


def quote_literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, float):
        return f"CAST('{value}' AS DOUBLE)"
    if isinstance(value, int):  # TRUE and FALSE included
        return str(value).upper()
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(quote_literal, value)) + "]"
    return "'" + str(value).replace("'", "''") + "'"


def quote_name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def format_duckdb_error(error: Exception) -> str:
    """Return DuckDB's message in one line, without the lines that point at the position of the error.

    A message can list all columns of a row; only its beginning is returned then.
    """
    text = re.split(r"\n\s*LINE \d+:", str(error))[0]
    if "Traceback (most recent call last)" in text:  # of a remote store
        text = text.strip().splitlines()[-1]
    message = " ".join(text.split())
    return message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]}…"


def is_utf8(text: str) -> bool:
    """Whether a text has no lone surrogates, which is how Python represents undecodable bytes of a command line."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


class Sandbox:
    """A locked DuckDB over the files in `readable`; a COPY can write only to the paths in `writable`."""

    def __init__(
        self,
        readable: Sequence[str],
        limits: Limits = Limits(),  # noqa: B008 (frozen)
        filesystems: Sequence[Any] = (),  # fsspec filesystems of remote files
        writable: Sequence[str] = (),
    ) -> None:
        if odd := next((path for path in (*readable, *writable) if not is_utf8(path)), None):
            raise QueryError(f"{odd} cannot be opened: its name is not in UTF-8; rename it")
        self.limits = limits
        self._running: set[duckdb.DuckDBPyConnection] = set()  # sessions
        self._last, self.stopped = time.monotonic(), False  # time of the last start or end of a query
        self._connection = duckdb.connect(":memory:")
        weakref.finalize(self, self._connection.close)  # one that is open at exit makes DuckDB print what it leaks
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
                self._connection.execute(f"SET GLOBAL {setting} = {quote_literal(value)}")  # cursors inherit
        except duckdb.OutOfMemoryException:
            raise limits.memory_error() from None
        except duckdb.Error as error:
            raise QueryError(f"{setting} cannot be {value!r}: {format_duckdb_error(error)}") from None

    def close(self) -> None:
        self.stop()
        self._connection.close()

    def stop(self) -> None:
        """Interrupt running queries and end `wait_until_quiet`."""
        self.stopped = True
        for session in list(self._running):
            session.interrupt()

    def stop_thread(self, thread: threading.Thread) -> None:
        """Stop a thread that runs queries: if it were inside DuckDB when Python ends, the program would crash."""
        self.stop()
        if thread is not threading.current_thread():  # it may have held the last reference
            thread.join()

    def wait_until_quiet(self, seconds: float) -> bool:
        """Wait until no query has run for `seconds`; return False if the sandbox was stopped meanwhile."""
        while not self.stopped:
            if not self._running and time.monotonic() - self._last >= seconds:
                return True
            time.sleep(min(seconds, 0.1))
        return False

    def define(self, *statements: str, patient: bool = False) -> None:
        """Run statements that create views or tables; `patient` means without a time limit."""
        for statement in statements:
            with self._session(patient) as session:
                session.execute(statement).fetchall()

    def load_table(self, table: str, rows: pa.Table) -> None:
        with self._session() as session:
            session.register("arrow_rows", rows)
            session.execute(f"CREATE OR REPLACE TABLE {table} AS SELECT * FROM arrow_rows")
            session.unregister("arrow_rows")

    def run(self, sql: str) -> pa.Table:
        """Run a query of the auditor's own."""
        with self._session() as session:
            return session.sql(sql).to_arrow_table()

    def memory_limit(self) -> int:
        """Return the memory limit in bytes, as DuckDB parsed it."""
        number, unit = str(self.value("SELECT current_setting('memory_limit')")).split()
        return int(float(number) * UNITS[unit])

    def run_bounded(self, sql: str, parameters: Parameters = None) -> pa.Table:
        """Run a user's query; refuse a result larger than the memory limit, because Arrow's memory is not DuckDB's."""
        room = self.memory_limit()
        with self._session() as session:
            reader = session.sql(sql, params=parameters or None).to_arrow_reader(BATCH_ROWS)
            batches: list[pa.RecordBatch] = []
            for batch in reader:
                room -= batch.nbytes
                if room < 0:
                    raise QueryError(f"its rows take more than {self.limits.memory} of memory; LIMIT or aggregate them")
                batches.append(batch)
            return pa.Table.from_batches(batches, reader.schema)

    def rows(self, sql: str) -> list[dict[str, Any]]:
        with self._session() as session:
            answer = session.execute(sql)  # planned once, not twice as for Arrow
            names = [column[0] for column in answer.description]
            return [dict(zip(names, values, strict=True)) for values in answer.fetchall()]

    def value(self, sql: str) -> Any:
        """Return the first value of the first row."""
        return next(iter(self.rows(sql)[0].values()))

    def run_copy(self, statement: str) -> int:
        """Run a COPY statement and return the number of rows that it wrote."""
        with self._session() as session:
            answer = session.execute(statement).fetchall()
            return int(answer[0][0])

    def stream(self, sql: str, batch: int = 100_000) -> Iterator[pa.RecordBatch]:
        """Yield the result in batches; the time limit applies to the whole."""
        with self._session() as session:
            yield from session.sql(sql).to_arrow_reader(batch)

    @contextmanager
    def _session(self, patient: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
        """Open a connection, because threads share the database; it is interrupted at the time limit."""
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
            raise (QueryError("the audit was closed") if self.stopped else self.limits.time_error()) from None
        except duckdb.OutOfMemoryException:
            raise self.limits.memory_error() from None
        except duckdb.Error as error:
            raise QueryError(format_duckdb_error(error)) from None
        finally:
            timer.cancel()
            self._running.discard(session)
            self._last = time.monotonic()
            session.close()

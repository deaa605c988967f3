"""The processes that run SQL written by users: each has a memory limit of the system and can be killed.

    pool = SqlPool(settings, define, version)
    pool.run("SELECT kind, count(*) FROM samples GROUP BY kind")

DuckDB's own memory limit does not count the strings and lists that functions build, and its interrupt waits for the
planner and for functions to return. So a user's query runs in a child process whose address space is limited and which
the parent kills if it does not answer in time. A process is kept for the next query. An answer is a message in JSON
and the result as Arrow IPC: the parent never unpickles what a query produced.
"""

import json
import os
import pickle
import resource
import signal
import subprocess
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa

from auditor.query.sandbox import Limits, Parameters, QueryError, Sandbox, format_duckdb_error
from auditor.query.user_sql import check_tree, limit_select, parse_select
from auditor.workers.child_process import ChildProcess, DeadChildError

MOST_PROCESSES = 4  # that run at the same time for one audit; more queries wait
START_SECONDS = 120.0  # for a process to start, on a machine that is very busy
GRACE_SECONDS = 2.0  # for DuckDB to stop by itself after the time limit
LONGEST_PARAMETER = 100_000  # characters of a text
SPARE_BYTES = 2**29  # address space in addition to that of the query and its result
THREAD_BYTES = 72 * 2**20  # address space of each thread: its stack and its malloc arena


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """The arguments of the Sandbox that a SQL process opens."""

    readable: Sequence[str]
    limits: Limits
    filesystems: Sequence[Any] = ()


@dataclass(frozen=True, slots=True)
class SqlRequest:
    """One query. The statements in `definitions` are run first; `checked` SQL was checked by the parent."""

    definitions: Sequence[str]
    sql: str
    parameters: Parameters
    limit: int | None
    checked: bool


class SqlPool:
    """The SQL processes of one audit. Safe to share between threads.

    `define` returns the statements that create the tables and views of the audit; `version` changes with the reviews.
    """

    def __init__(
        self, settings: SandboxSettings, define: Callable[[], Sequence[str]], version: Callable[[], str]
    ) -> None:
        self._settings, self._define, self._version = settings, define, version
        self._slots = threading.BoundedSemaphore(MOST_PROCESSES)
        self._idle: list[SqlProcess] = []

    def run(
        self, sql: str, parameters: Parameters = None, limit: int | None = None, *, checked: bool = False
    ) -> pa.Table:
        """Return the result of a user's SELECT. Raises QueryError, whatever happens to the process."""
        check_parameters(parameters)
        with self._slots:
            process = self._take_idle() or SqlProcess(self._settings)
            version = self._version()
            statements = [] if process.version == version else self._define()
            try:
                table = process.run(SqlRequest(statements, sql, parameters, limit, checked))
                process.version = version
                return table
            finally:
                if process.broken:
                    process.close()
                else:
                    self._idle.append(process)

    def _take_idle(self) -> "SqlProcess | None":
        while self._idle:
            try:
                process = self._idle.pop()
            except IndexError:  # another thread has taken it
                return None
            if process.is_alive:
                return process
            process.close()
        return None

    def close(self) -> None:
        while process := self._take_idle():
            process.close()


class SqlProcess:
    """One child process; it runs one query at a time. `broken` means that it must not be used again."""

    def __init__(self, settings: SandboxSettings) -> None:
        self.limits = settings.limits
        self.broken, self.ready = False, False
        self.version: str | None = None  # of the tables and views that it has
        try:
            self._child = ChildProcess(serve_sql, settings, stderr=subprocess.DEVNULL)
        except OSError as error:
            raise QueryError(f"the process that runs queries cannot be started: {error}") from None
        self.close = weakref.finalize(self, self._child.kill)

    @property
    def is_alive(self) -> bool:
        return self._child.is_alive

    def run(self, request: SqlRequest) -> pa.Table:
        self.broken = True  # until a whole answer has been read
        self._child.send(pickle.dumps(request))
        seconds = self.limits.seconds
        try:
            if not self.ready:
                self._child.receive(START_SECONDS)
                self.ready = True
            deadline = None if seconds is None else min(seconds + GRACE_SECONDS, threading.TIMEOUT_MAX)
            answer = json.loads(self._child.receive(deadline))
            if "error" in answer:
                self.broken = bool(answer["broken"])
                raise QueryError(answer["error"])
            with pa.ipc.open_stream(self._child.receive()) as reader:
                table = reader.read_all()
        except TimeoutError:
            raise self.limits.time_error() from None
        except DeadChildError:
            self.close()
            # std::bad_alloc aborts; the system's memory killer sends SIGKILL
            if self._child.process.returncode in (-signal.SIGABRT, -signal.SIGKILL):
                raise self.limits.memory_error() from None
            raise QueryError("the query made the database engine crash; write it in another way") from None
        self.broken = False
        return table


def check_parameters(parameters: Parameters) -> None:
    """Refuse parameters that are not numbers, texts, dates or lists of them."""
    if parameters is not None and not isinstance(parameters, list | tuple | Mapping):
        raise QueryError(f"parameters are a list for ?, or a mapping for $name, not {type(parameters).__name__}")
    items = parameters.items() if isinstance(parameters, Mapping) else enumerate(parameters or (), start=1)
    for name, value in items:
        for item in value if isinstance(value, list | tuple) else [value]:
            if not isinstance(item, str | int | float | date | None):
                raise QueryError(f"parameter {name} is {type(item).__name__}: numbers, texts and dates can be given")
            if isinstance(item, str) and len(item) > LONGEST_PARAMETER:
                raise QueryError(f"parameter {name} has {len(item):,} characters; {LONGEST_PARAMETER:,} are the most")


# -- child -------------------------------------------------------------------------------------------------------


def serve_sql(channel: Connection, settings: SandboxSettings) -> None:
    """Answer requests until the parent closes the channel."""
    channel.send_bytes(b"ready")
    sandbox: Sandbox | None = None
    while True:
        request: SqlRequest = pickle.loads(channel.recv_bytes())
        try:
            if sandbox is None:
                sandbox = Sandbox(settings.readable, settings.limits, settings.filesystems)
                limit_process(sandbox)
            result = run_request(sandbox, request)
        except QueryError as error:
            send_error(channel, str(error), broken="of memory" in str(error))
        except MemoryError:
            send_error(channel, str(settings.limits.memory_error()), broken=True)
        except Exception as error:
            send_error(channel, format_duckdb_error(error), broken=True)
        else:
            channel.send_bytes(b"{}")
            channel.send_bytes(memoryview(result))


def limit_process(sandbox: Sandbox) -> None:
    """Limit the address space for the query and its result, and forbid this process to write files."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    statm = Path("/proc/self/statm")
    if statm.exists():  # other systems do not report the address space
        used = int(statm.read_text().split()[0]) * resource.getpagesize()
        threads = (sandbox.limits.threads or os.cpu_count() or 1) * THREAD_BYTES
        limit = used + 2 * sandbox.memory_limit() + threads + SPARE_BYTES
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (limit if hard < 0 else min(limit, hard), hard))


def run_request(sandbox: Sandbox, request: SqlRequest) -> pa.Buffer:
    sandbox.define(*request.definitions)
    if request.checked:
        table = sandbox.run_bounded(request.sql)
    else:
        check_tree(parse_select(sandbox, request.sql))
        table = sandbox.run_bounded(limit_select(request.sql, request.limit), request.parameters)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def send_error(channel: Connection, message: str, *, broken: bool) -> None:
    """Report an error; `broken` asks the parent not to use this process again."""
    channel.send_bytes(json.dumps({"error": message, "broken": broken}).encode())

"""An open audit: its files, the DuckDB sandbox over them, columns kept in memory, reviewers' marks, answers kept.

    with AuditDatabase("audit/") as database:            # or s3://bucket/audit
        page(database, "kind = 'video'", "p_mismatch")   # the functions of query/ and keep/ take it

`Audit` in auditor/audit.py is the same for people: one object with a method for every question.
"""

import contextlib
import difflib
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from auditor.audit_folder.audit_files import AuditFiles, find_audit_files, list_audit_notes
from auditor.errors import AuditError
from auditor.query import reviews
from auditor.query.rules import Threshold, overridden
from auditor.query.sample_tables import (
    IN_MEMORY,
    MOST_ROWS,
    Cached,
    InMemory,
    MatchingRows,
    StoredCondition,
    extended_sql,
    view_sql,
)
from auditor.query.sandbox import Limits, Parameters, QueryError, Sandbox, name
from auditor.query.sql_process import Definitions, SandboxSettings, SqlPool
from auditor.query.user_sql import close_condition, is_plain, reads_reviews

T = TypeVar("T")
QUIET_SECONDS = 3.0  # without a question, before columns are read into memory


class AuditDatabase:
    """One audit, local or remote, finished or not. Safe to share between threads.

    `corpus` is where the corpus is now, if it has moved. `thresholds` override those of the manifest for the flags.
    """

    def __init__(
        self,
        path: str | Path,
        corpus: str | Path | None = None,
        *,
        thresholds: Mapping[str, Threshold] | None = None,
        limits: Limits = Limits(),  # noqa: B008 (frozen)
    ) -> None:
        self.files: AuditFiles = find_audit_files(path)
        self.path, self.manifest = self.files.path, self.files.manifest
        self.state: str = self.manifest.get("state", "unknown")
        self.old_root: str | None = self.manifest.get("corpus", {}).get("root")
        self.moved_to = str(corpus) if corpus else None
        self.thresholds: dict[str, Threshold] = overridden(self.manifest.get("thresholds", {}), thresholds or {})
        self.notes = list_audit_notes(self.files)
        self.limits = limits
        self.memory: InMemory | None = None
        self.reviews_version = reviews.version(self.files.folder)
        self._lock, self._reviewing = threading.Lock(), threading.Lock()
        self._cache: dict[str, Cached[Any]] = {}
        self.sandbox = self.open_sandbox()
        self.sql_pool = SqlPool(SandboxSettings(self.files.readable, limits, self._filesystems))
        evaluate = partial(self.run_user_sql, checked=True)
        self._matching = MatchingRows(self.sandbox, evaluate, lambda: self.reviews_version)
        self.columns: list[str] = self.sandbox.run("SELECT * FROM samples LIMIT 0").column_names

    def __repr__(self) -> str:
        return f"AuditDatabase({self.path!r}, state={self.state!r})"

    @property
    def _filesystems(self) -> list[Any]:
        return [self.files.filesystem] if self.files.filesystem else []

    def open_sandbox(self, writable: Sequence[str] = (), limits: Limits | None = None, condition: str = "") -> Sandbox:
        """Open another sandbox over this audit, for SQL with a checked condition.

        `writable` are the files that a COPY may write.
        """
        sandbox = Sandbox(self.files.readable, limits or self.limits, self._filesystems, writable)
        try:
            for statement in self._view_statements():
                sandbox.define(statement)
        except QueryError as error:
            raise AuditError(f"{self.path} cannot be read: {error}") from None
        for statement in self._review_statements():
            sandbox.define(statement)
        if condition:
            self._matching.copy_tables(condition, sandbox)
        return sandbox

    def _view_statements(self) -> list[str]:
        return [
            f"CREATE OR REPLACE VIEW measured AS {self.view()}",
            f"CREATE OR REPLACE VIEW extended AS {self.view(extended=True)}",
        ]

    def _review_statements(self) -> list[str]:
        """SQL of the tables and views that depend on the reviews."""
        marks = reviews.read_reviews(self.files.folder)
        joined = "SELECT * FROM extended LEFT JOIN verdicts USING (uid, caption_index)"
        without = "SELECT *, CAST(NULL AS VARCHAR) AS review FROM extended"
        return [
            f"CREATE OR REPLACE TABLE reviews AS {reviews.reviews_sql(marks)}",
            f"CREATE OR REPLACE TABLE verdicts AS {reviews.verdicts_sql(marks)}",
            f"CREATE OR REPLACE VIEW reviewed AS {joined if marks else without}",
            "CREATE OR REPLACE VIEW samples AS SELECT * EXCLUDE (uid_order) FROM reviewed",
        ]

    def load_into_memory(self, *, later: bool = False) -> "AuditDatabase":
        """Keep the columns of a finished audit that are asked most in memory: see auditor/query/sample_tables.py.

        What does not fit the memory limit, captions first, is asked of the files as before. `later` returns at once and
        reads them when nothing has been asked for a moment; until then the files answer.
        """
        if later:
            thread = threading.Thread(target=self._load_when_quiet, daemon=True, name="load")
            weakref.finalize(self, stop_loading, self.sandbox, thread)  # also where the program ends
            thread.start()
        else:
            self._load()
        return self

    def _load_when_quiet(self) -> None:
        if self.sandbox.wait_until_quiet(QUIET_SECONDS):
            self._load()

    def _load(self) -> None:
        if self.state == "complete" and self.counts["rows"] <= MOST_ROWS:
            for texts in (True, False):
                if self.sandbox.stopped:
                    return
                with contextlib.suppress(QueryError):
                    located, given = self.view(located=True, extended=True), (self.thresholds, self.columns)
                    self.memory = self.memory or InMemory(
                        self.sandbox, located, *given, texts=texts, extra=self.extra_numbers
                    )

    def close(self) -> None:
        self.sandbox.close()
        self.sql_pool.close()

    def __enter__(self) -> "AuditDatabase":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- asking --------------------------------------------------------------------------------------------------

    def run(self, sql: str) -> pa.Table:
        """Run a query of the auditor's own."""
        self._matching.make_tables(sql)
        return self.sandbox.run(sql)

    def rows(self, sql: str) -> list[dict[str, Any]]:
        self._matching.make_tables(sql)
        return self.sandbox.rows(sql)

    def run_user_sql(
        self, sql: str, parameters: Parameters = None, limit: int | None = None, *, checked: bool = False
    ) -> pa.Table:
        """Run a user's SELECT over the tables `samples` and `reviews`, in a process of its own."""
        definitions = Definitions(self.reviews_version, lambda: [*self._view_statements(), *self._review_statements()])
        return self.sql_pool.run(definitions, sql, parameters, limit, checked=checked)

    def cached(self, key: str, compute: Callable[[], T]) -> T:
        """Computed once: ranges and samples that many questions need."""
        with self._lock:
            answer: Cached[T] = self._cache.setdefault(key, Cached())
        return answer.get(compute)

    @property
    def counts(self) -> dict[str, Any]:
        """Rows, keys and rows by status; counted where the manifest of an unfinished audit does not know yet."""
        known: dict[str, Any] = self.manifest.get("counts") or {}
        if self.state == "complete" and known.keys() >= {"keys", "rows", "status"}:
            return known
        found = self.rows("SELECT status, count(*) AS n FROM measured GROUP BY status ORDER BY n DESC, status")
        by_status = {row["status"]: row["n"] for row in found}
        keys = self.rows("SELECT count(*) AS n FROM measured WHERE coalesce(caption_index, 0) = 0")[0]["n"]
        return {"keys": keys, "rows": sum(by_status.values()), "status": by_status}

    @property
    def extra_numbers(self) -> tuple[str, ...]:
        """Columns of others that are numbers."""
        return tuple(column for column, kind in self.files.extra_columns.items() if kind not in ("string", "bool"))

    # -- parts of SQL --------------------------------------------------------------------------------------------

    def view(self, files: AuditFiles | None = None, *, located: bool = False, extended: bool = False) -> str:
        """SQL of all rows of the audit, or of some of its files; `located` adds the place of each.

        `extended` adds the columns that others brought, by a join: only where they are wanted.
        """
        make = extended_sql if extended and self.files.sources else view_sql
        return make(files or self.files, self.thresholds, located=located)

    def extends(self, *sql: str) -> bool:
        """Does SQL name a column that others brought? A word that only looks like one costs time, no more."""
        text = " ".join(sql).lower()
        return any(column.lower() in text for column in self.files.extra_columns)

    def where(self, condition: str | None) -> str:
        """A user's condition made safe to stand in our SQL; TRUE where there is none."""
        if condition is not None and not isinstance(condition, str):
            raise QueryError(f"where is an SQL condition as text, not {type(condition).__name__}")
        if not condition or not condition.strip():
            return "TRUE"
        try:
            closed, tree = close_condition(self.sandbox, condition)
            if is_plain(tree, {column.lower() for column in self.columns}):
                return closed
            return self._matching.replace_condition(StoredCondition(closed, reads_reviews(tree)))
        except QueryError as error:
            raise QueryError(f"where: {error}") from None

    def check_condition(self, condition: str) -> str:
        """Return a user's condition as one closed expression, to be part of a longer condition."""
        try:
            return close_condition(self.sandbox, condition)[0]
        except QueryError as error:
            raise QueryError(f"where: {error}") from None

    def freshness(self, condition: str | None) -> str:
        """The version of the reviews if the rows that meet a condition may change with them, otherwise empty."""
        if not condition or not reads_reviews(close_condition(self.sandbox, condition)[1]):
            return ""
        return self.reviews_version

    def column(self, given: str, argument: str = "") -> str:
        """A column by name, as SQL; names the nearest where there is none, and the argument that asked for it."""
        if given in self.columns:
            return name(given)
        near = difflib.get_close_matches(str(given), self.columns, n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]}?" if near else f"; columns are {', '.join(self.columns)}"
        raise QueryError(f"{f'{argument}: ' if argument else ''}there is no column {given!r}{hint}")

    def stored_table(self, *sql: str) -> str:
        """The view of the files: marks of reviewers are joined only where SQL asks for them (a join is slow)."""
        if any("review" in text.lower() for text in sql):
            return "reviewed AS samples"
        return f"{'extended' if self.extends(*sql) else 'measured'} AS samples"

    def table(self, *sql: str) -> str:
        """The view to read for the conditions and expressions in `sql`: in memory where it has all they name."""
        return f"{IN_MEMORY} AS samples" if self.in_memory(*sql) else self.stored_table(*sql)

    def in_memory(self, *sql: str) -> bool:
        """Are all columns in memory that `sql` names?"""
        return self.memory is not None and self.memory.covers(*sql)

    def remembered(self, condition: str) -> str | None:
        """The table of the places of rows that meet a condition on text; not where it names marks, which may change."""
        if self.memory is None or not self.memory.reads_text(condition) or "review" in condition.lower():
            return None
        return self.memory.places(condition)

    # -- reviews -------------------------------------------------------------------------------------------------

    def mark(
        self, uid: str, mark: str, *, caption_index: int = 0, reviewer: str | None = None, note: str = ""
    ) -> reviews.Review:
        """Keep what a person says of a row: good, bad or unsure."""
        review = reviews.new_review(uid, caption_index, mark, reviewer, note)
        self.keep_reviews([review])
        return review

    def keep_reviews(self, made: Sequence[reviews.Review]) -> None:
        """Many marks at once."""
        reviews.append_reviews(self.files.folder, made)
        self._read_reviews()

    def see_new_marks(self) -> None:
        """Those that others have made since, where the file of a local audit has changed."""
        if reviews.version(self.files.folder) != self.reviews_version:
            self._read_reviews()

    def _read_reviews(self) -> None:
        with self._reviewing:
            self.reviews_version = reviews.version(self.files.folder)
            for statement in self._review_statements():
                self.sandbox.define(statement)


def stop_loading(sandbox: Sandbox, thread: threading.Thread) -> None:
    """A thread that is inside DuckDB when Python ends would bring the program down."""
    sandbox.stop()
    if thread is not threading.current_thread():  # which may have held the last reference
        thread.join()

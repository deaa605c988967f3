"""An open audit: its files, the DuckDB sandbox over them, columns in memory, reviews and cached answers.

    with AuditDatabase("audit/") as database:            # or s3://bucket/audit
        read_page(database, "kind = 'video'", "p_mismatch")

The functions of query/ and keep/ take an AuditDatabase; `Audit` (auditor/python_api.py) wraps them as methods.
"""

import contextlib
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from auditor.audit_folder import edit_records
from auditor.audit_folder.appended_lines import read_lines_version
from auditor.audit_folder.audit_files import AuditFiles, find_audit_files, list_audit_notes
from auditor.audit_folder.edit_records import CaptionEdit, RowEdits, append_edits, read_edits
from auditor.corpus.read_medium import MediaPlaces, find_media_places
from auditor.errors import AuditError, explain_unknown_name
from auditor.query import reviews
from auditor.query.rules import override_thresholds
from auditor.query.sample_tables import (
    IN_MEMORY,
    MOST_ROWS,
    TABLE_NAME,
    CachedAnswer,
    MatchingRows,
    MemoryColumns,
    StoredRows,
    build_extended_sql,
    build_view_sql,
)
from auditor.query.sandbox import Limits, QueryError, Sandbox, quote_name
from auditor.query.user_sql import close_condition, enclose_condition, is_plain, reads_reviews

if TYPE_CHECKING:
    from auditor.query.sql_process import SqlPool

T = TypeVar("T")
QUIET_SECONDS = 3.0  # without a query, before columns are loaded into memory


class AuditDatabase:
    """One audit, local or remote, finished or not. Safe to share between threads.

    `corpus` is where the corpus is, if it has moved or the audit was made elsewhere; it is remembered for this user.
    `thresholds` override those of the manifest.
    """

    def __init__(
        self,
        path: str | Path,
        corpus: str | Path | MediaPlaces | None = None,
        *,
        thresholds: Mapping[str, float] | None = None,
        limits: Limits = Limits(),  # noqa: B008 (frozen)
    ) -> None:
        self.files: AuditFiles = find_audit_files(path)
        self.path, self.manifest = self.files.path, self.files.manifest
        self.state: str = self.manifest.get("state", "unknown")
        self.places = corpus if isinstance(corpus, MediaPlaces) else find_media_places(self.manifest, corpus)
        self.thresholds = override_thresholds(self.manifest.get("thresholds", {}), thresholds or {})
        self.notes = list_audit_notes(self.files)
        self.memory: MemoryColumns | None = None
        self.reviews_version = read_lines_version(self.files.folder, reviews.NAME)
        self.limits, self._review_loads = limits, 0
        self._row_edits: tuple[str, RowEdits] | None = None  # with the version of their file
        self._lock, self._reviewing = threading.Lock(), threading.Lock()
        self._cache: dict[str, CachedAnswer[Any]] = {}
        self.sandbox = self.open_sandbox()
        self._matching = MatchingRows(
            self.sandbox, lambda sql: self.sql_pool.run(sql, checked=True), lambda: self.loaded_reviews
        )
        self.columns: list[str] = [row["column_name"] for row in self.sandbox.rows("DESCRIBE samples")]
        self._check_probabilities()

    def _check_probabilities(self) -> None:
        """Refuse a p_mismatch that is no probability. A remote audit is not read for that."""
        wrong = "SELECT coalesce(bool_or(NOT p_mismatch BETWEEN 0 AND 1), FALSE) AS wrong FROM measured"
        if self.files.folder.local and self.stored_rows("probabilities", wrong)[0]["wrong"]:
            self.close()
            raise AuditError(
                f"{self.path} is damaged: p_mismatch has values outside 0 to 1; `auditor score` computes it again"
            )

    @cached_property
    def sql_pool(self) -> "SqlPool":
        from auditor.query.sql_process import SandboxSettings, SqlPool  # many programs run no SQL of users

        settings = SandboxSettings(self.files.readable, self.limits, self._filesystems)
        return SqlPool(settings, self._list_definitions, lambda: self.loaded_reviews)

    def _list_definitions(self) -> list[str]:
        return [*self._view_statements(), *self._review_statements()]

    @property
    def loaded_reviews(self) -> str:
        """The version of the reviews in the sandbox; it also changes with the marks made here on a remote audit."""
        return f"{self.reviews_version} {self._review_loads}"

    @property
    def _filesystems(self) -> list[Any]:
        return [self.files.filesystem] if self.files.filesystem else []

    def open_sandbox(self, writable: Sequence[str] = (), limits: Limits | None = None, condition: str = "") -> Sandbox:
        """Open another sandbox over this audit, for SQL with a checked condition.

        `writable` are the files that a COPY may write.
        """
        sandbox = Sandbox(self.files.readable, limits or self.limits, self._filesystems, writable)
        try:
            sandbox.define(*self._view_statements())
        except QueryError as error:
            hint = "; `auditor verify --files` names the file" if self._filesystems else ""
            raise AuditError(f"{self.path} cannot be read: {error}{hint}") from None
        sandbox.define(*self._review_statements())
        for name, table in (self.read_row_sets(condition) if condition else {}).items():
            sandbox.load_table(name, table)
        return sandbox

    def _view_statements(self) -> list[str]:
        return [
            f"CREATE OR REPLACE VIEW measured AS {self.view()}",
            f"CREATE OR REPLACE VIEW extended AS {self.view(extended=True)}",
        ]

    def _review_statements(self) -> list[str]:
        marks = reviews.read_reviews(self.files.folder)
        with_marks = "SELECT * FROM extended LEFT JOIN verdicts USING (uid, caption_index)"
        without_marks = "SELECT *, CAST(NULL AS VARCHAR) AS review FROM extended"
        return [
            f"CREATE OR REPLACE TABLE reviews AS {reviews.build_reviews_sql(marks)}",
            f"CREATE OR REPLACE TABLE verdicts AS {reviews.VERDICTS_SQL}",
            f"CREATE OR REPLACE VIEW reviewed AS {with_marks if marks else without_marks}",
            "CREATE OR REPLACE VIEW samples AS SELECT * EXCLUDE (uid_order) FROM reviewed",
        ]

    def load_into_memory(self, *, in_background: bool = False) -> "AuditDatabase":
        """Load the columns of a finished audit that are used most into memory.

        Columns that do not fit the memory limit, captions first, stay in the files. With `in_background`, this returns
        at once, and the columns are loaded as soon as no query has run for a moment.
        """
        if in_background:
            thread = threading.Thread(target=self._load, args=[QUIET_SECONDS], daemon=True, name="load")
            weakref.finalize(self, self.sandbox.stop_thread, thread)  # also when the program ends
            thread.start()
        else:
            self._load()
        return self

    def _load(self, quiet_seconds: float = 0.0) -> None:
        if quiet_seconds and not self.sandbox.wait_until_quiet(quiet_seconds):
            return
        if self.state != "complete" or self.counts["rows"] > MOST_ROWS:
            return
        contents = self.view(with_places=True, extended=True), self.thresholds, self.columns
        for texts in (True, False):
            if self.memory is None and not self.sandbox.stopped:
                with contextlib.suppress(QueryError):
                    self.memory = MemoryColumns(self.sandbox, *contents, texts=texts, extra=self.extra_numbers)

    def close(self) -> None:
        self.sandbox.close()
        if "sql_pool" in self.__dict__:
            self.sql_pool.close()

    def __enter__(self) -> "AuditDatabase":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- queries -------------------------------------------------------------------------------------------------

    def run(self, sql: str) -> pa.Table:
        """Run a query of the auditor's own."""
        self._matching.make_tables(sql)
        return self.sandbox.run(sql)

    def rows(self, sql: str) -> list[dict[str, Any]]:
        self._matching.make_tables(sql)
        return self.sandbox.rows(sql)

    @cached_property
    def _stored(self) -> StoredRows:
        return StoredRows(self.files, self.view(extended=True))

    def stored_rows(self, name: str, sql: str) -> list[dict[str, Any]]:
        """Like `rows`, for a costly query over all rows in the files; see StoredRows."""
        if IN_MEMORY in sql or self.names_review(sql) or TABLE_NAME.search(sql):
            return self.rows(sql)
        return self._stored.fetch(name, sql, lambda: self.rows(sql))

    def value(self, sql: str) -> Any:
        """Return the first value of the first row of a query of the auditor's own."""
        self._matching.make_tables(sql)
        return self.sandbox.value(sql)

    def cached(self, key: str, compute: Callable[[], T]) -> T:
        """Return an answer that many queries need, such as a range; it is computed once."""
        with self._lock:
            answer: CachedAnswer[T] = self._cache.setdefault(key, CachedAnswer())
        return answer.get(compute)

    @property
    def statistics(self) -> dict[str, Any]:
        """The corpus-wide statistics by kind of medium; empty until the audit is scored."""
        return self.manifest.get("statistics") or {}

    @property
    def counts(self) -> dict[str, Any]:
        """Numbers of rows, of keys, and of rows by status: from the manifest, or counted if the audit is unfinished."""
        counts: dict[str, Any] = self.manifest.get("counts") or {}
        if self.state == "complete" and counts.keys() >= {"keys", "rows", "status"}:
            return counts
        rows = self.rows("SELECT status, count(*) AS n FROM measured GROUP BY status ORDER BY n DESC, status")
        by_status = {row["status"]: row["n"] for row in rows}
        keys = self.value("SELECT count(*) FROM measured WHERE coalesce(caption_index, 0) = 0")
        return {"keys": keys, "rows": sum(by_status.values()), "status": by_status}

    @property
    def extra_numbers(self) -> tuple[str, ...]:
        """The joined and applied columns that hold numbers."""
        return tuple(column for column, kind in self.files.extra_columns.items() if kind not in ("string", "bool"))

    # -- parts of SQL --------------------------------------------------------------------------------------------

    def view(self, files: AuditFiles | None = None, *, with_places: bool = False, extended: bool = False) -> str:
        """Build the SQL of all rows of the audit, or of some of its files.

        `with_places` adds the columns `file` and `file_row_number`; `extended` joins the joined and applied columns.
        """
        make = build_extended_sql if extended and self.files.sources else build_view_sql
        return make(files or self.files, self.thresholds, with_places=with_places)

    def reads_extra_columns(self, *sql: str) -> bool:
        """Whether SQL names a joined or applied column. A false positive only costs time."""
        text = " ".join(sql).lower().replace('""', '"')
        return any(column.lower() in text for column in self.files.extra_columns)

    def where(self, condition: str | None) -> str:
        """Return a user's condition as SQL that is safe to use in the auditor's own queries; TRUE if there is none.

        It may be NULL.
        """
        if condition is not None and not isinstance(condition, str):
            raise QueryError(f"where is an SQL condition as text, not {type(condition).__name__}")
        if not condition or not condition.strip():
            return "TRUE"
        try:
            closed, tree = close_condition(self.sandbox, condition)
            if is_plain(tree, {column.lower() for column in self.columns}):
                return enclose_condition(condition)
            return self._matching.replace_condition(closed, reads_reviews(tree))
        except QueryError as error:
            raise QueryError(f"where: {error}") from None

    def check_condition(self, condition: str) -> str:
        """Return a user's condition as one closed expression, to be part of a longer condition; it may be NULL."""
        try:
            close_condition(self.sandbox, condition)
            return enclose_condition(condition)
        except QueryError as error:
            raise QueryError(f"where: {error}") from None

    def freshness(self, condition: str | None) -> str:
        """The version of the reviews if the rows that meet a condition may change with them, otherwise empty."""
        if not condition or not reads_reviews(close_condition(self.sandbox, condition)[1]):
            return ""
        return self.loaded_reviews

    def column(self, column_name: str, argument: str = "") -> str:
        """Return the quoted name of a column; if there is none, the error names `argument` and a similar column."""
        if column_name in self.columns:
            return quote_name(column_name)
        hint = explain_unknown_name("column", column_name, self.columns)
        raise QueryError(f"{argument}: {hint}" if argument else hint)

    def add_row_set(self, key: str, condition: str, make: Callable[[], pa.Table]) -> str:
        """Return the SQL of a set of rows: `make` returns their hashes, chosen from the rows that meet a condition."""
        reads = self.names_review(condition) or self._matching.reads_reviews(condition)
        return self._matching.add_rows(key, make, reads)

    def read_row_sets(self, sql: str) -> dict[str, pa.Table]:
        """Return the tables of the row sets that `sql` names, for another process or sandbox."""
        return self._matching.read_tables(sql)

    def stored_table(self, *sql: str) -> str:
        """Choose the view over the files for `sql`; reviews are joined only if `sql` names them: a join is slow."""
        if self.names_review(*sql):
            return "reviewed AS samples"
        return f"{'extended' if self.reads_extra_columns(*sql) else 'measured'} AS samples"

    def names_review(self, *sql: str) -> bool:
        """Whether SQL names the column `review`. A false positive only costs time."""
        return any("review" in text.lower() for text in sql)

    def placed_rows(self, *sql: str, files: AuditFiles | None = None) -> str:
        """Build the SQL of rows with their places; like `stored_table`, it joins only the columns that `sql` names."""
        source = f"({self.view(files, with_places=True, extended=self.reads_extra_columns(*sql))})"
        if self.names_review(*sql):
            source = f"(SELECT * FROM {source} LEFT JOIN verdicts USING (uid, caption_index))"
        return f"{source} AS samples"

    def table(self, *sql: str) -> str:
        """Choose the view to read for `sql`: in memory if all columns that it names are there."""
        return f"{IN_MEMORY} AS samples" if self.in_memory(*sql) else self.stored_table(*sql)

    def placed_table(self, *sql: str) -> str:
        """Like `table`, with the places of the rows."""
        return f"{IN_MEMORY} AS samples" if self.in_memory(*sql) else self.placed_rows(*sql)

    def in_memory(self, *sql: str) -> bool:
        return self.memory is not None and self.memory.covers(*sql)

    def find_remembered_places(self, condition: str) -> str | None:
        """Return the table with the places of the rows that meet a condition on text, or None.

        Conditions that read reviews are not remembered, because reviews change.
        """
        if self.memory is None or not self.memory.reads_text(condition):
            return None
        if self.names_review(condition) or self._matching.reads_reviews(condition):
            return None
        self._matching.make_tables(condition)
        return self.memory.places(condition)

    # -- reviews -------------------------------------------------------------------------------------------------

    def mark(
        self, uid: str, mark: str, *, caption_index: int = 0, reviewer: str | None = None, note: str = ""
    ) -> reviews.Review:
        """Store a reviewer's mark on a row: good, bad or unsure."""
        review = reviews.make_review(uid, caption_index, mark, reviewer, note)
        self.keep_reviews([review])
        return review

    def keep_reviews(self, new_reviews: Sequence[reviews.Review]) -> None:
        reviews.append_reviews(self.files.folder, new_reviews)
        self._read_reviews()

    def reload_changed_reviews(self) -> None:
        """Read the reviews again if the file of a local audit has changed."""
        if read_lines_version(self.files.folder, reviews.NAME) != self.reviews_version:
            self._read_reviews()

    def _read_reviews(self) -> None:
        with self._reviewing:
            self.reviews_version = read_lines_version(self.files.folder, reviews.NAME)
            self._review_loads += 1
            self.sandbox.define(*self._review_statements())

    # -- edited captions -----------------------------------------------------------------------------------------

    def read_row_edits(self) -> RowEdits:
        """Return the edits of captions; read again if the file of a local audit has changed."""
        version = read_lines_version(self.files.folder, edit_records.NAME)
        if self._row_edits is None or self._row_edits[0] != version:
            self._row_edits = version, RowEdits(read_edits(self.files.folder))
        return self._row_edits[1]

    def keep_edits(self, edits: Sequence[CaptionEdit]) -> None:
        append_edits(self.files.folder, edits)
        self._row_edits = None

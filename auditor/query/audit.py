"""An audit as something to ask: SQL, summaries, the worst rows, distributions, and subsets to keep.

    audit = Audit("audit/")                      # or s3://bucket/audit
    print(audit.summary())
    audit.sql("SELECT kind, avg(p_mismatch) FROM samples GROUP BY kind")
    audit.keep(max_p_mismatch=0.1).webdataset()

All work is DuckDB's, over the audit's Parquet files, in the sandbox of auditor/query/sandbox.py; no torch, no Ray.
"""

import contextlib
import difflib
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from auditor.query import reviews as review_marks
from auditor.query.compute_once import Once
from auditor.query.distributions import Density, Histogram, density, histogram, reference_sample, share_below
from auditor.query.in_memory import MOST_ROWS, NARROW, Resident
from auditor.query.rules import Rules, Threshold
from auditor.query.sandbox import Database, Limits, QueryError, literal, name
from auditor.query.summary import Summary, summarise
from auditor.schema import HIGH_IS_SUSPICIOUS, MEASUREMENTS
from auditor.store.audit_files import UID_ORDER, AuditError, AuditFiles, find_files, notes, view_sql

if TYPE_CHECKING:
    from auditor.keep.effects import Effects
    from auditor.keep.subset import Subset
    from auditor.query.compare import Comparison

__all__ = ["Audit", "AuditError", "Limits", "QueryError"]


class Audit:
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
        self.files: AuditFiles = find_files(path)
        self.path, self.manifest = self.files.path, self.files.manifest
        self.state: str = self.manifest.get("state", "unknown")
        self.old_root: str | None = self.manifest.get("corpus", {}).get("root")
        self.moved_to = str(corpus) if corpus else None
        self.thresholds: dict[str, Threshold] = {**self.manifest.get("thresholds", {}), **(thresholds or {})}
        self.notes = notes(self.files)
        self.limits = limits
        self._lock = threading.Lock()
        self._marking = threading.Lock()
        self._cache: dict[str, Once[Any]] = {}
        self.marks = review_marks.version(path, self.files.filesystem)
        self.resident: Resident | None = None
        self.database = self.open_database()
        self.columns: list[str] = self.database.run("SELECT * FROM samples LIMIT 0").column_names

    def __repr__(self) -> str:
        return f"Audit({self.path!r}, state={self.state!r})"

    def open_database(self, writable: Sequence[str] = (), limits: Limits | None = None) -> Database:
        """A sandbox of its own over this audit; `writable` are files that a COPY of ours may write."""
        filesystems = [self.files.filesystem] if self.files.filesystem else []
        database = Database(self.files.all, limits or self.limits, filesystems, writable)
        try:
            database.define(f"CREATE VIEW measured AS {view_sql(self.files, self.thresholds)}")
        except QueryError as error:
            raise AuditError(f"{self.path} cannot be read: {error}") from None
        self._load_reviews(database)
        return database

    def hold(self) -> "Audit":
        """Keep the columns of a finished audit that are asked most in memory: see auditor/query/in_memory.py.

        What does not fit the memory limit, captions first, is asked of the files as before.
        """
        if self.state == "complete" and self.counts["rows"] <= MOST_ROWS:
            for captions in (True, False):
                with contextlib.suppress(QueryError):
                    given = self.database, self.files, self.thresholds, self.columns
                    self.resident = self.resident or Resident(*given, captions=captions)
        return self

    def close(self) -> None:
        self.database.close()

    def __enter__(self) -> "Audit":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- asking --------------------------------------------------------------------------------------------------

    def sql(self, query: str, limit: int | None = None) -> pa.Table:
        """The result of anybody's SELECT over the tables `samples` and `reviews`."""
        self.database.check_select(query)
        if limit is not None:
            query = f"SELECT * FROM (\n{query.rstrip().rstrip(';')}\n) LIMIT {int(limit)}"
        elif not query.lstrip().lower().startswith(("select", "with", "(")):
            query = f"SELECT * FROM (\n{query.rstrip().rstrip(';')}\n)"  # DESCRIBE, FROM, VALUES, ...
        return self.database.run(query)

    def where(self, condition: str | None) -> str:
        """A user's condition made safe to stand in our SQL; TRUE where there is none."""
        if not condition or not condition.strip():
            return "TRUE"
        checked = self.database.check_condition(condition)
        if self.resident:  # whose own columns are nobody else's business
            self.cached(f"bound {checked}", lambda: self.database.run(f"SELECT {checked} FROM samples LIMIT 0"))
        return checked

    def stored_table(self, *sql: str) -> str:
        """The view of the files: marks of reviewers are joined only where SQL asks for them (a join is slow)."""
        return f"{'reviewed' if any('review' in text.lower() for text in sql) else 'measured'} AS samples"

    def table(self, *sql: str) -> str:
        """The view to read for the conditions and expressions in `sql`: in memory where it has all they name."""
        return f"{NARROW} AS samples" if self.in_memory(*sql) else self.stored_table(*sql)

    def in_memory(self, *sql: str) -> bool:
        """Are all columns in memory that `sql` names?"""
        return self.resident is not None and self.resident.covers(*sql)

    def column(self, given: str) -> str:
        """A column by name, as SQL; names the nearest where there is none."""
        if given in self.columns:
            return name(given)
        near = difflib.get_close_matches(given, self.columns, n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]}?" if near else f"; columns are {', '.join(self.columns)}"
        raise QueryError(f"there is no column {given!r}{hint}")

    @property
    def corpus(self) -> str | None:
        """Where the corpus is."""
        return self.moved_to or self.old_root

    @property
    def counts(self) -> dict[str, Any]:
        """Rows, keys and rows by status; counted where the manifest of an unfinished audit does not know yet."""
        known: dict[str, Any] = self.manifest.get("counts") or {}
        if self.state == "complete" and "status" in known:
            return known
        by_status = self.status_counts()
        keys = self.database.rows("SELECT count(*) AS n FROM measured WHERE coalesce(caption_index, 0) = 0")[0]["n"]
        return {"keys": keys, "rows": sum(by_status.values()), "status": by_status}

    def count(self, where: str | None = None) -> int:
        condition = self.where(where)
        counted = self._remembered(condition) or f"{self.table(condition)} WHERE {condition}"
        count: int = self.database.rows(f"SELECT count(*) AS n FROM {counted}")[0]["n"]
        return count

    def _remembered(self, condition: str) -> str | None:
        """The places of the rows that meet a condition on text; not where it names marks, which may change."""
        if self.resident is None or not self.resident.slow(condition) or "review" in condition.lower():
            return None
        return self.resident.matching(condition)

    def status_counts(self) -> dict[str, int]:
        found = self.database.rows("SELECT status, count(*) AS n FROM measured GROUP BY status ORDER BY n DESC, status")
        return {row["status"]: row["n"] for row in found}

    def errors(self, limit: int = 50) -> list[dict[str, Any]]:
        """What went wrong, most frequent first, each with the key of one example."""
        return self.database.rows(
            "SELECT status, error_message, count(*) AS rows, min(key) AS example FROM measured WHERE status <> 'ok' "
            f"GROUP BY status, error_message ORDER BY rows DESC, status LIMIT {int(limit)}"
        )

    def summary(self) -> Summary:
        return summarise(self)

    # -- rows ----------------------------------------------------------------------------------------------------

    def worst(self, by: str = "p_mismatch", n: int = 20, where: str | None = None) -> pa.Table:
        """The n most suspicious usable rows by a column: its largest values, or smallest where large is good."""
        column = self.column(by)
        condition = f"{self.where(where)} AND {column} IS NOT NULL"
        return self.fetch(condition, f"{column} {'DESC' if by in HIGH_IS_SUSPICIOUS else 'ASC'}", n)

    def page(
        self,
        where: str | None = None,
        order_by: str | None = None,
        descending: bool = False,
        limit: int = 50,
        offset: int = 0,
    ) -> pa.Table:
        """One page of whole rows. Without `order_by`, in corpus order."""
        order = f"{self.column(order_by)} {'DESC' if descending else 'ASC'} NULLS LAST" if order_by else ""
        return self.fetch(self.where(where), order, limit, offset, again=True)

    def fetch(self, condition: str, order: str, limit: int, offset: int = 0, *, again: bool = False) -> pa.Table:
        """Whole rows in an order, by finding their places first: wide columns are read only of the files needed.

        `again`: the same condition will be asked for other pages.
        """
        ordering = ", ".join(part for part in (order, "file", "file_row_number") if part)
        places = self.database.rows(
            f"SELECT file, file_row_number AS number FROM {self._located(condition, order, again)} "
            f"ORDER BY {ordering} LIMIT {int(limit)} OFFSET {int(offset)}"
        )
        if not places:
            return self.database.run("SELECT * FROM samples LIMIT 0")
        numbers = sorted({place["file"] for place in places})
        files = self.files.only(numbers)
        listed = ", ".join(f"({numbers.index(p['file'])}, {p['number']}, {i})" for i, p in enumerate(places))
        columns = ", ".join(name(column) for column in self.columns)
        return self.database.run(
            f"SELECT {columns} FROM ({view_sql(files, self.thresholds, located=True)}) "
            f"JOIN (VALUES {listed}) place(file, file_row_number, position) USING (file, file_row_number) "
            "LEFT JOIN verdicts USING (uid, caption_index) ORDER BY position"
        )

    def _located(self, condition: str, order: str, again: bool) -> str:
        """What stands after FROM for the rows that meet a condition, with their places and what orders them."""
        if again and self.in_memory(order) and (places := self._remembered(condition)):
            return f"{NARROW} SEMI JOIN {places} USING (file, file_row_number)"
        if self.in_memory(condition, order):
            return f"{NARROW} AS samples WHERE {condition}"
        located = f"({view_sql(self.files, self.thresholds, located=True)})"
        if "review" in (condition + order).lower():
            located = f"(SELECT * FROM {located} LEFT JOIN verdicts USING (uid, caption_index))"
        return f"{located} AS samples WHERE {condition}"

    def row(self, uid: str, caption_index: int | None = None, shard: str | None = None) -> dict[str, Any] | None:
        """One row; naming its shard makes it one file to read instead of all."""
        same = f" AND caption_index = {int(caption_index)}" if caption_index is not None else ""
        order = "status <> 'ok', caption_index"
        if self.resident and not shard:
            near = self.fetch(f"uid_order = {UID_ORDER.replace('uid', literal(uid))}{same}", order, 10).to_pylist()
            return next((row for row in near if row["uid"] == uid), None)
        condition = f"uid = {literal(uid)}{same}"
        source = f"({view_sql(self.files.shard(shard), self.thresholds)})" if shard else "measured"
        found = self.database.rows(
            f"SELECT * FROM {source} LEFT JOIN verdicts USING (uid, caption_index) WHERE {condition} "
            f"ORDER BY {order} LIMIT 1"
        )
        return {column: found[0][column] for column in self.columns} if found else None

    def media(self, row: Mapping[str, Any]) -> bytes:
        """The original bytes of a row's medium, read from the corpus by offset."""
        from auditor.corpus.media import read_media

        place = row["media_path"], row["media_offset"], row["media_size"]
        return read_media(*place, root=self.moved_to, old_root=self.old_root)

    # -- distributions -------------------------------------------------------------------------------------------

    def histogram(self, column: str, where: str | None = None, bins: int = 50, log: bool = False) -> Histogram:
        return histogram(self, column, where, bins, log)

    def density(self, x: str, y: str, where: str | None = None, bins: int = 60) -> Density:
        return density(self, x, y, where, bins)

    def percentiles(self, row: Mapping[str, Any] | str) -> dict[str, float]:
        """For each measurement of a row (or uid) the share of the corpus, of its kind, with a smaller value."""
        found = self.row(row) if isinstance(row, str) else row
        if not found:
            return {}
        return share_below(reference_sample(self), found, MEASUREMENTS)

    def cached(self, key: str, compute: Any) -> Any:
        """Computed once per audit object: ranges and samples that many questions need."""
        with self._lock:
            answer = self._cache.setdefault(key, Once())
        return answer.get(compute)

    # -- keeping -------------------------------------------------------------------------------------------------

    def keep(self, **rules: Any) -> "Subset":
        """The usable rows that meet all rules (see auditor.query.rules.Rules)."""
        from auditor.keep.subset import Subset

        return Subset(self, Rules.of(rules))

    def rule_effects(self, rules: Rules | Mapping[str, Any]) -> "Effects":
        """What each rule removes alone and all together, with expected precision and loss."""
        from auditor.keep.effects import rule_effects

        return rule_effects(self, Rules.of(rules))

    def nearest_cut(self, rules: Rules | Mapping[str, Any], rule: str, n: int = 10) -> tuple[pa.Table, pa.Table]:
        """The usable rows nearest the cut of one bound: (just kept, just removed)."""
        from auditor.keep.effects import nearest_cut

        return nearest_cut(self, Rules.of(rules), rule, n)

    def compare(self, other: "Audit", n: int = 20) -> "Comparison":
        """This audit beside another one, row by row."""
        from auditor.query.compare import compare

        return compare(self, other, n)

    # -- reviews -------------------------------------------------------------------------------------------------

    def mark(
        self, uid: str, mark: str, *, caption_index: int = 0, reviewer: str | None = None, note: str = ""
    ) -> review_marks.Review:
        """Keep what a person says of a row: good, bad or unsure."""
        review = review_marks.new_review(uid, caption_index, mark, reviewer, note)
        review_marks.append_review(self.path, self.files.filesystem, review)
        self.refresh_reviews()
        return review

    def refresh_reviews(self) -> None:
        """See the marks that others have made since."""
        with self._marking:
            self.marks = review_marks.version(self.path, self.files.filesystem)
            self._load_reviews(self.database)

    def see_new_marks(self) -> None:
        """As `refresh_reviews`, where the file of a local audit has changed."""
        if review_marks.version(self.path, self.files.filesystem) != self.marks:
            self.refresh_reviews()

    def _load_reviews(self, database: Database) -> None:
        marks = review_marks.read_reviews(self.path, self.files.filesystem)
        database.define(f"CREATE OR REPLACE TABLE reviews AS {review_marks.reviews_sql(marks)}")
        database.define(f"CREATE OR REPLACE TABLE verdicts AS {review_marks.verdicts_sql(marks)}")
        joined = "SELECT * FROM measured LEFT JOIN verdicts USING (uid, caption_index)"
        without = "SELECT *, CAST(NULL AS VARCHAR) AS review FROM measured"
        database.define(f"CREATE OR REPLACE VIEW reviewed AS {joined if marks else without}")
        database.define("CREATE OR REPLACE VIEW samples AS SELECT * EXCLUDE (uid_order) FROM reviewed")

    def precision(self) -> review_marks.Precision:
        """How often people agreed with the flag `mismatch`, beside what its probabilities promised."""

        def compute() -> float | None:
            found = self.database.rows(f"SELECT avg(p_mismatch) AS p FROM {self.table()} WHERE mismatch")
            mean: float | None = found[0]["p"]
            return mean

        promised = self.cached("promised precision", compute)
        if not self.database.rows("SELECT 1 FROM verdicts LIMIT 1"):
            return review_marks.measured_precision(0, 0, promised)
        judged = self.database.rows(
            "SELECT count(*) FILTER (review = 'bad') AS bad, count(*) FILTER (review = 'good') AS good "
            f"FROM {self.table()} JOIN (SELECT *, {UID_ORDER} AS uid_order FROM verdicts) "
            "USING (uid_order, caption_index) WHERE mismatch"
        )[0]
        return review_marks.measured_precision(judged["bad"], judged["good"], promised)

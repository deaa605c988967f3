"""`Audit`, the Python API: SQL, summaries, the worst rows, distributions, reviews, and subsets to keep.

    audit = Audit("audit/")                      # or s3://bucket/audit
    print(audit.summary())
    audit.sql("SELECT kind, avg(p_mismatch) FROM samples GROUP BY kind")
    audit.keep(max_p_mismatch=0.1).webdataset()

Each method calls one function of query/, keep/, review/ or faults/ with `Audit.database`. No torch, no Ray.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from auditor.audit_folder.fault_records import Fault, write_faults
from auditor.errors import AuditError
from auditor.keep.rule_effects import RuleEffects, fetch_rows_near_cut, measure_rule_effects
from auditor.keep.subset import Subset
from auditor.keep.thresholds import SHOWN, Cut, choose_cut, compute_cuts, count_pairs
from auditor.query import row_queries
from auditor.query.apply_function import ApplyResult, Function, apply_function, make_apply_task
from auditor.query.compare import Comparison, compare_audits
from auditor.query.database import AuditDatabase
from auditor.query.distributions import Density, Histogram, compute_density, compute_histogram, compute_percentiles
from auditor.query.explain import Explanation, explain_row
from auditor.query.join_columns import JoinResult, Which, join_columns
from auditor.query.reviews import Review
from auditor.query.rules import KeepRules, Rules, Threshold, with_rules
from auditor.query.sandbox import Limits, Parameters, QueryError
from auditor.query.search import SearchHit, search
from auditor.query.summary import Summary, summarize_audit
from auditor.review.certificate import Certificate, certify
from auditor.review.flag_precision import FlagPrecision, measure_flag_precision
from auditor.review.label_sample import LabelSample, count_labels, fetch_sample_marks, find_label_sample

if TYPE_CHECKING:
    from auditor.faults.repair import Repair

__all__ = ["Audit", "AuditError", "Limits", "QueryError"]


class Audit:
    """One audit, local or remote, finished or not. Safe to share between threads.

    `corpus` is the present location of the corpus, if it has moved. `thresholds` override those of the manifest.
    """

    def __init__(
        self,
        path: str | Path,
        corpus: str | Path | None = None,
        *,
        thresholds: Mapping[str, Threshold] | None = None,
        limits: Limits = Limits(),  # noqa: B008 (frozen)
    ) -> None:
        self.database = AuditDatabase(path, corpus, thresholds=thresholds, limits=limits)

    def __repr__(self) -> str:
        counts = self.counts
        usable = counts["status"].get("ok", 0)
        return f"Audit({self.path!r}: {counts['rows']:,} pairs, {usable:,} of them usable, {self.state})"

    def __enter__(self) -> "Audit":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.database.close()

    def load_into_memory(self) -> "Audit":
        """Load the columns that are used most into memory; this pays off if many queries follow, as in a dashboard."""
        self.database.load_into_memory()
        return self

    # -- properties ----------------------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        return self.database.path

    @property
    def manifest(self) -> dict[str, Any]:
        return self.database.manifest

    @property
    def state(self) -> str:
        """sweeping, scoring, complete or failed."""
        return self.database.state

    @property
    def corpus(self) -> str | None:
        """The location of the corpus."""
        return self.database.moved_to or self.database.old_root

    @property
    def columns(self) -> list[str]:
        return self.database.columns

    @property
    def thresholds(self) -> Mapping[str, Threshold]:
        """The thresholds of the flags."""
        return self.database.thresholds

    @property
    def notes(self) -> list[str]:
        """Notes on the audit that matter for the interpretation of its numbers."""
        return self.database.notes

    @property
    def counts(self) -> dict[str, Any]:
        """Numbers of rows, of keys, and of rows by status."""
        return self.database.counts

    # -- queries -------------------------------------------------------------------------------------------------

    def sql(self, query: str, parameters: Parameters = None, *, limit: int | None = None) -> pa.Table:
        """Run a SELECT over the tables `samples` and `reviews` and return an Arrow table of at most `limit` rows.

        `parameters` replace each ? of the query or, as a mapping, each $name.
        """
        return row_queries.run_select(self.database, query, parameters, limit)

    def summary(self) -> Summary:
        return summarize_audit(self.database)

    def count(self, where: str | None = None) -> int:
        return row_queries.count_matching_rows(self.database, where)

    def errors(self, limit: int = 50) -> list[dict[str, Any]]:
        """List the errors of unusable rows, the most frequent first, each with the key of an example."""
        return row_queries.list_errors(self.database, limit)

    def worst(self, by: str = "p_mismatch", n: int = 20, where: str | None = None) -> pa.Table:
        """Return the n most suspicious usable rows by a column: its largest values, or smallest if large is good."""
        return row_queries.find_worst_rows(self.database, by, n, where)

    def page(
        self,
        where: str | None = None,
        order_by: str | None = None,
        descending: bool = False,
        limit: int = 50,
        offset: int = 0,
    ) -> pa.Table:
        """Return one page of rows with all columns, in corpus order unless `order_by` names a column."""
        return row_queries.read_page(self.database, where, order_by, descending, limit, offset)

    def row(self, uid: str, caption_index: int | None = None, shard: str | None = None) -> dict[str, Any] | None:
        """Return one row or None. If its shard is given, only one file is read."""
        return row_queries.read_row(self.database, uid, caption_index, shard)

    def media(self, row: Mapping[str, Any]) -> bytes:
        """Read the original bytes of a row's medium from the corpus."""
        return row_queries.read_row_media(self.database, row)

    def search(
        self,
        text: str | None = None,
        *,
        like: str | None = None,
        caption_index: int | None = None,
        image: str | Path | None = None,
        over: str = "media",
        where: str | None = None,
        n: int = 20,
    ) -> list[SearchHit]:
        """Return the n rows nearest to a text, a row (`like`: key or uid) or an image, over "media" or "captions"."""
        options = {"like": like, "caption_index": caption_index, "image": image, "over": over, "where": where, "n": n}
        return search(self.database, text, **options)  # type: ignore[arg-type]

    def explain(self, key: str, caption_index: int | None = None, *, n: int = 5) -> Explanation:
        """Explain the scores of one row, by key or uid."""
        return explain_row(self.database, key, caption_index, n=n)

    def compare(self, other: "Audit", n: int = 20) -> Comparison:
        """Compare this audit with another one, row by row."""
        if not isinstance(other, Audit):
            raise QueryError(f"other is an Audit, not {other!r}")
        return compare_audits(self.database, other.database, n)

    # -- patterns ------------------------------------------------------------------------------------------------

    def faults(self, by: str = "shard") -> list[Fault]:
        """Find systematic faults and store them in faults.parquet; groups are compared by the column `by`."""
        from auditor.faults.find_faults import find_faults  # imports SciPy

        faults = find_faults(self.database, by)
        write_faults(self.database.files.folder, faults)
        return faults

    def repairs(self, confidence: float = 0.9) -> list["Repair"]:
        """Propose the right medium of displaced captions and the right span of shifted ones.

        Only repairs that are right with at least the probability `confidence` are returned. Spans are examined video by
        video, so they are found even in a corpus that is too small for patterns.
        """
        from auditor.faults.corpus_window import FaultsError
        from auditor.faults.repair import propose_repairs
        from auditor.faults.shifted_spans import propose_span_repairs

        spans = propose_span_repairs(self.database, confidence)
        try:
            return [*propose_repairs(self.database, confidence), *spans]
        except FaultsError:
            if not spans:
                raise
            return spans

    # -- distributions -------------------------------------------------------------------------------------------

    def histogram(self, column: str, where: str | None = None, bins: int = 50, log: bool = False) -> Histogram:
        return compute_histogram(self.database, column, where, bins, log)

    def density(self, x: str, y: str, where: str | None = None, bins: int = 60) -> Density:
        return compute_density(self.database, x, y, where, bins)

    def percentiles(self, row: Mapping[str, Any] | str) -> dict[str, float]:
        """Return, for each measurement of a row (or uid), the share of rows of its kind that have a smaller value."""
        values = self.row(row) if isinstance(row, str) else row
        return compute_percentiles(self.database, values) if values else {}

    # -- keeping -------------------------------------------------------------------------------------------------

    @with_rules
    def keep(self, **rules: Unpack[KeepRules]) -> Subset:
        """Select the usable rows that meet all rules: max_p_mismatch=0.1, keep_top="30%", by="similarity", where="...".

        `max` and `min` bound any other column: max={"aesthetics_score": 5}. `auditor filter --help` explains each.
        """
        return Subset(self.database, Rules.of(rules))

    def cut_offs(self, at: Sequence[float] = SHOWN, where: str | None = None) -> list[Cut]:
        """Estimate, for each cut-off of p_mismatch, how many pairs it removes and how many mismatches it catches."""
        return compute_cuts(count_pairs(self.database, where), at)

    def choose_cut(
        self, *, lose_at_most: float | None = None, expect_precision: float | None = None, where: str | None = None
    ) -> Cut:
        """Choose the cut-off that removes the most within a limit; keep(max_p_mismatch=float(cut)) applies it."""
        pairs = count_pairs(self.database, where)
        return choose_cut(pairs, lose_at_most=lose_at_most, expect_precision=expect_precision)

    def rule_effects(self, rules: Rules | Mapping[str, Any]) -> RuleEffects:
        """Count what each rule removes alone and all rules together, with expected precision and loss."""
        return measure_rule_effects(self.database, Rules.of(rules))

    def nearest_cut(self, rules: Rules | Mapping[str, Any], rule: str, n: int = 10) -> tuple[pa.Table, pa.Table]:
        """Return the usable rows nearest to the threshold of one bound: (just kept, just removed)."""
        return fetch_rows_near_cut(self.database, Rules.of(rules), rule, n)

    # -- added columns -------------------------------------------------------------------------------------------

    def join(
        self, table: str | Path, on: str, *, prefix: str = "", which: Which | None = None, force: bool = False
    ) -> JoinResult:
        """Add the columns of a Parquet or CSV file, matched by uid or key."""
        result = join_columns(self.database, str(table), on, prefix=prefix, which=which, force=force)
        self._reopen()
        return result

    def apply(
        self,
        function: Function,
        columns: Sequence[str],
        *,
        name: str | None = None,
        prefix: str = "",
        batch_size: int = 256,
        image_size: int = 224,
        force: bool = False,
    ) -> ApplyResult:
        """Call a function with batches of the usable rows and store its results as columns.

        `columns` are its arguments by name: columns of the audit, `visual` and `text` (embeddings), `image` (decoded
        images), `media` (bytes). A class is instantiated once. After an interruption the same call continues:
        see auditor/query/apply_function.py.
        """
        options = {"name": name, "prefix": prefix, "batch_size": batch_size, "image_size": image_size}
        result = apply_function(self.database, function, make_apply_task(function, columns, **options), force=force)
        self._reopen()
        return result

    def _reopen(self) -> None:
        """Open the database again to see new columns, and load it into memory again if it was loaded."""
        old = self.database
        self.database = AuditDatabase(old.path, old.moved_to, thresholds=old.thresholds, limits=old.limits)
        if old.memory:
            self.database.load_into_memory()
        old.close()

    # -- reviews -------------------------------------------------------------------------------------------------

    def mark(
        self, uid: str, mark: str, *, caption_index: int = 0, reviewer: str | None = None, note: str = ""
    ) -> Review:
        """Store a reviewer's mark on a row: good, bad or unsure."""
        return self.database.mark(uid, mark, caption_index=caption_index, reviewer=reviewer, note=note)

    def precision(self) -> FlagPrecision:
        """Measure how often reviewers agreed with the flag `mismatch`, and how often its probabilities expect it."""
        return measure_flag_precision(self.database)

    @with_rules
    def certification_sample(self, labels: int = 100, *, seed: int = 0, **rules: Unpack[KeepRules]) -> LabelSample:
        """Draw rows to judge for a certificate of the corpus, its flag and, with rules as in `keep`, a filter."""
        return find_label_sample(self.database, Rules.of(rules), labels, seed)

    def marks_of(self, sample: LabelSample) -> list[str | None]:
        """Return the reviewers' mark on each row of a sample."""
        return fetch_sample_marks(self.database, sample)

    def certify(self, sample: LabelSample) -> Certificate:
        """Compute what the marks of a sample prove, with 90% intervals."""
        return certify(count_labels(sample, self.marks_of(sample)), filtered=bool(sample.rules))

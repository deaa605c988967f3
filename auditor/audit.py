"""An audit as something to ask: SQL, summaries, the worst rows, distributions, reviews, and subsets to keep.

    audit = Audit("audit/")                      # or s3://bucket/audit
    print(audit.summary())
    audit.sql("SELECT kind, avg(p_mismatch) FROM samples GROUP BY kind")
    audit.keep(max_p_mismatch=0.1).webdataset()

A thin facade: each method is one function of query/ or keep/, over `Audit.database`. No torch, no Ray.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from auditor.audit_folder.fault_records import Fault, write_faults
from auditor.errors import AuditError
from auditor.keep.rule_effects import Effects, nearest_cut, rule_effects
from auditor.keep.subset import Subset
from auditor.keep.thresholds import SHOWN, Cut, choose_cut, count_pairs, cuts
from auditor.query import row_queries
from auditor.query.apply_function import Applied, Function, apply, make_work
from auditor.query.compare import Comparison, compare
from auditor.query.database import AuditDatabase
from auditor.query.distributions import Density, Histogram, density, histogram, percentiles
from auditor.query.explain import Explanation, explain
from auditor.query.join_columns import Joined, Which, join
from auditor.query.reviews import Review
from auditor.query.rules import KeepRules, Rules, Threshold, with_rules
from auditor.query.sandbox import Limits, Parameters, QueryError
from auditor.query.search import Found, search
from auditor.query.summary import Summary, summarise
from auditor.review.certificate import Certificate, certify
from auditor.review.flag_precision import Precision, precision
from auditor.review.label_sample import Sample, find_sample, judged_strata, marks_of_sample

if TYPE_CHECKING:
    from auditor.faults.repair import Repair

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
        """Keep the columns that are asked most in memory: worth it for many questions, as of a dashboard."""
        self.database.load_into_memory()
        return self

    # -- what it is ----------------------------------------------------------------------------------------------

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
        """Where the corpus is."""
        return self.database.moved_to or self.database.old_root

    @property
    def columns(self) -> list[str]:
        return self.database.columns

    @property
    def thresholds(self) -> Mapping[str, Threshold]:
        """Of the flags."""
        return self.database.thresholds

    @property
    def notes(self) -> list[str]:
        """What to know before believing the numbers."""
        return self.database.notes

    @property
    def counts(self) -> dict[str, Any]:
        """Rows, keys and rows by status."""
        return self.database.counts

    # -- asking --------------------------------------------------------------------------------------------------

    def sql(self, query: str, parameters: Parameters = None, *, limit: int | None = None) -> pa.Table:
        """The result of a SELECT over the tables `samples` and `reviews`, as an Arrow table.

        `parameters` stand for each ? of the query, or as a mapping for each $name; `limit` is for its rows.
        """
        return row_queries.select(self.database, query, parameters, limit)

    def summary(self) -> Summary:
        return summarise(self.database)

    def count(self, where: str | None = None) -> int:
        return row_queries.count(self.database, where)

    def errors(self, limit: int = 50) -> list[dict[str, Any]]:
        """What went wrong, most frequent first, each with the key of one example."""
        return row_queries.errors(self.database, limit)

    def worst(self, by: str = "p_mismatch", n: int = 20, where: str | None = None) -> pa.Table:
        """The n most suspicious usable rows by a column: its largest values, or smallest where large is good."""
        return row_queries.worst(self.database, by, n, where)

    def page(
        self,
        where: str | None = None,
        order_by: str | None = None,
        descending: bool = False,
        limit: int = 50,
        offset: int = 0,
    ) -> pa.Table:
        """One page of whole rows. Without `order_by`, in corpus order."""
        return row_queries.page(self.database, where, order_by, descending, limit, offset)

    def row(self, uid: str, caption_index: int | None = None, shard: str | None = None) -> dict[str, Any] | None:
        """One row; naming its shard makes it one file to read instead of all."""
        return row_queries.row(self.database, uid, caption_index, shard)

    def media(self, row: Mapping[str, Any]) -> bytes:
        """The original bytes of a row's medium, read from the corpus by offset."""
        return row_queries.media(self.database, row)

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
    ) -> list[Found]:
        """The n rows nearest to a text, a row (`like` its key or uid) or a picture, over "media" or "captions"."""
        given = {"like": like, "caption_index": caption_index, "image": image, "over": over, "where": where, "n": n}
        return search(self.database, text, **given)  # type: ignore[arg-type]

    def explain(self, key: str, caption_index: int | None = None, *, n: int = 5) -> Explanation:
        """The evidence behind one row, by key or uid."""
        return explain(self.database, key, caption_index, n=n)

    def compare(self, other: "Audit", n: int = 20) -> Comparison:
        """This audit beside another one, row by row."""
        if not isinstance(other, Audit):
            raise QueryError(f"other is an Audit, not {other!r}")
        return compare(self.database, other.database, n)

    # -- patterns ------------------------------------------------------------------------------------------------

    def faults(self, by: str = "shard") -> list[Fault]:
        """Faults that come in patterns, looked for now and kept in faults.parquet; `by` is the column compared."""
        from auditor.faults.find_faults import find_faults  # SciPy is imported only by those who look

        found = find_faults(self.database, by)
        write_faults(self.database.files.folder, found)
        return found

    def repairs(self, confidence: float = 0.9) -> list["Repair"]:
        """Which medium displaced captions belong to, and which span; only what is right with at least this probability.

        Spans are looked at video by video, so they are found where there are too few samples for patterns, too.
        """
        from auditor.faults.corpus_window import FaultsError
        from auditor.faults.repair import propose
        from auditor.faults.shifted_spans import propose_spans

        spans = propose_spans(self.database, confidence)
        try:
            return [*propose(self.database, confidence), *spans]
        except FaultsError:
            if not spans:
                raise
            return spans

    # -- distributions -------------------------------------------------------------------------------------------

    def histogram(self, column: str, where: str | None = None, bins: int = 50, log: bool = False) -> Histogram:
        return histogram(self.database, column, where, bins, log)

    def density(self, x: str, y: str, where: str | None = None, bins: int = 60) -> Density:
        return density(self.database, x, y, where, bins)

    def percentiles(self, row: Mapping[str, Any] | str) -> dict[str, float]:
        """For each measurement of a row (or uid) the share of the corpus, of its kind, with a smaller value."""
        found = self.row(row) if isinstance(row, str) else row
        return percentiles(self.database, found) if found else {}

    # -- keeping -------------------------------------------------------------------------------------------------

    @with_rules
    def keep(self, **rules: Unpack[KeepRules]) -> Subset:
        """The usable rows that meet all rules: max_p_mismatch=0.1, keep_top="30%", by="similarity", where="...", ...

        `max` and `min` bound any other column: max={"aesthetics_score": 5}. `auditor filter --help` explains each.
        """
        return Subset(self.database, Rules.of(rules))

    def cut_offs(self, at: Sequence[float] = SHOWN, where: str | None = None) -> list[Cut]:
        """What removing pairs with p_mismatch >= each cut-off does: what goes, what is caught, lost and left."""
        return cuts(count_pairs(self.database, where), at)

    def choose_cut(
        self, *, lose_at_most: float | None = None, expect_precision: float | None = None, where: str | None = None
    ) -> Cut:
        """The cut-off that removes the most within a limit; keep(max_p_mismatch=float(cut)) applies it."""
        found = count_pairs(self.database, where)
        return choose_cut(found, lose_at_most=lose_at_most, expect_precision=expect_precision)

    def rule_effects(self, rules: Rules | Mapping[str, Any]) -> Effects:
        """What each rule removes alone and all together, with expected precision and loss."""
        return rule_effects(self.database, Rules.of(rules))

    def nearest_cut(self, rules: Rules | Mapping[str, Any], rule: str, n: int = 10) -> tuple[pa.Table, pa.Table]:
        """The usable rows nearest the cut of one bound: (just kept, just removed)."""
        return nearest_cut(self.database, Rules.of(rules), rule, n)

    # -- columns of others ---------------------------------------------------------------------------------------

    def join(
        self, table: str | Path, on: str, *, prefix: str = "", which: Which | None = None, force: bool = False
    ) -> Joined:
        """Add the columns of a Parquet or CSV file by uid or key; they are columns like any other afterwards."""
        done = join(self.database, str(table), on, prefix=prefix, which=which, force=force)
        self._reopen()
        return done

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
    ) -> Applied:
        """Call a function with batches of the usable rows and keep what it gives as columns like any other.

        `columns` are its arguments by name: columns of the audit, `visual` and `text` (embeddings), `image` (decoded
        pictures), `media` (bytes). A class is made once. The same call after a kill goes on: auditor.query.apply_function.
        """
        options = {"name": name, "prefix": prefix, "batch_size": batch_size, "image_size": image_size}
        done = apply(self.database, function, make_work(function, columns, **options), force=force)
        self._reopen()
        return done

    def _reopen(self) -> None:
        """See new columns; what was loaded into memory is loaded again."""
        old = self.database
        self.database = AuditDatabase(old.path, old.moved_to, thresholds=old.thresholds, limits=old.limits)
        if old.memory:
            self.database.load_into_memory()
        old.close()

    # -- reviews -------------------------------------------------------------------------------------------------

    def mark(
        self, uid: str, mark: str, *, caption_index: int = 0, reviewer: str | None = None, note: str = ""
    ) -> Review:
        """Keep what a person says of a row: good, bad or unsure."""
        return self.database.mark(uid, mark, caption_index=caption_index, reviewer=reviewer, note=note)

    def precision(self) -> Precision:
        """How often people agreed with the flag `mismatch`, beside what its probabilities expect."""
        return precision(self.database)

    @with_rules
    def certification_sample(self, labels: int = 100, *, seed: int = 0, **rules: Unpack[KeepRules]) -> Sample:
        """Rows to judge for a certificate of the corpus, its flag and, with rules as of `keep`, a filter."""
        return find_sample(self.database, Rules.of(rules), labels, seed)

    def marks_of(self, sample: Sample) -> list[str | None]:
        """What reviewers say of each row of a sample."""
        return marks_of_sample(self.database, sample)

    def certify(self, sample: Sample) -> Certificate:
        """What the marks of a sample prove, with 90% intervals."""
        return certify(judged_strata(sample, self.marks_of(sample)), filtered=bool(sample.rules))

"""`Audit`, the Python API: SQL, summaries, the worst rows, distributions, reviews, and subsets to keep.

    audit = Audit("audit/")                      # or s3://bucket/audit; auditor.audit("photos/") makes one
    print(audit.summary())
    audit.sql("SELECT kind, avg(p_mismatch) FROM samples GROUP BY kind")
    audit.keep(max_p_mismatch=0.1).webdataset()

Each method calls one function of query/, keep/, review/ or faults/ with `Audit.database`. No torch, no Ray.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack

from auditor.audit_folder.fault_records import Fault, write_faults
from auditor.audit_folder.tag_estimates import Tag, list_tags
from auditor.check.check_audit import check_audit
from auditor.choose.linear_heads import EmbeddingHead, load_embedding_head
from auditor.choose.prompt_files import Prompts
from auditor.choose.tag_columns import choose_engine, tag_media
from auditor.console import SHOWS_TQDM
from auditor.corpus.corpus_files import is_url
from auditor.corpus.shard import CorpusOptions
from auditor.corpus.tables.data_frame import is_data_frame, write_data_frame
from auditor.errors import AuditError
from auditor.keep.recommended import recommend_rules
from auditor.keep.rule_effects import fetch_rows_near_cut, measure_rule_effects
from auditor.keep.subset import Subset
from auditor.keep.thresholds import SHOWN, Cut, Cuts, choose_cut, compute_cuts, count_pairs
from auditor.keep.uncertainty_cuts import choose_uncertainty_cut, measure_cuts
from auditor.notebook_view import NotebookView, draw_view
from auditor.query import row_queries
from auditor.query.apply_function import ApplyResult, Function, apply_function, make_apply_task
from auditor.query.compare import Comparison, compare_audits
from auditor.query.database import AuditDatabase
from auditor.query.distributions import compute_density, compute_histogram, compute_percentiles
from auditor.query.explain import explain_row
from auditor.query.join_columns import join_columns
from auditor.query.rules import KeepRules, Rules, with_rules
from auditor.query.sandbox import Limits, QueryError
from auditor.query.search import search
from auditor.query.summary import summarize_audit
from auditor.report.altair_charts import Plots
from auditor.report.findings import find_findings
from auditor.report.notebook import draw_audit, make_gallery
from auditor.report.source_comparison import compare_sources
from auditor.review.caption_edits import edit_caption, list_edits
from auditor.review.certificate import Certificate, certify
from auditor.review.flag_precision import measure_flag_precision
from auditor.review.label_sample import LabelSample, count_labels, fetch_sample_marks, find_label_sample
from auditor.schema.setting import settings_in

if TYPE_CHECKING:
    from auditor.choose.target_similarity import Norm
    from auditor.faults.repair import Repair
    from auditor.run.compare_target import TargetColumn

__all__ = ["Audit", "AuditError", "Limits", "QueryError", "audit"]


P = ParamSpec("P")
T = TypeVar("T")


def make_method(
    function: Callable[Concatenate[AuditDatabase, P], T], *, adds_columns: bool = False
) -> Callable[Concatenate["Audit", P], T]:
    """Make a function of a database a method of `Audit` with the same arguments, result and docstring."""

    @wraps(function)
    def method(audit: "Audit", /, *arguments: P.args, **options: P.kwargs) -> T:
        result = function(audit.database, *arguments, **options)
        if adds_columns:
            audit._reopen()
        if isinstance(result, NotebookView):
            object.__setattr__(result, "database", audit.database)  # also of a frozen dataclass
        return result

    original = signature(function)
    database, *others = original.parameters.values()
    parameters = [database.replace(name="self", annotation=Parameter.empty), *others]
    method.__signature__ = original.replace(parameters=parameters)  # type: ignore[attr-defined]
    return method


class Audit(NotebookView):
    """One audit, local or remote, finished or not. Safe to share between threads.

    `corpus` is the present location of the corpus, if it has moved. `thresholds` override those of the manifest.
    """

    database: AuditDatabase

    def __init__(
        self,
        path: str | Path,
        corpus: str | Path | None = None,
        *,
        thresholds: Mapping[str, float] | None = None,
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

    close = make_method(AuditDatabase.close)

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
        return self.database.places.moved_to or self.database.places.old_root

    @property
    def columns(self) -> list[str]:
        return self.database.columns

    @property
    def thresholds(self) -> Mapping[str, float]:
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

    sql = make_method(row_queries.run_select)
    summary = make_method(summarize_audit)
    findings = make_method(find_findings)
    sources = make_method(compare_sources)
    check = make_method(check_audit)
    count = make_method(row_queries.count_matching_rows)
    errors = make_method(row_queries.list_errors)
    worst = make_method(row_queries.find_worst_rows)
    page = make_method(row_queries.read_page)
    row = make_method(row_queries.read_row)
    media = make_method(row_queries.read_row_media)
    search = make_method(search)
    show = make_method(make_gallery)
    explain = make_method(explain_row)
    histogram = make_method(compute_histogram)
    density = make_method(compute_density)
    percentiles = make_method(compute_percentiles)

    @property
    def plot(self) -> Plots:
        """Altair charts: plot.mixture(), plot.map(), plot.thresholds()."""
        return Plots(self.database)

    def compare(self, other: "Audit", n: int = 20) -> Comparison:
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

    # -- keeping -------------------------------------------------------------------------------------------------

    @with_rules
    def keep(self, **rules: Unpack[KeepRules]) -> Subset:
        """Select the usable rows that meet all rules: max_p_mismatch=0.1, keep_top="30%", by="similarity", where="...".

        `max` and `min` bound any other column: max={"aesthetics_score": 5}. `auditor filter --help` explains each.
        `balance="topic:1000"` stores the topics as a column first.
        """
        kept_rules = Rules.of(rules)
        if kept_rules.topic_count is not None:
            from auditor.choose.topic_cells import ensure_topics

            if ensure_topics(self.database, kept_rules.topic_count):
                self._reopen()
        return Subset(self.database, kept_rules)

    def cut_offs(self, at: Sequence[float] = SHOWN, where: str | None = None) -> Cuts[Cut]:
        """Estimate, for each cut-off of p_mismatch, how many pairs it removes and how many mismatches it catches."""
        return Cuts(compute_cuts(count_pairs(self.database, where), at))

    choose_cut = make_method(choose_cut)
    measure_cuts = make_method(measure_cuts)
    choose_uncertainty_cut = make_method(choose_uncertainty_cut)
    recommend_rules = make_method(recommend_rules)
    rule_effects = make_method(measure_rule_effects)
    nearest_cut = make_method(fetch_rows_near_cut)

    # -- added columns -------------------------------------------------------------------------------------------

    join = make_method(join_columns, adds_columns=True)

    def apply(
        self,
        function: Function | str | Path,
        columns: Sequence[str] = ("visual",),
        *,
        name: str | None = None,
        prefix: str = "",
        batch_size: int = 256,
        image_size: int = 224,
        force: bool = False,
    ) -> ApplyResult:
        """Call a function with batches of the usable rows and store its results as columns.

        `columns` are its arguments by name: columns of the audit, `visual` and `text` (embeddings), `image` (decoded
        images), `media` (bytes). A class is instantiated once. A path is a file of linear layers on embeddings, such
        as an aesthetic head. After an interruption the same call continues: see auditor/query/apply_function.py.
        """
        if isinstance(function, str | Path):
            function = load_embedding_head(function, name or "")
        options = {"name": name, "prefix": prefix, "batch_size": batch_size, "image_size": image_size}
        is_head = isinstance(function, EmbeddingHead) and tuple(columns) == ("visual",)
        engine = choose_engine(self.database) if is_head else None
        work = make_apply_task(function, columns, **options)
        result = apply_function(self.database, function, work, force=force, engine=engine)
        self._reopen()
        return result

    def towards(
        self,
        other: str | Path,
        *,
        name: str | None = None,
        norm: "Norm" = "inf",
        model: str | None = None,
        device: str = "auto",
        force: bool = False,
        quiet: bool = True,
    ) -> "TargetColumn":
        """Store the similarity of each medium to a target set as the column towards_<name>.

        `other` is an audit, a corpus, a folder of pictures, stored embeddings, or a .txt with a description per line.
        The norm "inf" is the highest cosine to the target, "2" the root mean square of all.
        """
        from auditor.run.compare_target import compare_target

        column = compare_target(
            self.database, str(other), name=name, norm=norm, model=model, device=device, force=force, quiet=quiet
        )
        self._reopen()
        return column

    def tag(
        self,
        prompts: Prompts = (),
        *,
        against: Sequence[str] | str | None = None,
        by: str | Path | None = None,
        name: str = "",
        prefix: str = "",
        model: str | None = None,
        force: bool = False,
    ) -> list[Tag]:
        """Add a column for each prompt: the probability that a medium shows what it says, calibrated on the corpus.

        `prompts` are texts, a TOML file, or quality, text or medium, which ship with the auditor; `against` is the
        opposite of texts, by default "a photo". Instead, `by` names a file of marked rows (uid or key, and label), or
        "reviews", to learn from. `name` is that of the column, if there is one, or of the columns together.
        """
        marks = None if by is None else str(by)
        tags = tag_media(
            self.database, prompts, against=against, examples=marks, name=name, prefix=prefix, model=model, force=force
        )
        self._reopen()
        return tags

    @property
    def tags(self) -> list[Tag]:
        """The prompt columns of the audit, with the share that each fits."""
        return list_tags(self.database.files.sources)

    def _reopen(self) -> None:
        """Open the database again to see new columns, and load it into memory again if it was loaded."""
        old = self.database
        self.database = AuditDatabase(old.path, old.places, thresholds=old.thresholds, limits=old.limits)
        if old.memory:
            self.database.load_into_memory()
        old.close()

    # -- reviews -------------------------------------------------------------------------------------------------

    mark = make_method(AuditDatabase.mark)
    edit = make_method(edit_caption)
    edits = make_method(list_edits)
    precision = make_method(measure_flag_precision)
    marks_of = make_method(fetch_sample_marks)

    @with_rules
    def certification_sample(self, labels: int = 100, *, seed: int = 0, **rules: Unpack[KeepRules]) -> LabelSample:
        """Draw rows to judge for a certificate of the corpus, its flag and, with rules as in `keep`, a filter."""
        return find_label_sample(self.database, Rules.of(rules), labels, seed)

    def certify(self, sample: LabelSample) -> Certificate:
        """Compute what the marks of a sample prove, with 90% intervals."""
        return certify(count_labels(sample, self.marks_of(sample)), filtered=bool(sample.rules))


draw_view.register(Audit, lambda audit: draw_audit(audit.database))


def audit(
    corpus: Any,
    out: str | Path = "audit",
    *,
    model: str | None = None,
    media: str | None = None,
    caption: str | Sequence[str] | None = None,
    devices: str | None = None,
    **options: Any,
) -> Audit:
    """Audit a corpus in the folder `out`, or resume its audit, with a progress bar.

    `corpus` is what `auditor audit` accepts, or a DataFrame (pandas, polars, pyarrow); `media` and `caption` name its
    columns; several captions are sources. Other options are those of the command: `frames=8`, `quiet=True`.
    """
    from auditor.run.start_audit import check_option_names, start_audit

    check_option_names(options)
    values = {"media_column": media, "caption_column": caption, **options, "model": model, "out": str(out)}
    if is_data_frame(corpus):
        if is_url(values["out"]):
            raise AuditError("the audit of a DataFrame needs a local folder")
        table = Path(f"{values['out'].rstrip('/')}-corpus.parquet").absolute()
        roots = write_data_frame(corpus, table, CorpusOptions(**settings_in(CorpusOptions, values)))
        values["media_root"] = (*values.get("media_root", ()), *roots)
        corpus = table
    if not isinstance(corpus, str | Path):
        raise AuditError(f"corpus is a path, a URL or a DataFrame, not {type(corpus).__name__}")
    token = SHOWS_TQDM.set(True)
    try:
        start_audit({**values, "corpus": str(corpus)}, devices)
    finally:
        SHOWS_TQDM.reset(token)
    return Audit(out)

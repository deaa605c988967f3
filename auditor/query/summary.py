"""The summary of an audit: rows by status and kind, flags, estimated noise, typical values, reviews."""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from auditor.audit_folder.tag_estimates import Tag, list_tags
from auditor.notebook_view import NotebookView
from auditor.query.database import AuditDatabase
from auditor.query.distributions import (
    TimeShifts,
    build_ranges_sql,
    choose_reference_step,
    compute_typical_values,
    merge_ranges,
    summarize_time_shifts,
)
from auditor.schema import FLAGS, HEADLINES

# Shown beside the estimated share on every page.
RELATED = "Not counted are captions of related media: they look right to the model, and only labels can show them."
ONE_VECTOR = "each caption has one stored vector: its sentences are not judged one by one"


@dataclass(frozen=True)
class Noise:
    """The estimated share of mismatched pairs of one kind, with its interval: the same wherever it is shown.

    Without labels it does not count captions of related media, which look right to the model.
    """

    kind: str
    share: float
    low: float
    high: float
    pairs: int
    labeled: bool = False  # labels have corrected it

    def format_points(self, share: float) -> str:
        """A share in percent, with a digit after the point if the interval is narrow or starts below ten."""
        return f"{100 * share:.{int(self.low < 0.0995 or self.high - self.low < 0.02)}f}"

    @property
    def number(self) -> str:
        return f"{'' if self.labeled else 'about '}{self.format_points(self.share)}%"

    @property
    def interval(self) -> str:
        return f"{self.format_points(self.low)} to {self.format_points(self.high)}"

    @property
    def exclusion(self) -> str:
        return "" if self.labeled else ", not counting related captions"

    def words(self) -> str:
        """For example: about 18% (14 to 21), not counting related captions."""
        return f"{self.number} ({self.interval}){self.exclusion}"


@dataclass(frozen=True)
class Summary(NotebookView):
    path: str
    state: str
    rows: int
    status: dict[str, int]
    kinds: dict[str, int]  # usable media
    captions: dict[str, int]  # usable rows of each kind, one for each caption of a medium
    flags: dict[str, int]  # flag -> usable rows that carry it
    copy_rule: str  # which media are duplicates, in words
    competence: dict[str, dict[str, Any]]  # kind -> how well the model judges the corpus and its parts
    noise: list[Noise]
    calibration: dict[str, str]  # kind -> the groups that were calibrated by themselves, and their shares
    typical: dict[str, dict[str, float]]  # column -> {"p5", "median", "p95"}
    tags: list[Tag]  # prompt columns
    time_shifts: TimeShifts | None  # None: no video has enough timed captions
    marks: dict[str, int]
    notes: list[str]

    @property
    def usable(self) -> int:
        return self.status.get("ok", 0)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "usable": self.usable}

    def lines(self) -> list[tuple[str, str]]:
        """The facts that are no findings, each with its label."""
        lines = [("rows", f"{self.rows:,}"), ("usable", format_count_share(self.usable, self.rows))]
        for kind, count in self.kinds.items():
            captions = f" with {self.captions[kind]:,} captions" if self.captions[kind] != count else ""
            lines.append((f"{kind}s", f"{count:,}{captions}"))
        lines += [(f"mismatched {noise.kind}s", noise.words()) for noise in self.noise]
        lines += [(f"model on {kind}s", words) for kind, words in self.describe_competence().items()]
        lines += [("copies are", self.copy_rule)] if self.copy_rule else []
        for column, values in self.typical.items():
            lines.append((column, f"{values['median']:.3g}  ({values['p5']:.3g} - {values['p95']:.3g})"))
        lines += [(f"tagged {tag.column}", tag.words()) for tag in self.tags]
        return [*lines, *((f"reviewed {mark}", f"{count:,}") for mark, count in self.marks.items())]

    def describe_competence(self) -> dict[str, str]:
        """For each kind, for example: sees what is related (skew 0.53, 0.51 to 0.55); pairs are 3.2 deviations ..."""
        sentences = {}
        for kind, competence in self.competence.items():
            related, separation = competence["relatedness"], competence["separation"]
            sentences[kind] = (
                f"{'does not see' if competence['blind'] else 'sees'} what is related (skew {related['value']:.2f}, "
                f"{related['low']:.2f} to {related['high']:.2f}); pairs are {separation['value']:.1f} deviations more "
                f"similar than random ones{self.calibration.get(kind, '')}"
            )
        return sentences

    def __str__(self) -> str:
        width = max(len(label) for label, _ in self.lines())
        text = [f"{label:<{width}}  {value}" for label, value in self.lines()]
        return "\n".join([f"{self.path} ({self.state})", *text, *(f"note: {note}" for note in self.notes)])


def format_count_share(count: int, total: int) -> str:
    return f"{count:,} ({count / total:.1%})" if total else f"{count:,}"


def read_noise_estimates(statistics: dict[str, Any]) -> list[Noise]:
    """Read the estimates from the statistics in the manifest; empty until the audit is scored."""
    return [
        Noise(kind, e["pi0"], e["pi0_low"], e["pi0_high"], e.get("pairs", 0), "pi0_without_labels" in e)
        for kind, e in statistics.items()
        if e and e.get("pi0") is not None
    ]


def describe_calibration(statistics: dict[str, Any]) -> dict[str, str]:
    """For each kind with calibration groups, for example: ; calibrated by language: de about 12% (10 to 14) ..."""
    sentences = {}
    for kind, estimate in statistics.items():
        if groups := (estimate or {}).get("groups"):
            noises = sorted(read_noise_estimates(groups), key=lambda noise: (not noise.kind, -noise.pairs))
            words = [f"{n.kind or 'all others'} {n.number} ({n.interval})" for n in noises if n.pairs]
            sentences[kind] = f"; calibrated by {estimate['calibrated_by']}, mismatched: {', '.join(words)}"
    return sentences


def describe_copy_rule(rule: dict[str, float | None]) -> str:
    """For example: "equal files, or pixels that agree by 0.64 (...)"; empty in audits of earlier versions."""
    cosine, candidate, agreement = (rule.get(name) for name in ("cosine", "candidate", "agreement"))
    if cosine is None or candidate is None:
        return ""
    if agreement is None:
        return f"equal files, or a cosine of {cosine:.3f} (no pixels compared)"
    return f"equal files, or pixels that agree by {agreement:.2f} (compared from cosine {candidate:.2f} up)"


def add_media_without_first_caption(database: AuditDatabase, usable: list[dict[str, Any]]) -> None:
    """Count media whose first caption is unusable (a bad span) by their next usable caption."""
    rows = database.rows(
        "SELECT kind, count(*) AS n FROM (SELECT kind, min(caption_index) AS first FROM measured WHERE status = 'ok' "
        "GROUP BY kind, shard, key) WHERE first > 0 GROUP BY kind"
    )
    extra_media = {row["kind"]: row["n"] for row in rows}
    for group in usable:
        group["media"] += extra_media.get(group["kind"], 0)


def summarize_audit(database: AuditDatabase) -> Summary:
    flags = ", ".join(f"count(*) FILTER ({flag}) AS {flag}" for flag in FLAGS)
    groups = database.stored_rows(
        "summary",
        "SELECT status, kind, count(*) AS n, count(*) FILTER (coalesce(caption_index, 0) = 0) AS media, "
        f"{flags}, count(time_shift) AS timed, {build_ranges_sql(HEADLINES)} "
        "FROM measured GROUP BY status, kind ORDER BY n DESC, status, kind",
    )
    database.cached("ranges", lambda: merge_ranges(groups, HEADLINES))  # find_value_range uses them
    status = Counter[str]()
    for group in groups:
        status[group["status"]] += group["n"]
    usable = [group for group in groups if group["status"] == "ok"]
    if "bad_span" in status:
        add_media_without_first_caption(database, usable)
    is_timed = any(group["kind"] == "video" for group in usable) and any(group["timed"] for group in groups)
    step = choose_reference_step(database)
    marks = database.rows("SELECT review, count(*) AS n FROM verdicts GROUP BY review ORDER BY review")
    return Summary(
        path=database.path,
        state=database.state,
        rows=sum(status.values()),
        status=dict(status),
        kinds={group["kind"]: group["media"] for group in usable},
        captions={group["kind"]: group["n"] for group in usable},
        flags={flag: sum(group[flag] for group in usable) for flag in FLAGS},
        copy_rule=describe_copy_rule(database.manifest.get("duplicates", {})),
        competence={
            kind: estimate["competence"]
            for kind, estimate in database.statistics.items()
            if estimate and estimate.get("competence")
        },
        noise=read_noise_estimates(database.statistics),
        calibration=describe_calibration(database.statistics),
        typical=compute_typical_values(database),
        tags=list_tags(database.files.sources),
        time_shifts=summarize_time_shifts(database) if is_timed else None,
        marks={row["review"]: row["n"] for row in marks},
        notes=[
            *database.notes,
            *([f"medians are of every {step}th shard"] if step > 1 else []),
            *([ONE_VECTOR] if has_single_vectors(database) else []),
        ],
    )


def has_single_vectors(database: AuditDatabase) -> bool:
    """Whether the captions are stored embeddings without those of their parts."""
    is_stored = bool((database.manifest.get("model") or {}).get("origin"))
    return is_stored and not database.value("SELECT count(parts) FROM measured")

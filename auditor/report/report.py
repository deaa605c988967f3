"""Write the report: one self-contained HTML file with findings, numbers, charts, the worst rows and the settings.

This module collects the content; report.html, a Jinja2 template, lays it out. Everything is inside the file, and its
content policy allows nothing else to be loaded or run. Captions, keys and error messages are untrusted: the template
escapes all text.
"""

import base64
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from auditor.audit_folder.folder import split_target
from auditor.corpus.sample import Span, get_row_span
from auditor.errors import AuditorError
from auditor.query.database import AuditDatabase
from auditor.query.distributions import compute_density, compute_histogram
from auditor.query.row_queries import list_errors, read_row_media
from auditor.query.summary import RELATED, Noise, Summary, summarize_audit
from auditor.report.charts import CHART_STYLE, draw_density, draw_histogram, draw_score_mixture
from auditor.report.findings import Finding, find_findings
from auditor.report.source_comparison import compare_sources
from auditor.review.flag_precision import measure_flag_precision
from auditor.schema import COLUMNS, FLAGS, HEADLINES
from auditor.schema.caption_spans import CaptionSpan, list_caption_spans

if TYPE_CHECKING:
    from jinja2 import Template

HERE = Path(__file__).parent
PIECES_STYLE = HERE / "pieces.css"  # of what the report and views in notebooks share
THUMBNAIL = 240  # pixels of the longer side
MISMATCH_CHARTS = (
    "Captions re-paired at random show what a mismatched pair looks like (red). Observed scores (blue) that reach into "
    "the red probably belong to mismatched pairs. "
)


@dataclass(frozen=True, slots=True)
class ReportCard:
    """A number and its label; `warm` marks bad news."""

    value: str
    label: str
    warm: bool = False


@dataclass(frozen=True, slots=True)
class ReportFigure:
    title: str
    words: str
    chart: Markup


@dataclass(frozen=True, slots=True)
class ReportPair:
    """An example: a JPEG in base64, or a text in its place."""

    caption: str
    shard: str
    key: str
    span: Span | None
    picture: str = ""
    instead: str = ""
    words: str = ""  # above the caption
    parts: Sequence[CaptionSpan] = ()  # of a caption that was judged in parts


@dataclass(frozen=True, slots=True)
class ReportTable:
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""


@dataclass(frozen=True, slots=True)
class ReportSection:
    title: str
    words: str
    figures: Sequence[ReportFigure] = ()
    wide: bool = False
    note: str = ""
    tables: Sequence[ReportTable] = ()


def write_report(database: AuditDatabase, out: str | Path, *, media: bool = True) -> int:
    """Write the report and return its size in bytes; without `media` it has no thumbnails, and no corpus is read."""
    folder, name = split_target(str(out))
    data = render_report(database, media=media).encode("utf-8", "replace")
    with folder.writing(name) as path:
        path.write_bytes(data)
    return len(data)


def render_report(database: AuditDatabase, *, media: bool = True) -> str:
    summary, findings, manifest = summarize_audit(database), find_findings(database), database.manifest
    corpus = manifest.get("corpus", {})
    style = "".join(path.read_text(encoding="utf-8") for path in (HERE / "report.css", PIECES_STYLE, CHART_STYLE))
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return load_template("report.html").render(
        policy=Markup(policy),
        style=Markup(style),
        corpus=str(corpus.get("spec") or corpus.get("root") or database.path),
        rows=summary.rows,
        model=manifest.get("model", {}).get("spec", "an unknown model"),
        day=str(manifest.get("finished") or manifest.get("created") or "")[:10],
        notes=summary.notes,
        findings=[(finding, make_pairs(database, finding, media)) for finding in findings],
        weakest=findings.weakest,
        cards=make_number_cards(summary),
        sections=make_sections(database, summary),
    )


def make_sections(database: AuditDatabase, summary: Summary) -> Iterator[ReportSection]:
    yield from make_mismatch_section(database, summary)
    yield from make_source_section(database)
    yield make_distribution_section(database, summary.usable)
    yield from make_error_section(database)
    yield make_origin_section(database)


@cache
def load_template(name: str, finalize: Callable[[Any], Any] | None = None) -> "Template":
    """A template of this folder. It escapes all text and rejects unknown names."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, Undefined

    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined if name == "report.html" else Undefined,  # views lack parts
        finalize=finalize or replace_control_characters,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["number_text"] = lambda text: text.translate(str.maketrans("", "", ",%.")).isdigit()
    return environment.get_template(name)


def replace_control_characters(value: Any) -> Any:
    """Text without control characters; markup and other values stay as they are."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in value)


def make_number_cards(summary: Summary) -> list[ReportCard]:
    cards = [ReportCard(f"{summary.usable:,}", f"usable rows, {summary.usable / (summary.rows or 1):.1%} of all")]
    for noise in summary.noise:
        if summary.kinds.get(noise.kind):
            label = f"of {noise.kind} pairs mismatched ({noise.interval}){noise.exclusion}"
            cards.append(ReportCard(noise.number, label, warm=True))
    return cards


def make_mismatch_section(database: AuditDatabase, summary: Summary) -> Iterator[ReportSection]:
    """Observed scores against those of random re-pairings, by kind, and the verdicts of reviewers."""
    figures = list(make_mixture_figures(database, summary))
    competence = " ".join(f"The model on {kind}s {words}." for kind, words in summary.describe_competence().items())
    if figures or competence:
        charts = f"{MISMATCH_CHARTS}{RELATED} " if figures else ""
        title, note = "Do captions belong to their media?", make_review_note(database)
        yield ReportSection(title, charts + competence, figures, wide=True, note=note)


def find_mixtures(database: AuditDatabase, summary: Summary) -> Iterator[tuple[Noise, Mapping[str, Any]]]:
    """The estimate and the histogram of scores of each kind that has both."""
    for noise in summary.noise:
        scores = (database.statistics.get(noise.kind) or {}).get("histogram") or {}
        if summary.kinds.get(noise.kind) and scores.get("edges"):
            yield noise, scores


def make_mixture_figures(database: AuditDatabase, summary: Summary) -> Iterator[ReportFigure]:
    for noise, scores in find_mixtures(database, summary):
        words = f"mismatched: {noise.words()}"
        yield ReportFigure(f"{noise.kind} pairs", words, draw_score_mixture(scores, noise.share))


def make_review_note(database: AuditDatabase) -> str:
    measured = measure_flag_precision(database)
    if measured.measured is None or measured.low is None or measured.high is None:
        return ""
    expected = f"; the probabilities predict {measured.expected:.0%}" if measured.expected is not None else ""
    return (
        f"People judged {measured.judged:,} of the flagged pairs and called {measured.measured:.0%} of them bad "
        f"(95% interval {measured.low:.0%} to {measured.high:.0%}){expected}."
    )


def make_distribution_section(database: AuditDatabase, usable: int) -> ReportSection:
    figures = []
    bins = int(min(50, max(12, usable**0.5)))  # few rows in many bins show only noise
    cuts = {flag.measure: database.thresholds[flag.name] for flag in FLAGS.values()}
    for name in HEADLINES:
        column = COLUMNS[name]
        counts = compute_histogram(database, name, "status = 'ok'", bins, column.logarithmic)
        if counts.total:
            chart = draw_histogram(counts, name, log=column.logarithmic, cut=cuts.get(name))
            figures.append(ReportFigure(column.label, column.meaning, chart))
    for side, words in (("text", "captions"), ("visual", "media")):
        cells = compute_density(database, "similarity", f"uncertainty_{side}", "status = 'ok'", bins)
        if cells.counts.any():
            chart = draw_density(cells, "similarity", f"uncertainty_{side}")
            figures.append(ReportFigure("Uncertainty against similarity", words, chart))
    return ReportSection("Distributions", "All usable rows. Dashed lines are the thresholds of the flags.", figures)


def make_pairs(database: AuditDatabase, finding: Finding, media: bool) -> list[ReportPair]:
    """The examples of a finding that can be shown, or else the first."""
    pairs = [make_pair(database, row, media) for row in finding.examples]
    return [pair for pair in pairs if pair.picture] or pairs[:1]


def make_pair(
    database: AuditDatabase, row: Mapping[str, Any], media: bool, size: int = THUMBNAIL, words: str = ""
) -> ReportPair:
    picture, instead = preview_medium(database, row, size) if media else ("", "no preview")
    parts = list_caption_spans(row)
    return ReportPair(row["caption"] or "", row["shard"], row["key"], get_row_span(row), picture, instead, words, parts)


def preview_medium(database: AuditDatabase, row: Mapping[str, Any], size: int) -> tuple[str, str]:
    """The thumbnail in base64, or the reason why there is none: no medium can make the report fail."""
    try:
        from auditor.report.thumbnails import make_thumbnail

        data = make_thumbnail(read_row_media(database, row), row["kind"], size, get_row_span(row))
    except AuditorError as error:
        return "", str(error)[:120]
    except Exception as error:  # decoders raise anything on hostile bytes
        return "", f"no preview: {type(error).__name__}"
    return Markup(base64.b64encode(data).decode()), ""  # as markup it is not searched for controls


def make_source_section(database: AuditDatabase) -> Iterator[ReportSection]:
    sources = compare_sources(database)
    if rows := sources.tabulate():
        table = ReportTable(list(rows[0]), [list(row.values()) for row in rows])
        yield ReportSection("Which source of captions is better?", "; ".join(sources.lines()), tables=[table])


def make_error_section(database: AuditDatabase) -> Iterator[ReportSection]:
    if errors := list_errors(database, 15):
        rows = [[e["status"], e["error_message"] or "", f"{e['rows']:,}", e["example"]] for e in errors]
        table = ReportTable(["status", "message", "rows", "example key"], rows)
        yield ReportSection("What could not be read", "The most frequent reasons.", tables=[table])


def make_origin_section(database: AuditDatabase) -> ReportSection:
    """Settings and versions: enough to repeat the audit."""
    manifest = database.manifest
    model = dict(manifest.get("model", {}))
    preprocessing = model.pop("pixels", {})
    parts = {
        "corpus": manifest.get("corpus", {}),
        "model": model,
        "preprocessing": preprocessing,
        "settings": manifest.get("settings", {}),
        "thresholds of the flags": database.thresholds,
        "versions": manifest.get("versions", {}),
    }
    tables = [
        ReportTable(["setting", "value"], [[name, format_setting(value)] for name, value in part.items()], title)
        for title, part in parts.items()
        if part
    ]
    words = f"{database.path}, started {manifest.get('created', 'at an unknown time')}"
    return ReportSection("How this audit was made", words, tables=tables)


def format_setting(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

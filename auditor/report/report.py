"""One HTML file that a person can mail: numbers, charts, galleries of the worst pairs, and what made them.

This module collects what is said; report.html, a Jinja2 template, says it. Everything is inside the file, and its
content policy lets nothing else be loaded or run. Captions, keys and error messages are other people's text: the
template escapes all text, always.
"""

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from auditor.audit_folder.fault_records import read_faults
from auditor.audit_folder.folder import split_target
from auditor.corpus.sample import span_of
from auditor.errors import AuditorError
from auditor.query.database import AuditDatabase
from auditor.query.distributions import density, histogram
from auditor.query.row_queries import calm_note, errors, media, worst
from auditor.query.rules import flag_cut
from auditor.query.summary import AT_LEAST, Summary, summarise
from auditor.report.galleries import GALLERIES, Gallery
from auditor.report.svg_charts import compact, density_chart, histogram_chart, null_chart
from auditor.review.flag_precision import precision
from auditor.schema import COLUMNS, FLAGS, HEADLINES

HERE = Path(__file__).parent
THUMBNAIL = 240  # pixels of the longer side


class ReportError(AuditorError):
    """A report that cannot be written."""


@dataclass(frozen=True, slots=True)
class ReportOptions:
    per_gallery: int = 12
    media: bool = True  # thumbnails; without them the corpus is not read


def write_report(database: AuditDatabase, out: str | Path, options: ReportOptions, *, force: bool = False) -> int:
    """Write the report; returns its size in bytes."""
    folder, name = split_target(str(out))
    if folder.exists(name) and not force:
        raise ReportError(f"{out} exists; --force replaces it")
    data = render(database, options).encode("utf-8", "replace")
    with folder.writing(name) as path:
        path.write_bytes(data)
    return len(data)


@dataclass(frozen=True, slots=True)
class Card:
    """A number and what it counts; `warm` where it is bad news."""

    value: str
    label: str
    warm: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    title: str
    words: str
    chart: Markup


@dataclass(frozen=True, slots=True)
class Pair:
    """One row of a gallery: a JPEG in base64, or words instead."""

    caption: str
    shard: str
    key: str
    numbers: list[tuple[str, str]]
    picture: str = ""
    instead: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    words: str
    figures: Sequence[Figure] = ()
    wide: bool = False
    note: str = ""
    pairs: Sequence[Pair] = ()
    tables: Sequence[Table] = ()


def render(database: AuditDatabase, options: ReportOptions) -> str:
    """The whole page."""
    found = summarise(database)
    manifest = database.manifest
    style = (HERE / "report.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return template().render(
        policy=Markup(policy),
        style=Markup(style),
        corpus=corpus_name(database),
        rows=found.rows,
        model=manifest.get("model", {}).get("spec", "an unknown model"),
        day=str(manifest.get("finished") or manifest.get("created") or "")[:10],
        notes=found.notes,
        cards=cards(found),
        sections=sections(database, found, options),
    )


def sections(database: AuditDatabase, found: Summary, options: ReportOptions) -> Iterator[Section]:
    yield from noise(database, found)
    yield from patterns(database)
    yield distributions(database, found.usable)
    yield from filter(None, (gallery(database, entry, options) for entry in GALLERIES))
    yield problems(database, found)
    yield made_by(database)


@cache
def template() -> Template:
    """The page with all text escaped and unknown names refused."""
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["number_text"] = is_number
    return environment.get_template("report.html")


def printable(value: Any) -> Any:
    """Anybody's text without control characters; what is markup stays as it is."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in value)


def is_number(value: str) -> bool:
    return value.replace(",", "").replace("%", "").replace(".", "").isdigit()


def corpus_name(database: AuditDatabase) -> str:
    corpus = database.manifest.get("corpus", {})
    return str(corpus.get("spec") or corpus.get("root") or database.path)


def cards(found: Summary) -> list[Card]:
    usable = found.usable or 1
    shown = [Card(f"{found.usable:,}", f"usable rows, {found.usable / (found.rows or 1):.1%} of all")]
    for entry in found.noise:
        if found.kinds.get(entry.kind):
            bound = ", at least" if entry.at_least else ""
            interval = f"of {entry.kind} pairs mismatched{bound} ({entry.low:.1%} to {entry.high:.1%})"
            shown.append(Card(f"{entry.share:.1%}", interval, warm=True))
    for flag, count in found.flags.items():
        shown.append(Card(f"{count / usable:.1%}", FLAGS[flag].plural, flag == "mismatch"))
    return [*shown, Card(f"{found.duplicates / usable:.1%}", "duplicates")]


def noise(database: AuditDatabase, found: Summary) -> Iterator[Section]:
    """Observed scores against those of random re-pairings, by kind; and what reviewers said."""
    charts = []
    for entry in found.noise:
        drawn = (database.manifest.get("statistics", {}).get(entry.kind) or {}).get("histogram") or {}
        if found.kinds.get(entry.kind) and drawn.get("edges"):
            words = f"{entry.words()} mismatched"
            chart = null_chart(drawn["edges"], drawn["observed"], drawn["null"], entry.share)
            charts.append(Figure(f"{entry.kind} pairs", words, chart))
    if charts:
        words = (
            "Captions re-paired at random show what a mismatched pair looks like (red). Where the observed scores "
            "(blue) reach into the red, pairs are probably mismatched. " + AT_LEAST
        )
        yield Section("Do captions belong to their media?", words, charts, wide=True, note=reviews(database))


def patterns(database: AuditDatabase, most: int = 20) -> Iterator[Section]:
    """What went wrong with the corpus as a whole, where anybody has looked and something was found."""
    faults = read_faults(database.files.folder) or []
    if faults:
        rows = [[fault.kind, f"{fault.rows:,}", fault.sentence] for fault in faults[:most]]
        note = f"And {len(faults) - most:,} more." if len(faults) > most else ""
        words = "Faults that come in patterns, found in the order of the corpus."
        yield Section("What went wrong as a whole?", words, note=note, tables=[Table(("kind", "rows", "what"), rows)])


def reviews(database: AuditDatabase) -> str:
    measured = precision(database)
    if measured.measured is None or measured.low is None or measured.high is None:
        return ""
    expected = f"; the probabilities expect {measured.expected:.0%}" if measured.expected is not None else ""
    return (
        f"People judged {measured.judged:,} of the flagged pairs and called {measured.measured:.0%} of them bad "
        f"(95% interval {measured.low:.0%} to {measured.high:.0%}){expected}."
    )


def distributions(database: AuditDatabase, usable: int) -> Section:
    charts = []
    bins = int(min(50, max(12, usable**0.5)))  # few rows in many bins are only noise
    for name in HEADLINES:
        column = COLUMNS[name]
        counted = histogram(database, name, "status = 'ok'", bins, column.logarithmic)
        if counted.total:
            cuts = dict(flag_cut(flag, database.thresholds) for flag in FLAGS.values())
            cut = cuts.get(name)
            cut = cut if isinstance(cut, float) else None  # one line cannot show a threshold for each kind
            chart = histogram_chart(counted, name, log=column.logarithmic, cut=cut)
            charts.append(Figure(column.label, column.meaning, chart))
    for side, words in (("text", "captions"), ("visual", "media")):
        counted_cells = density(database, "similarity", f"uncertainty_{side}", "status = 'ok'", bins)
        if counted_cells.counts.any():
            chart = density_chart(counted_cells, "similarity", f"uncertainty_{side}")
            charts.append(Figure("Uncertainty against similarity", words, chart))
    return Section("Distributions", "All usable rows. Dashed lines are the thresholds of the flags.", charts)


def gallery(database: AuditDatabase, entry: Gallery, options: ReportOptions) -> Section | None:
    rows = worst(database, entry.by, options.per_gallery, entry.where).to_pylist()
    pairs = [pair(database, row, entry.shown, options) for row in rows]
    return Section(entry.title, entry.words, pairs=pairs, note=calm_note(rows, entry.by)) if pairs else None


def pair(database: AuditDatabase, row: Mapping[str, Any], shown: Sequence[str], options: ReportOptions) -> Pair:
    numbers = [(name.replace("_", " "), compact(row[name])) for name in shown if row[name] is not None]
    if span := span_of(row):
        numbers.insert(0, ("seconds", f"{span.start:g} to {span.end:g}"))
    picture, instead = preview(database, row, options)
    return Pair(row["caption"] or "", row["shard"], row["key"], numbers, picture, instead)


def preview(database: AuditDatabase, row: Mapping[str, Any], options: ReportOptions) -> tuple[str, str]:
    """The thumbnail in base64, or words where the medium cannot be had; a report never fails for a picture."""
    if not options.media:
        return "", "no preview"
    try:
        from auditor.report.thumbnails import thumbnail

        data = thumbnail(media(database, row), row["kind"], THUMBNAIL, span_of(row))
    except AuditorError as error:
        return "", str(error)[:120]
    except Exception as error:  # decoders raise anything on hostile bytes
        return "", f"no preview: {type(error).__name__}"
    return base64.b64encode(data).decode(), ""


def problems(database: AuditDatabase, found: Summary) -> Section:
    """What could not be audited, and why."""
    rows = [[status, f"{count:,}", f"{count / (found.rows or 1):.2%}"] for status, count in found.status.items()]
    tables = [Table(["status", "rows", "share"], rows)]
    if failures := errors(database, 15):
        listed = [[e["status"], e["error_message"] or "", f"{e['rows']:,}", e["example"]] for e in failures]
        tables.append(Table(["status", "message", "rows", "example key"], listed))
    return Section("What could be read", "Every row of the corpus ends in exactly one status.", tables=tables)


def made_by(database: AuditDatabase) -> Section:
    """Settings and versions: enough to make the audit again."""
    manifest = database.manifest
    model = {name: value for name, value in manifest.get("model", {}).items() if name != "pixels"}
    parts = {
        "corpus": manifest.get("corpus", {}),
        "model": model,
        "preprocessing": manifest.get("model", {}).get("pixels", {}),
        "settings": manifest.get("settings", {}),
        "thresholds of the flags": database.thresholds,
        "versions": manifest.get("versions", {}),
    }
    tables = [
        Table(["setting", "value"], [[name, shown(entry)] for name, entry in part.items()], title)
        for title, part in parts.items()
        if part
    ]
    words = f"{database.path}, started {manifest.get('created', 'at an unknown time')}"
    return Section("What made this audit", words, tables=tables)


def shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

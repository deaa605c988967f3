"""One HTML file that a person can mail: numbers, charts, galleries of the worst pairs, and what made them.

Everything is inside the file, and its content policy lets nothing else be loaded or run. Captions, keys and error
messages are other people's text: escaped, always.
"""

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from auditor.errors import AuditorError
from auditor.query.database import AuditDatabase
from auditor.query.distributions import density, histogram
from auditor.query.precision import precision
from auditor.query.rows import errors, media, worst
from auditor.query.summary import Summary, summarise
from auditor.report.charts import compact, density_chart, histogram_chart, null_chart
from auditor.report.words import GALLERIES, Gallery
from auditor.schema import COLUMNS, FLAGS, HEADLINES
from auditor.store.folder import Folder

THUMBNAIL = 240  # pixels of the longer side


class ReportError(AuditorError):
    """A report that cannot be written."""


@dataclass(frozen=True, slots=True)
class ReportOptions:
    per_gallery: int = 12
    media: bool = True  # thumbnails; without them the corpus is not read


def write_report(database: AuditDatabase, out: str | Path, options: ReportOptions, *, force: bool = False) -> int:
    """Write the report; returns its size in bytes."""
    parent, _, name = str(out).rpartition("/")
    folder = Folder(parent or ("/" if str(out).startswith("/") else "."))
    if folder.exists(name) and not force:
        raise ReportError(f"{out} exists; --force replaces it")
    data = render(database, options).encode("utf-8", "replace")
    with folder.writing(name) as path:
        path.write_bytes(data)
    return len(data)


def render(database: AuditDatabase, options: ReportOptions) -> str:
    """The whole page."""
    found = summarise(database)
    body = "".join(
        [
            header(database, found),
            cards(found),
            noise(database, found),
            distributions(database, found.usable),
            *(gallery(database, entry, options) for entry in GALLERIES),
            problems(database, found),
            made_by(database),
        ]
    )
    style = resources.files("auditor.report").joinpath("report.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>Audit of {text(corpus_name(database))}</title><style>{style}</style></head><body><main>{body}"
        "<footer>Written by <b>auditor report</b>. Percentages of mismatched pairs are estimates; a pair shown here "
        "is a suspicion, not a verdict.</footer></main></body></html>"
    )


def text(value: Any) -> str:
    """Anybody's text as text: no markup, no control characters."""
    plain = "".join(c if c.isprintable() or c == " " else "\N{REPLACEMENT CHARACTER}" for c in str(value))
    return html.escape(plain, quote=True)


def corpus_name(database: AuditDatabase) -> str:
    corpus = database.manifest.get("corpus", {})
    return str(corpus.get("spec") or corpus.get("root") or database.path)


def header(database: AuditDatabase, found: Summary) -> str:
    manifest = database.manifest
    model = manifest.get("model", {}).get("spec", "an unknown model")
    when = str(manifest.get("finished") or manifest.get("created") or "")[:10]
    notes = "".join(f'<div class="note">{text(note)}</div>' for note in found.notes)
    return (
        f"<h1>Audit of {text(corpus_name(database))}</h1>"
        f'<p class="quiet">{found.rows:,} rows, seen by {text(model)}{", " + text(when) if when else ""}</p>{notes}'
    )


def cards(found: Summary) -> str:
    usable = found.usable or 1
    shown = [(f"{found.usable:,}", f"usable rows, {found.usable / (found.rows or 1):.1%} of all", False)]
    for noise_ in found.noise:
        if found.kinds.get(noise_.kind):
            interval = f"of {noise_.kind} pairs mismatched ({noise_.low:.1%} to {noise_.high:.1%})"
            shown.append((f"{noise_.share:.1%}", interval, True))
    shown += [(f"{count / usable:.1%}", FLAGS[flag].plural, flag == "mismatch") for flag, count in found.flags.items()]
    shown.append((f"{found.duplicates / usable:.1%}", "duplicates", False))
    made = (
        f'<div class="card{" warm" if warm else ""}"><b>{value}</b><span>{text(label)}</span></div>'
        for value, label, warm in shown
    )
    return f'<div class="cards">{"".join(made)}</div>'


def section(title: str, words: str, body: str) -> str:
    return f'<section><h2>{text(title)}</h2><p class="quiet">{text(words)}</p>{body}</section>'


def figure(title: str, words: str, chart: str) -> str:
    return f"<figure><figcaption>{text(title)} <small>{text(words)}</small></figcaption>{chart}</figure>"


def noise(database: AuditDatabase, found: Summary) -> str:
    """Observed scores against those of random re-pairings, by kind; and what reviewers said."""
    charts = []
    for entry in found.noise:
        drawn = (database.manifest.get("statistics", {}).get(entry.kind) or {}).get("histogram") or {}
        if found.kinds.get(entry.kind) and drawn.get("edges"):
            words = f"about {entry.share:.1%} mismatched ({entry.low:.1%} to {entry.high:.1%})"
            chart = null_chart(drawn["edges"], drawn["observed"], drawn["null"], entry.share)
            charts.append(figure(f"{entry.kind} pairs", words, chart))
    if not charts:
        return ""
    words = (
        "Captions re-paired at random show what a mismatched pair looks like (red). Where the observed scores (blue) "
        "reach into the red, pairs are probably mismatched."
    )
    return section(
        "Do captions belong to their media?",
        words,
        f'<div class="grid wide">{"".join(charts)}</div>{reviews(database)}',
    )


def reviews(database: AuditDatabase) -> str:
    measured = precision(database)
    if measured.measured is None or measured.low is None or measured.high is None:
        return ""
    expected = f"; the probabilities expect {measured.expected:.0%}" if measured.expected is not None else ""
    return (
        f"<p>People judged {measured.judged:,} of the flagged pairs and called {measured.measured:.0%} of them bad "
        f"(95% interval {measured.low:.0%} to {measured.high:.0%}){expected}.</p>"
    )


def distributions(database: AuditDatabase, usable: int) -> str:
    charts = []
    bins = int(min(50, max(12, usable**0.5)))  # few rows in many bins are only noise
    for name in HEADLINES:
        column = COLUMNS[name]
        counted = histogram(database, name, "status = 'ok'", bins, column.logarithmic)
        if counted.total:
            cut = next((database.thresholds.get(flag.name) for flag in FLAGS.values() if flag.measure == name), None)
            cut = cut if isinstance(cut, float) else None  # one line cannot show a threshold for each kind
            chart = histogram_chart(counted, name, log=column.logarithmic, cut=cut)
            charts.append(figure(column.label, column.meaning, chart))
    for side, words in (("text", "captions"), ("visual", "media")):
        counted_cells = density(database, "similarity", f"uncertainty_{side}", "status = 'ok'", bins)
        if counted_cells.counts.any():
            chart = density_chart(counted_cells, "similarity", f"uncertainty_{side}")
            charts.append(figure("Uncertainty against similarity", words, chart))
    words = "All usable rows. Dashed lines are the thresholds of the flags."
    return section("Distributions", words, f'<div class="grid">{"".join(charts)}</div>')


def gallery(database: AuditDatabase, entry: Gallery, options: ReportOptions) -> str:
    rows = worst(database, entry.by, options.per_gallery, entry.where).to_pylist()
    if not rows:
        return ""
    cards_ = "".join(pair(database, row, entry.shown, options) for row in rows)
    return section(entry.title, entry.words, f'<div class="gallery">{cards_}</div>')


def pair(database: AuditDatabase, row: Mapping[str, Any], shown: Sequence[str], options: ReportOptions) -> str:
    numbers = "".join(
        f"<dt>{text(column.replace('_', ' '))}</dt><dd>{compact(row[column])}</dd>"
        for column in shown
        if row[column] is not None
    )
    return (
        f'<div class="pair">{picture(database, row, options)}<div class="text"><p>{text(row["caption"] or "")}</p>'
        f"<dl>{numbers}</dl><code>{text(row['shard'])} / {text(row['key'])}</code></div></div>"
    )


def picture(database: AuditDatabase, row: Mapping[str, Any], options: ReportOptions) -> str:
    """The thumbnail, or words where the medium cannot be had; a report never fails for a picture."""
    if not options.media:
        return '<div class="none">no preview</div>'
    try:
        from auditor.report.thumbnails import thumbnail

        data = thumbnail(media(database, row), row["kind"], THUMBNAIL)
    except AuditorError as error:
        return f'<div class="none">{text(str(error)[:120])}</div>'
    except Exception as error:  # decoders raise anything on hostile bytes
        return f'<div class="none">no preview: {text(type(error).__name__)}</div>'
    return f'<img alt="" src="data:image/jpeg;base64,{base64.b64encode(data).decode()}">'


def problems(database: AuditDatabase, found: Summary) -> str:
    """What could not be audited, and why."""
    rows = [[status, f"{count:,}", f"{count / (found.rows or 1):.2%}"] for status, count in found.status.items()]
    tables = table(["status", "rows", "share"], rows)
    failures = errors(database, 15)
    if failures:
        listed = [[e["status"], e["error_message"] or "", f"{e['rows']:,}", e["example"]] for e in failures]
        tables += table(["status", "message", "rows", "example key"], listed)
    return section("What could be read", "Every row of the corpus ends in exactly one status.", tables)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def cell(value: str) -> str:
        number = value.replace(",", "").replace("%", "").replace(".", "").isdigit()
        return f'<td class="number">{text(value)}</td>' if number else f"<td>{text(value)}</td>"

    top = "".join(f"<th>{text(name)}</th>" for name in head)
    lines = "".join(f"<tr>{''.join(cell(value) for value in row)}</tr>" for row in rows)
    return f'<div class="panel"><table><tr>{top}</tr>{lines}</table></div>'


def made_by(database: AuditDatabase) -> str:
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
    tables = "".join(
        f"<h3>{text(title)}</h3>{table(['setting', 'value'], [[name, shown(entry)] for name, entry in part.items()])}"
        for title, part in parts.items()
        if part
    )
    return section(
        "What made this audit", f"{database.path}, begun {manifest.get('created', 'at an unknown time')}", tables
    )


def shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

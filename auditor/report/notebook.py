"""Views of results in notebooks: an audit, summaries, findings, subsets, cut-offs, search results, explanations.

Each view is self-contained HTML of at most about 300 KB, for light and dark pages of Jupyter and VS Code. All text is
escaped and shortened. A part that cannot be read becomes a sentence.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, TypeVar

from markupsafe import Markup

from auditor.keep.rule_effects import RuleEffect
from auditor.keep.subset import Subset
from auditor.keep.thresholds import Cuts
from auditor.notebook_view import NotebookView, draw_view
from auditor.query.database import AuditDatabase
from auditor.query.explain import Explanation, Fit
from auditor.query.row_queries import check_whole_number, fetch_rows, read_row
from auditor.query.search import SearchResults
from auditor.query.summary import Summary, format_count_share, summarize_audit
from auditor.report.charts import CHART_STYLE, draw_lines
from auditor.report.findings import SHOWN, Findings, describe_example, find_findings
from auditor.report.plot_area import format_tick_percent
from auditor.report.report import (
    HERE,
    PIECES_STYLE,
    ReportCard,
    ReportFigure,
    ReportPair,
    ReportTable,
    load_template,
    make_mixture_figures,
    make_number_cards,
    make_pair,
    replace_control_characters,
)
from auditor.schema import build_order_clause
from auditor.terminal import format_value

T = TypeVar("T")
STRIP = 8  # pairs below the numbers of a view
SIDE = 160  # pixels of a thumbnail
PICTURES = 250_000  # characters of all pictures of a view
LONGEST_TEXT = 240  # characters of a caption or a cell


@dataclass(frozen=True, slots=True)
class View:
    title: str
    lines: Sequence[str] = ()
    notes: list[str] = field(default_factory=list)
    cards: Sequence[ReportCard] = ()
    figures: Sequence[ReportFigure] = ()
    pairs: Sequence[ReportPair] = ()
    heading: str = "The most suspicious pairs"
    tables: Sequence[ReportTable] = ()


def render_view(view: View) -> str:
    return load_template("notebook.html", shorten_text).render(view=view, style=read_view_style())


@cache
def read_view_style() -> Markup:
    """The style sheets, nested in the class of a view, so that they change nothing else in the notebook."""
    paths = (HERE / "notebook.css", PIECES_STYLE, CHART_STYLE)
    return Markup(".auditor-view {\n" + "".join(path.read_text(encoding="utf-8") for path in paths) + "}\n")


def shorten_text(value: Any) -> Any:
    if isinstance(value, str) and not isinstance(value, Markup) and len(value) > LONGEST_TEXT:
        value = f"{value[:LONGEST_TEXT]}…"
    return replace_control_characters(value)


def make_part(view: View, name: str, make: Callable[[], Iterable[T]]) -> list[T]:
    """A part of a view, or a note if it cannot be made."""
    try:
        return list(make())
    except Exception as error:  # damaged files, a closed audit
        view.notes.append(f"{name} cannot be shown: {str(error) or type(error).__name__}")
        return []


def make_pairs(database: AuditDatabase | None, rows: Iterable[tuple[Mapping[str, Any], str]]) -> list[ReportPair]:
    """Pairs with their words and pictures, as far as the size of a view allows; an unusable row has its reason."""
    pairs: list[ReportPair] = []
    for row, words in rows:
        fits = sum(len(pair.picture) for pair in pairs) < PICTURES
        media = database is not None and fits and row["media_path"] is not None
        pair = make_pair(database, row, media, SIDE, words)  # type: ignore[arg-type]  # read only for media
        reason = row["error_message"] or pair.instead if fits else "left out: the view is full"
        pairs.append(pair if pair.picture else replace(pair, instead=reason))
    return pairs


def make_table(rows: Sequence[Mapping[str, Any]], title: str = "") -> list[ReportTable]:
    cells = [[format_value(value) for value in row.values()] for row in rows]
    return [ReportTable(list(rows[0]), cells, title)] if rows else []


def label_value(row: Mapping[str, Any], column: str) -> str:
    """For example: p_mismatch 0.97; empty if the row has no value."""
    value = row[column]
    return f"{column} {value:.3g}" if isinstance(value, float) else f"{column} {format_value(value)}" if value else ""


# -- the gallery -------------------------------------------------------------------------------------------------------


class Gallery(list[dict[str, Any]], NotebookView):
    """Rows of an audit, shown with their media; `column` is the one that orders them."""

    def __init__(self, database: AuditDatabase, rows: Iterable[dict[str, Any]], column: str) -> None:
        super().__init__(rows)
        self.database, self.column = database, column

    def __repr__(self) -> str:
        return "\n".join(f"{label_value(row, self.column)}  {describe_example(row)}" for row in self) or "no rows"


def show_rows(database: AuditDatabase, where: str | None = None, by: str = "p_mismatch", n: int = 24) -> Gallery:
    """Show the n most suspicious rows by a column, with their media; rows without a value come last."""
    order = build_order_clause(by, suspicious_first=True, quoted=database.column(by, "by"))
    rows = fetch_rows(database, database.where(where), order, check_whole_number("n", n))
    return Gallery(database, rows.to_pylist(), by)


@draw_view.register
def draw_gallery(gallery: Gallery) -> str:
    rows = [(row, label_value(row, gallery.column)) for row in gallery]
    pairs = make_pairs(gallery.database, rows)
    return render_view(View(f"Pairs by {gallery.column}: {len(rows):,}", pairs=pairs, heading=""))


# -- views of results --------------------------------------------------------------------------------------------------


def draw_audit(database: AuditDatabase) -> str:
    view = View(database.path, [describe_origin(database)], list(database.notes))
    summaries = make_part(view, "The summary", lambda: [summarize_audit(database)])
    findings = make_part(view, "The findings", lambda: tabulate_findings(find_findings(database)))
    pairs = make_part(view, "The most suspicious pairs", lambda: make_strip(database, "status = 'ok'"))
    cards = [card for summary in summaries for card in make_number_cards(summary)]
    figures = [figure for summary in summaries for figure in make_mixture_figures(database, summary)]
    return render_view(replace(view, cards=cards, figures=figures, pairs=pairs, tables=findings))


def describe_origin(database: AuditDatabase) -> str:
    parts = {name: database.manifest.get(name, {}).get("spec") for name in ("corpus", "model")}
    return f"{database.state}; corpus {parts['corpus']}; encoded with {parts['model'] or 'an unknown model'}"


def make_strip(database: AuditDatabase, condition: str) -> list[ReportPair]:
    """The most suspicious rows of a checked condition."""
    order = build_order_clause("p_mismatch", suspicious_first=True)
    rows = fetch_rows(database, condition, order, STRIP).to_pylist()
    return make_pairs(database, [(row, label_value(row, "p_mismatch")) for row in rows])


@draw_view.register
def draw_summary(summary: Summary) -> str:
    view = View(summary.path, [summary.state], list(summary.notes), make_number_cards(summary))
    if summary.database:
        figures = make_part(view, "The chart", lambda: make_mixture_figures(summary.database, summary))
        view = replace(view, figures=figures)
    return render_view(replace(view, tables=[ReportTable([], summary.lines())]))


def tabulate_findings(findings: Findings) -> list[ReportTable]:
    rows = [[f"{f.rows:,}", f.percent, f.title, f.describe(), f.advice] for f in findings.items[:SHOWN]]
    if not rows:
        return [ReportTable(["weakest spots"], [[str(spot)] for spot in findings.weakest], "Nothing found")]
    rest = f"; {len(findings) - SHOWN} more" if len(findings) > SHOWN else ""
    return [ReportTable(["rows", "share", "finding", "meaning", "what to do"], rows, f"Findings, worst first{rest}")]


@draw_view.register
def draw_findings(findings: Findings) -> str:
    examples = [(finding.examples[0], finding.title) for finding in findings.items[:SHOWN]]
    pairs = make_pairs(findings.database, examples)
    return render_view(View(findings.path, pairs=pairs, heading="Examples", tables=tabulate_findings(findings)))


@draw_view.register
def draw_subset(subset: Subset) -> str:
    view, effects = View("Kept pairs", [repr(subset)]), subset.effects()
    cards = [
        ReportCard(f"{effects.kept:,}", f"of {effects.usable:,} usable pairs kept"),
        ReportCard(f"{subset.media:,}", "media kept"),
        ReportCard(f"{effects.usable - effects.kept:,}", "pairs removed", warm=True),
    ]
    pairs = make_part(view, "The most suspicious pairs", lambda: make_strip(subset.database, subset.condition))
    rules = [*effects.rules, effects.together] if effects.rules else []
    tables = make_table([tabulate_effect(effect, effects.usable) for effect in rules], "What each rule removes")
    heading = "The most suspicious of the kept pairs"
    return render_view(replace(view, cards=cards, pairs=pairs, heading=heading, tables=tables))


def tabulate_effect(effect: RuleEffect, usable: int) -> dict[str, str]:
    shares = {"mismatched": effect.expected_precision, "good lost": effect.expected_loss}
    counts = {"removed": format_count_share(effect.removed, usable), "only by it": f"{effect.removed_only_by_it:,}"}
    texts = {name: "" if share is None else f"{share:.1%}" for name, share in shares.items()}
    return {"rule": effect.rule, **counts, **texts}


@draw_view.register(Cuts)
def draw_cuts(cuts: Cuts[Any]) -> str:
    figures = []
    if len(cuts) > 1:
        names = dict(list(cuts[0].SHARES.items())[:3])  # the colors of charts are three
        values = {title: [(float(cut), getattr(cut, name)) for cut in cuts] for title, name in names.items()}
        series = {title: [(x, y) for x, y in points if y is not None] for title, points in values.items()}
        chart = draw_lines(series, "cut-off", "share", format_y=format_tick_percent)
        figures.append(ReportFigure("What each cut-off does", "", chart))
    return render_view(View("Cut-offs", figures=figures, tables=make_table([cut.tabulate() for cut in cuts])))


@draw_view.register
def draw_search_results(results: SearchResults) -> str:
    pairs = make_fit_pairs(results.database, results, "")
    return render_view(View(f"Nearest rows: {len(results):,}", pairs=pairs, heading=""))


def make_fit_pairs(database: AuditDatabase, fits: Sequence[Fit], words: str) -> list[ReportPair]:
    rows = [(read_row(database, fit.uid, fit.caption_index, fit.shard), fit.similarity) for fit in fits]
    return make_pairs(database, [(row, f"{words}similarity {similarity:.2f}") for row, similarity in rows if row])


@draw_view.register
def draw_explanation(explanation: Explanation) -> str:
    row, database = explanation.row, explanation.database
    view = View(row["key"], [*explanation.reasons, *explanation.describe_ranks()])
    pairs = make_pairs(database, [(row, f"this pair: {label_value(row, 'p_mismatch')}".rstrip(": "))])
    if database:
        words = "fits its caption: "
        pairs += make_part(view, "Other media", lambda: make_fit_pairs(database, explanation.media, words))
    captions = [{"similarity": fit.similarity, "key": fit.key, "caption": fit.caption} for fit in explanation.captions]
    tables = make_table(captions, "Captions of other media that fit this medium best")
    return render_view(replace(view, pairs=pairs, heading="", tables=tables))

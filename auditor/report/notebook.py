"""Views of results in notebooks: self-contained HTML of at most about 300 KB, for light and dark pages.

All text is escaped and shortened. A part that cannot be read becomes a sentence.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from typing import Any

from markupsafe import Markup

from auditor.keep.subset import Subset
from auditor.keep.thresholds import Cuts
from auditor.notebook_view import NotebookView, draw_view
from auditor.query.database import AuditDatabase
from auditor.query.explain import Explanation, Fit, tabulate_fits
from auditor.query.row_queries import check_whole_number, fetch_rows, read_row
from auditor.query.search import SearchResults
from auditor.query.summary import Summary, summarize_audit
from auditor.report import report
from auditor.report.charts import CHART_STYLE, draw_lines
from auditor.report.findings import SHOWN, Findings, describe_example, find_findings
from auditor.report.plot_area import format_tick_percent
from auditor.report.report import ReportPair, ReportTable
from auditor.schema import build_order_clause
from auditor.terminal import format_value

STRIP = 8  # pairs below the numbers of a view
SIDE = 160  # pixels of a thumbnail
PICTURES = 250_000  # characters of all pictures of a view
LONGEST_TEXT = 240  # characters of a caption or a cell


def render_view(title: str, **parts: Any) -> str:
    template = report.load_template("notebook.html", shorten_value)
    return template.render(style=read_view_style(), view={"title": title, **parts})


@cache
def read_view_style() -> Markup:
    """The style sheets, nested in the class of a view, so that they change nothing else in the notebook."""
    paths = (report.HERE / "notebook.css", report.PIECES_STYLE, CHART_STYLE)
    return Markup(".auditor-view {\n" + "".join(path.read_text(encoding="utf-8") for path in paths) + "}\n")


def shorten_value(value: Any) -> Any:
    if isinstance(value, str) and not isinstance(value, Markup) and len(value) > LONGEST_TEXT:
        value = f"{value[:LONGEST_TEXT]}…"
    return report.replace_control_characters(value)


def make_view_pairs(database: AuditDatabase | None, rows: Iterable[tuple[Mapping[str, Any], str]]) -> list[ReportPair]:
    """Pairs with their words and pictures, as far as the size of a view allows; an unusable row has its reason."""
    pairs: list[ReportPair] = []
    for row, words in rows:
        fits = sum(len(pair.picture) for pair in pairs) < PICTURES
        media = database is not None and fits and row["media_path"] is not None
        pair = report.make_pair(database, row, media, SIDE, words)  # type: ignore[arg-type]  # read only for media
        reason = row["error_message"] or pair.instead if fits else "left out: the view is full"
        pairs.append(pair if pair.picture else replace(pair, instead=reason))
    return pairs


def make_table(rows: Sequence[Mapping[str, Any]], title: str = "") -> list[ReportTable]:
    cells = [[format_value(value) for value in row.values()] for row in rows]
    return [ReportTable(list(rows[0]), cells, title)] if rows else []


def label_value(row: Mapping[str, Any], column: str) -> str:
    """For example: p_mismatch 0.97; empty if the row has no value."""
    return f"{column} {format_value(row[column])}" if row[column] is not None else ""


class Gallery(list[dict[str, Any]], NotebookView):
    """Rows of an audit, shown with their media; `column` is the one that orders them."""

    def __init__(self, database: AuditDatabase, rows: Iterable[dict[str, Any]], column: str) -> None:
        super().__init__(rows)
        self.database, self.column = database, column

    def __repr__(self) -> str:
        return "\n".join(f"{label_value(row, self.column)}  {describe_example(row)}" for row in self) or "no rows"

    def draw_pairs(self) -> list[ReportPair]:
        return make_view_pairs(self.database, [(row, label_value(row, self.column)) for row in self])


def make_gallery(database: AuditDatabase, where: str | None = None, by: str = "p_mismatch", n: int = 24) -> Gallery:
    """Show the n most suspicious rows by a column, with their media; rows without a value come last."""
    return find_suspicious_rows(database, database.where(where), by, check_whole_number("n", n))


def find_suspicious_rows(
    database: AuditDatabase, condition: str, column: str = "p_mismatch", count: int = STRIP
) -> Gallery:
    """The most suspicious rows of a checked condition."""
    order = build_order_clause(column, suspicious_first=True, quoted=database.column(column, "by"))
    return Gallery(database, fetch_rows(database, condition, order, count).to_pylist(), column)


@draw_view.register
def draw_gallery(gallery: Gallery) -> str:
    return render_view(f"Pairs by {gallery.column}: {len(gallery):,}", pairs=gallery.draw_pairs())


def draw_audit(database: AuditDatabase) -> str:
    notes, parts = list(database.notes), dict[str, Any]()
    for name, make_part in (
        ("numbers", lambda: make_numbers(database, summarize_audit(database))),
        ("findings", lambda: {"tables": tabulate_findings(find_findings(database))}),
        ("pairs", lambda: {"pairs": find_suspicious_rows(database, "status = 'ok'").draw_pairs()}),
    ):
        try:
            parts |= make_part()
        except Exception as error:  # damaged files, a closed audit
            notes.append(f"The {name} cannot be shown: {str(error) or type(error).__name__}")
    lines = [f"{database.state}; {' '.join(str(database.manifest.get('corpus', {}).get('spec')).split())}"]
    return render_view(database.path, lines=lines, notes=notes, heading="The most suspicious pairs", **parts)


def make_numbers(database: AuditDatabase | None, summary: Summary) -> dict[str, Any]:
    figures = list(report.make_mixture_figures(database, summary)) if database else []
    return {"cards": report.make_number_cards(summary), "figures": figures}


@draw_view.register
def draw_summary(summary: Summary) -> str:
    parts = make_numbers(summary.database, summary)
    return render_view(summary.path, notes=summary.notes, tables=[ReportTable([], summary.lines())], **parts)


def tabulate_findings(findings: Findings) -> list[ReportTable]:
    rows = [[f"{f.rows:,}", f.percent, f.title, f.describe(), f.advice] for f in findings.items[:SHOWN]]
    if not rows:
        return [ReportTable([], [[str(spot)] for spot in findings.weakest], findings.lines()[0])]
    return [ReportTable(["rows", "share", "finding", "meaning", "what to do"], rows, "Findings, worst first")]


@draw_view.register
def draw_findings(findings: Findings) -> str:
    pairs = make_view_pairs(
        findings.database, [(finding.examples[0], finding.title) for finding in findings.items[:SHOWN]]
    )
    return render_view(findings.path, pairs=pairs, tables=tabulate_findings(findings))


@draw_view.register
def draw_subset(subset: Subset) -> str:
    effects = subset.effects()
    rules = [*effects.rules, effects.together] if effects.rules else []
    return render_view(
        f"{effects.kept:,} of {effects.usable:,} usable pairs kept",
        lines=[repr(subset)],
        heading="The most suspicious of the kept pairs",
        pairs=find_suspicious_rows(subset.database, subset.condition).draw_pairs(),
        tables=make_table([asdict(effect) for effect in rules], "What each rule removes"),
    )


@draw_view.register(Cuts)
def draw_cuts(cuts: Cuts[Any]) -> str:
    names = list(cuts[0].SHARES.items())[:3] if cuts else []  # charts have three colors
    points = {title: [(float(cut), getattr(cut, name)) for cut in cuts] for title, name in names}
    series = {title: [(x, y) for x, y in line if y is not None] for title, line in points.items()}
    chart = draw_lines(series, "cut-off", "share", format_y=format_tick_percent)
    figures = [report.ReportFigure("What each cut-off does", "", chart)] if len(cuts) > 1 else []
    return render_view("Cut-offs", figures=figures, tables=make_table([cut.tabulate() for cut in cuts]))


@draw_view.register
def draw_search_results(results: SearchResults) -> str:
    return render_view(f"Nearest rows: {len(results):,}", pairs=make_fit_cards(results.database, results))


def make_fit_cards(database: AuditDatabase | None, fits: Sequence[Fit]) -> list[ReportPair]:
    rows = [(read_row(database, fit.uid, fit.caption_index, fit.shard), fit) for fit in fits] if database else []
    return make_view_pairs(database, [(row, f"similarity {fit.similarity:.2f}") for row, fit in rows if row])


@draw_view.register
def draw_explanation(explanation: Explanation) -> str:
    row, database = explanation.row, explanation.database
    pairs = make_view_pairs(database, [(row, f"this pair: {label_value(row, 'p_mismatch')}")])
    return render_view(
        row["key"],
        lines=[*explanation.reasons, *explanation.describe_ranks()],
        heading="The pair, and the media that fit its caption best",
        pairs=[*pairs, *make_fit_cards(database, explanation.media)],
        tables=make_table(tabulate_fits(explanation.captions), "The captions that fit its medium best"),
    )

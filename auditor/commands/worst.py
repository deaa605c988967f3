"""`auditor worst`: the most suspicious rows by any column."""

import click

from auditor.commands.output import open_audit, output_options, show, with_span
from auditor.say import say
from auditor.schema import HEADLINES

SHOWN = ("uid", "key", "caption")


@click.command()
@click.argument("audit")
@click.option(
    "--by",
    default="p_mismatch",
    show_default=True,
    help=f"Column, like {', '.join(HEADLINES)}; its suspicious end comes first.",
)
@click.option("-n", "count", type=click.IntRange(min=1), default=20, show_default=True, help="Rows.")
@click.option("--where", help="Only rows that meet this SQL condition.")
@output_options
def command(
    audit: str, by: str, count: int, where: str | None, as_json: bool, as_csv: bool, parquet: str | None
) -> None:
    """The most suspicious usable rows of AUDIT by a column.

    \b
    auditor worst audit/
    auditor worst audit/ --by uncertainty_text -n 50 --where "kind = 'video'"
    """
    from auditor.query.row_queries import calm_note

    rows = open_audit(audit).worst(by, count, where)
    columns = [by, *(name for name in SHOWN if name != by)]
    shown = with_span(columns, rows.to_pylist())
    show(rows, as_json=as_json, as_csv=as_csv, parquet=parquet, columns=shown)
    if note := calm_note(rows.to_pylist(), by):
        say(f"note: {note}", err=True)

"""`auditor worst`: list the most suspicious rows by any column."""

import click

from auditor.commands.options import GroupedCommand
from auditor.commands.output import add_span_columns, open_audit, output_options, show_rows
from auditor.schema import HEADLINES
from auditor.terminal import print_line

SHOWN = ("uid", "key", "caption")


@click.command(cls=GroupedCommand)
@click.argument("audit")
@click.option(
    "--by",
    default="p_mismatch",
    show_default=True,
    help=f"Column, like {', '.join(HEADLINES)}; the suspicious end comes first.",
)
@click.option("-n", "count", type=click.IntRange(min=1), default=20, show_default=True, help="Number of rows.")
@click.option("--where", help="Only rows that satisfy this SQL condition.")
@output_options
def command(
    audit: str, by: str, count: int, where: str | None, as_json: bool, as_csv: bool, parquet: str | None
) -> None:
    """List the most suspicious usable rows of AUDIT by a column.

    \b
    auditor worst audit/
    auditor worst audit/ --by uncertainty_text -n 50 --where "kind = 'video'"
    """
    from auditor.query.row_queries import write_calm_note

    rows = open_audit(audit).worst(by, count, where)
    columns = [by, *(name for name in SHOWN if name != by)]
    columns_shown = add_span_columns(columns, rows.to_pylist())
    show_rows(rows, as_json=as_json, as_csv=as_csv, parquet=parquet, columns=columns_shown)
    if note := write_calm_note(rows.to_pylist(), by):
        print_line(f"note: {note}", err=True)

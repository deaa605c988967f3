"""`auditor query`: run any SELECT over an audit, in a process with limits on memory and time."""

import click

from auditor.commands.options import GroupedCommand, advanced_option
from auditor.commands.output import open_audit, output_options, show_rows
from auditor.terminal import print_line

SHOWN = 100


@click.command(cls=GroupedCommand)
@click.argument("audit")
@click.argument("sql")
@click.option(
    "--limit", type=click.IntRange(min=1), help="Largest number of rows [default: 100 on a terminal, else all]."
)
@advanced_option("--timeout", type=float, default=60.0, show_default=True, help="Time limit in seconds.")
@advanced_option("--memory", default="1500MB", show_default=True, help="Memory limit.")
@output_options
def command(
    audit: str,
    sql: str,
    limit: int | None,
    timeout: float,
    memory: str,
    as_json: bool,
    as_csv: bool,
    parquet: str | None,
) -> None:
    """Query AUDIT in DuckDB's SQL. Tables: samples (measurements, flags, review) and reviews.

    \b
    auditor query audit/ "SELECT kind, count(*), avg(p_mismatch) FROM samples GROUP BY kind"
    auditor query audit/ "DESCRIBE samples"
    """
    from auditor.query.sandbox import Limits

    machine = as_json or as_csv or parquet is not None
    opened = open_audit(audit, limits=Limits(memory, timeout))
    row_limit = limit or (None if machine else SHOWN + 1)
    rows = opened.sql(sql, limit=row_limit)
    cut = not machine and limit is None and len(rows) > SHOWN
    show_rows(rows.slice(0, SHOWN) if cut else rows, as_json=as_json, as_csv=as_csv, parquet=parquet)
    if cut:
        print_line(f"only the first {SHOWN} rows are shown; --limit N, --csv, --json and --parquet show more", err=True)

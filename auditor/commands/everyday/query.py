"""`auditor query`: run any SELECT over an audit, in a process with limits on memory and time."""

import click

from auditor.commands.options import POSITIVE, advanced_option, audit_command, option
from auditor.commands.output import Output, open_database, output_options
from auditor.terminal import print_line

SHOWN = 100


@audit_command
@click.argument("sql")
@option("--limit", type=POSITIVE, help="Largest number of rows [default: 100 on a terminal, else all].")
@advanced_option("--timeout", default=60.0, help="Time limit in seconds.")
@advanced_option("--memory", default="1500MB", help="Memory limit.")
@output_options
def command(audit: str, sql: str, limit: int | None, timeout: float, memory: str, output: Output) -> None:
    """Query AUDIT in DuckDB's SQL. Tables: samples (measurements, flags, review) and reviews.

    \b
    auditor query audit/ "SELECT kind, count(*), avg(p_mismatch) FROM samples GROUP BY kind"
    auditor query audit/ "DESCRIBE samples"
    """
    from auditor.workers.child_process import start_early

    with start_early("auditor.query.sql_process"):
        from auditor.query.row_queries import run_select
        from auditor.query.sandbox import Limits

        database = open_database(audit, Limits(memory, timeout))
        rows = run_select(database, sql, limit=limit or (None if output.for_machines else SHOWN + 1))
    cut = not output.for_machines and limit is None and len(rows) > SHOWN
    output.show(rows.slice(0, SHOWN) if cut else rows)
    if cut:
        print_line(f"only the first {SHOWN} rows are shown; --limit N, --csv, --json and --parquet show more", err=True)

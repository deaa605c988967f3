"""`auditor summary`: show what an audit summary."""

import click

from auditor.commands.options import GroupedCommand
from auditor.commands.output import open_audit, output_options, show_rows
from auditor.terminal import print_json


@click.command(cls=GroupedCommand)
@click.argument("audit")
@output_options
def command(audit: str, as_json: bool, as_csv: bool, parquet: str | None) -> None:
    """Show what AUDIT found: rows by status, flags, the estimated share of mismatched pairs, typical values.

    \b
    auditor summary audit/
    auditor summary s3://bucket/audit --json
    """
    summary = open_audit(audit).summary()
    if as_json:
        print_json(summary.to_dict())
        return
    rows = [{"what": label, "value": value} for label, value in summary.lines()]
    show_rows(rows, title=f"{summary.path} ({summary.state})", as_csv=as_csv, parquet=parquet)

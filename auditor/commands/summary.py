"""`auditor summary`: what an audit found."""

import click

from auditor.commands.output import open_audit, output_options, show
from auditor.say import say_json


@click.command()
@click.argument("audit")
@output_options
def command(audit: str, as_json: bool, as_csv: bool, parquet: str | None) -> None:
    """What AUDIT found: rows by status, flags, the estimated share of mismatched pairs, typical values.

    \b
    auditor summary audit/
    auditor summary s3://bucket/audit --json
    """
    found = open_audit(audit).summary()
    if as_json:
        say_json(found.to_dict())
        return
    rows = [{"what": what, "value": value} for what, value in found.lines()]
    show(rows, title=f"{found.path} ({found.state})", as_csv=as_csv, parquet=parquet)

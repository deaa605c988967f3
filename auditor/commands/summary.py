"""`auditor summary`: show what an audit found."""

from auditor.commands.options import audit_command
from auditor.commands.output import Output, open_audit, output_options
from auditor.terminal import print_json


@audit_command
@output_options
def command(audit: str, output: Output) -> None:
    """Show what AUDIT found: rows by status, flags, the estimated share of mismatched pairs, typical values.

    \b
    auditor summary audit/
    auditor summary s3://bucket/audit --json
    """
    summary = open_audit(audit).summary()
    if output.json:
        print_json(summary.to_dict())
    else:
        rows = [{"what": label, "value": value} for label, value in summary.lines()]
        output.show(rows, f"{summary.path} ({summary.state})")

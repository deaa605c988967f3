"""`auditor summary`: show what an audit found."""

from auditor.commands.options import audit_command
from auditor.commands.output import Output, open_audit, output_options, show_sources
from auditor.terminal import print_json, print_lines


@audit_command
@output_options
def command(audit: str, output: Output) -> None:
    """Show what AUDIT found: the findings, worst first, the estimated share of mismatched pairs, typical values.

    \b
    auditor summary audit/
    auditor summary s3://bucket/audit --json
    """
    opened = open_audit(audit)
    summary, findings, sources = opened.summary(), opened.findings(), opened.sources()
    if output.json:
        print_json({**summary.to_dict(), **findings.to_dict(), **sources.to_dict()})
        return
    facts = [{"what": label, "value": value} for label, value in summary.lines()]
    counts = [{"what": finding.title, "value": f"{finding.rows:,}"} for finding in findings]
    output.show([*facts, *counts] if output.for_machines else facts, f"{summary.path} ({summary.state})")
    if not output.for_machines:
        show_sources(sources)
        print_lines(str(findings))

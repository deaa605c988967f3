"""`auditor summary`: show what an audit found."""

from auditor.commands.options import audit_command
from auditor.commands.output import Output, open_database, output_options, show_sources
from auditor.terminal import print_json, print_lines


@audit_command
@output_options
def command(audit: str, output: Output) -> None:
    """Show what AUDIT found: the findings, worst first, the estimated share of mismatched pairs, typical values.

    \b
    auditor summary audit/
    auditor summary s3://bucket/audit --json
    """
    from auditor.query.summary import summarize_audit
    from auditor.report.findings import find_findings
    from auditor.report.source_comparison import compare_sources

    database = open_database(audit)
    summary, findings, sources = summarize_audit(database), find_findings(database), compare_sources(database)
    if output.json:
        print_json({**summary.to_dict(), **findings.to_dict(), **sources.to_dict()})
        return
    facts = [{"what": label, "value": value} for label, value in summary.lines()]
    counts = [{"what": finding.title, "value": f"{finding.rows:,}"} for finding in findings]
    output.show([*facts, *counts] if output.for_machines else facts, f"{summary.path} ({summary.state})")
    if not output.for_machines:
        show_sources(sources)
        print_lines(str(findings))

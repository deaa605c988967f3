"""`auditor check`: pass or fail by the limits of a budget."""

from dataclasses import asdict
from pathlib import Path

import click

from auditor.commands.options import audit_command, json_option, option
from auditor.commands.output import open_audit, refuse_existing_file
from auditor.terminal import print_json, print_line


@audit_command
@option("--budget", default="budget.toml", help="TOML file with the limits.")
@option("--baseline", metavar="AUDIT", help="The audit that worse_by_at_most refers to.")
@option("--strict", is_flag=True, help="Compare the estimates alone, without their intervals.")
@option("--init", metavar="FILE", help="Write a commented budget that AUDIT meets, and stop.")
@option("--junit", metavar="FILE", help="Also write the results as JUnit XML.")
@option("--github", is_flag=True, help="Write annotations, a step summary and the output `verdict` for GitHub Actions.")
@option("--allow-undecided", is_flag=True, help="Exit with 0 also if a limit is undecided.")
@json_option()
@click.pass_context
def command(
    context: click.Context,
    audit: str,
    budget: str,
    baseline: str | None,
    strict: bool,
    init: str | None,
    junit: str | None,
    github: bool,
    allow_undecided: bool,
    as_json: bool,
) -> None:
    """Check the shares of AUDIT against the limits of a budget.

    A limit is broken only if the 90% interval of its share is beyond it. If the interval includes the limit, the
    verdict is "cannot tell", with the number of labels or rows that would settle it.

    Exits with 0 if all limits are met, 1 if one is broken, and 2 if one is undecided or the check cannot be made.

    \b
    auditor check audit/ --init budget.toml
    auditor check audit/ --budget budget.toml
    auditor check audit/ --baseline audit-monday/ --strict --json
    auditor check audit/ --junit junit.xml --github
    """
    from auditor.check.check_audit import VERDICTS
    from auditor.check.ci_reports import build_junit, list_annotations, write_github_files
    from auditor.check.first_budget import write_first_budget
    from auditor.console import print_table

    opened = open_audit(audit)
    if init:
        refuse_existing_file(init)
        Path(init).write_text(write_first_budget(opened.database), encoding="utf-8")
        print_line(f"{init}: edit it, then run `auditor check {audit} --budget {init}`")
        return
    check = opened.check(budget, baseline=baseline, strict=strict)
    if junit:
        Path(junit).write_bytes(build_junit(check))
    if as_json:
        print_json(asdict(check))
    elif github:
        for line in list_annotations(check):
            print_line(line)
    else:
        print_table([result.tabulate() for result in check.results], f"{audit}, {budget}: {check.verdict}")
    if github:
        write_github_files(check, opened.findings().items)
    context.exit(0 if allow_undecided and check.verdict == "cannot tell" else VERDICTS[check.verdict])

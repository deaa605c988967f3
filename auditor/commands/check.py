"""`auditor check`: pass or fail by the limits of a budget."""

import os
from typing import TYPE_CHECKING

import click

from auditor.commands.options import audit_command, json_option, option
from auditor.commands.output import open_audit, refuse_existing_file
from auditor.terminal import print_json, print_line

if TYPE_CHECKING:
    from auditor.check.check_audit import CheckResult
    from auditor.python_api import Audit

FILE = click.Path(dir_okay=False)


@audit_command
@option("--budget", default="budget.toml", help="TOML file with the limits.")
@option("--baseline", metavar="AUDIT", help="The audit that worse_by_at_most refers to [default: the budget's].")
@option("--strict", is_flag=True, help="Compare the estimates alone, not their intervals.")
@option("--init", type=FILE, help="Write a commented budget that AUDIT meets, and stop.")
@option("--junit", type=FILE, help="Also write JUnit XML.")
@option("--github", is_flag=True, help="Also print annotations, and write the step summary and output of GitHub.")
@option("--force", is_flag=True, help="Replace an existing budget with --init.")
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
    force: bool,
    as_json: bool,
) -> None:
    """Check the shares of AUDIT against the limits of a budget.

    A limit is broken only if the 90% interval of its share is beyond it. If the interval includes the limit, the
    verdict is "cannot tell", with the number of labels or rows that would settle it.

    Exits with 0 if all limits are met, 1 if one is broken, and 2 if none is broken but one cannot be told, or if the
    budget or the audit cannot be read.

    \b
    auditor check audit/ --init budget.toml
    auditor check audit/ --budget budget.toml
    auditor check audit/ --baseline audit-monday/ --strict --json
    """
    from auditor.check.first_budget import write_first_budget

    try:
        if init and not force:
            refuse_existing_file(init)
        opened = open_audit(audit)
        if init:
            write_file(init, write_first_budget(opened.database).encode())
            print_line(f"{init}: edit it, then run `auditor check {audit} --budget {init}`")
            return
        check = opened.check(budget, baseline=baseline, strict=strict)
        report_check(check, opened, junit, github, as_json)
    except Exception as error:
        error.exit_code = 2  # type: ignore[attr-defined]
        raise
    context.exit(check.exit_code)


def report_check(check: "CheckResult", audit: "Audit", junit: str | None, github: bool, as_json: bool) -> None:
    from auditor.check.check_formats import build_junit
    from auditor.console import print_table

    if as_json:
        print_json(check.to_dict())
    else:
        print_table([result.tabulate() for result in check.results], f"{check.audit}, {check.budget}")
        print_line(check.describe())
    if junit:
        write_file(junit, build_junit(check))
    if github:
        report_to_github(check, audit, err=as_json)


def report_to_github(check: "CheckResult", audit: "Audit", *, err: bool) -> None:
    """Print annotations, which GitHub reads from both streams, and append to the files that it names."""
    from auditor.check.check_formats import build_step_summary, list_annotations

    for line in list_annotations(check):
        print_line(line, err=err)
    texts = {"GITHUB_STEP_SUMMARY": build_step_summary(check, audit.database)}
    texts["GITHUB_OUTPUT"] = f"verdict={check.verdict}\n"
    for variable, text in texts.items():
        if path := os.environ.get(variable):
            with open(path, "a", encoding="utf-8") as file:
                file.write(text)


def write_file(target: str, data: bytes) -> None:
    from auditor.audit_folder.folder import split_target

    folder, name = split_target(target)
    with folder.writing(name) as path:
        path.write_bytes(data)

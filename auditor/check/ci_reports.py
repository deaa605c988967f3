"""The result of a check for CI: JUnit XML, and GitHub's annotations, step summary and output.

Names and captions of a corpus are escaped: none of them can be markup, or a command to GitHub.
"""

import os
import re
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

from auditor.check.check_audit import BudgetResult, LimitResult
from auditor.report.dataset_card import escape_markdown
from auditor.report.findings import Finding, describe_example

WORST = 10  # findings in the summary
MARKS = {"fail": "❌", "cannot tell": "❔", "pass": "✅"}
LEVELS = {"fail": "error", "cannot tell": "warning"}
ELEMENTS = {"fail": "failure", "cannot tell": "error"}
CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def describe_verdict(result: LimitResult) -> str:
    row = result.tabulate()
    sentence = f"{row['share']} is {row['is']}, limit: {row['limit']}"
    return CONTROLS.sub("?", f"{sentence}; {row['note']}" if row["note"] else sentence)


def build_junit(check: BudgetResult) -> bytes:
    verdicts = [result.verdict for result in check.results]
    counts = {"tests": len(verdicts), "failures": verdicts.count("fail"), "errors": verdicts.count("cannot tell")}
    suite = ElementTree.Element("testsuite", {"name": "auditor check", **{name: str(n) for name, n in counts.items()}})
    for result in check.results:
        name = CONTROLS.sub("?", f"{result.name} {result.bound}")
        case = ElementTree.SubElement(suite, "testcase", classname="auditor.check", name=name)
        if result.verdict in ELEMENTS:
            ElementTree.SubElement(case, ELEMENTS[result.verdict], message=describe_verdict(result))
    return bytes(ElementTree.tostring(suite, "utf-8", xml_declaration=True))


def list_annotations(check: BudgetResult) -> Iterator[str]:
    """Yield a command to GitHub for each limit that is not met, and a plain line for the others."""
    for result in check.results:
        text = describe_verdict(result)
        level = LEVELS.get(result.verdict)
        yield f"::{level} title=auditor check::{text.replace('%', '%25')}" if level else f"{MARKS['pass']} {text}"


def write_github_files(check: BudgetResult, findings: Sequence[Finding]) -> None:
    """Append the summary and the verdict to the files that GitHub names in environment variables."""
    texts = {"GITHUB_STEP_SUMMARY": build_summary(check, findings), "GITHUB_OUTPUT": f"verdict={check.verdict}\n"}
    for variable, text in texts.items():
        if path := os.environ.get(variable):
            with open(path, "a", encoding="utf-8") as file:
                file.write(text)


def build_summary(check: BudgetResult, findings: Sequence[Finding]) -> str:
    rows = [result.tabulate() for result in check.results]
    rows = [{**row, "verdict": f"{MARKS[row['verdict']]} {row['verdict']}"} for row in rows]
    text = f"### Audit check: {MARKS[check.verdict]} {check.verdict}\n\n{_build_table(rows)}"
    worst = [
        {
            "rows": f"{finding.rows:,}",
            "share": f"{100 * finding.share:.3g}%",
            "what": finding.title,
            "example": describe_example(finding.examples[0]),
        }
        for finding in findings[:WORST]
    ]
    return f"{text}\nFindings, worst first:\n\n{_build_table(worst)}" if worst else text


def _build_table(rows: Sequence[dict[str, str]]) -> str:
    head = list(rows[0])
    lines = [
        head,
        ["---"] * len(head),
        *([escape_markdown(CONTROLS.sub(" ", row[name])) for name in head] for row in rows),
    ]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)

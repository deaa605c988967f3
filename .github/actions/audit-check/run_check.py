"""Run `auditor check` in CI: annotations, a step summary and an output for GitHub, and JUnit XML for any CI.

    AUDIT=audit BUDGET=budget.toml JUNIT=junit.xml python run_check.py

Settings are environment variables: AUDIT, BUDGET, BASELINE, STRICT (true), UNDECIDED (fail or pass) and JUNIT. GitHub
sets GITHUB_STEP_SUMMARY and GITHUB_OUTPUT. The exit code is that of `auditor check`. Standard library only.
"""

import html
import json
import os
import re
import subprocess
import sys
from typing import Any
from xml.etree import ElementTree

WORST = 10  # findings in the summary
MARKS = {"fail": "❌", "cannot tell": "❔", "pass": "✅"}
LEVELS = {"fail": "error", "cannot tell": "warning"}
ELEMENTS = {"fail": "failure", "cannot tell": "error"}
CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def run_auditor(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "auditor.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)


def format_share(estimate: dict[str, Any] | None) -> str:
    if estimate is None:
        return "unknown"
    share, low, high = (f"{100 * estimate[name]:.3g}" for name in ("share", "low", "high"))
    return f"{share}%" if low == high else f"{share}% ({low} to {high})"


def describe_result(result: dict[str, Any]) -> str:
    group = (result["estimate"] or {}).get("group")
    name = f"{result['name']} ({group})" if group else result["name"]
    sentence = f"{name} is {format_share(result['estimate'])}, limit: {result['bound']}"
    return CONTROLS.sub("?", f"{sentence}; {result['note']}" if result["note"] else sentence)


def print_annotation(level: str, message: str) -> None:
    escaped = message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    print(f"::{level} title=auditor check::{escaped}", flush=True)


def escape_cell(value: object) -> str:
    text = html.escape(CONTROLS.sub(" ", str(value)), quote=False)
    return re.sub(r"([\\`*_\[\]#|!~@:$])", r"\\\1", text)


def build_table(head: list[str], rows: list[list[object]]) -> str:
    lines = [head, ["---"] * len(head), *([escape_cell(value) for value in row] for row in rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def build_summary(check: dict[str, Any], findings: list[dict[str, Any]]) -> str:
    rows: list[list[object]] = [
        [
            f"{MARKS[result['verdict']]} {result['verdict']}",
            " ".join(filter(None, [result["name"], (result["estimate"] or {}).get("group")])),
            result["bound"],
            format_share(result["estimate"]),
            result["note"],
        ]
        for result in check["results"]
    ]
    text = f"### Audit check: {MARKS[check['verdict']]} {check['verdict']}\n\n"
    text += build_table(["verdict", "share", "limit", "is", "note"], rows)
    worst: list[list[object]] = [
        [f"{finding['rows']:,}", f"{100 * finding['share']:.3g}%", finding["title"], describe_example(finding)]
        for finding in findings[:WORST]
    ]
    if worst:
        text += f"\nFindings, worst first:\n\n{build_table(['rows', 'share', 'what', 'example'], worst)}"
    return text


def describe_example(finding: dict[str, Any]) -> str:
    row = finding["examples"][0]
    text = str(row["caption"] if row["status"] == "ok" else row["error_message"])
    return f"{row['key']}: {text[:80]}"


def build_junit(check: dict[str, Any]) -> bytes:
    verdicts = [result["verdict"] for result in check["results"]]
    counts = {"tests": len(verdicts), "failures": verdicts.count("fail"), "errors": verdicts.count("cannot tell")}
    suite = ElementTree.Element("testsuite", name="auditor check", **{name: str(n) for name, n in counts.items()})
    for result in check["results"]:
        name = CONTROLS.sub("?", f"{result['name']} {result['bound']}")
        case = ElementTree.SubElement(suite, "testcase", classname="auditor.check", name=name)
        if result["verdict"] in ELEMENTS:
            ElementTree.SubElement(case, ELEMENTS[result["verdict"]], message=describe_result(result))
    return ElementTree.tostring(suite, "utf-8", xml_declaration=True)


def append_to(variable: str, text: str) -> None:
    """Append to the file that GitHub names in an environment variable."""
    if path := os.environ.get(variable):
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)


def main() -> int:
    audit = os.environ["AUDIT"]
    options = ["--budget", os.environ.get("BUDGET") or "budget.toml"]
    if baseline := os.environ.get("BASELINE"):
        options += ["--baseline", baseline]
    if os.environ.get("STRICT") == "true":
        options.append("--strict")
    done = run_auditor("check", audit, *options, "--json")
    try:
        check: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        print_annotation("error", done.stderr.strip() or "auditor check printed nothing")
        return 2
    for result in check["results"]:
        if result["verdict"] in LEVELS:
            print_annotation(LEVELS[result["verdict"]], describe_result(result))
        else:
            print(f"{MARKS[result['verdict']]} {describe_result(result)}", flush=True)
    findings = json.loads(run_auditor("summary", audit, "--json").stdout or "{}").get("findings", [])
    append_to("GITHUB_STEP_SUMMARY", build_summary(check, findings))
    append_to("GITHUB_OUTPUT", f"verdict={check['verdict']}\n")
    if junit := os.environ.get("JUNIT"):
        with open(junit, "wb") as file:
            file.write(build_junit(check))
    is_forgiven = check["verdict"] == "cannot tell" and os.environ.get("UNDECIDED") == "pass"
    return 0 if is_forgiven else done.returncode


if __name__ == "__main__":
    sys.exit(main())

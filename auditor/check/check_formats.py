"""Verdicts for machines: JUnit XML, annotations of GitHub, and a Markdown summary with the worst ten rows."""

from xml.etree import ElementTree

from auditor.check.check_audit import CheckResult, LimitResult
from auditor.query.database import AuditDatabase
from auditor.query.row_queries import read_page
from auditor.report.findings import describe_example
from auditor.report.markdown import build_markdown_table, escape_markdown
from auditor.terminal import escape_controls, format_value

WORST = 10
JUNIT_ELEMENTS = {"fail": "failure", "cannot tell": "error"}
ANNOTATIONS = {"fail": "error", "cannot tell": "warning"}
MARKS = {"fail": "❌", "cannot tell": "❔", "pass": "✅"}


def describe_result(result: LimitResult) -> str:
    """For example: mismatched is 12.8% (12.1 to 13.2), at most 3%."""
    row = result.tabulate()
    sentence = f"{row['share']} is {row['is'] or 'unknown'}, limit: {row['limit']}"
    return escape_controls(f"{sentence}; {result.note}" if result.note else sentence)


def build_junit(check: CheckResult) -> bytes:
    """A test suite with a case for each bound; one that cannot be told is an error."""
    broken, undecided = str(check.count("fail")), str(check.count("cannot tell"))
    counts = {"tests": str(len(check.results)), "failures": broken, "errors": undecided}
    suites = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(suites, "testsuite", {"name": escape_controls(check.audit), **counts})
    for result in check.results:
        names = {"classname": escape_controls(check.budget), "name": f"{result.name} {result.bound_words}"}
        case = ElementTree.SubElement(suite, "testcase", {key: escape_controls(text) for key, text in names.items()})
        if element := JUNIT_ELEMENTS.get(result.verdict):
            ElementTree.SubElement(case, element, message=describe_result(result), type=result.verdict)
    ElementTree.indent(suites)
    document: bytes = ElementTree.tostring(suites, "utf-8", xml_declaration=True)
    return document


def list_annotations(check: CheckResult) -> list[str]:
    """Workflow commands for the bounds that are not met; their text is escaped as GitHub requires."""
    escapes = {"%": "%25", "\r": "%0D", "\n": "%0A"}
    table, property_table = str.maketrans(escapes), str.maketrans({**escapes, ":": "%3A", ",": "%2C"})
    return [
        f"::{level} title={f'auditor check: {result.verdict}'.translate(property_table)},"
        f"file={check.budget.translate(property_table)}::{describe_result(result).translate(table)}"
        for result in check.results
        if (level := ANNOTATIONS.get(result.verdict))
    ]


def build_step_summary(check: CheckResult, database: AuditDatabase) -> str:
    rows = [
        [MARKS[result.verdict] + f" {result.verdict}", *(escape_markdown(str(cell)) for cell in cells)]
        for result in check.results
        for _, *cells in [[format_value(value) for value in result.tabulate().values()]]
    ]
    head = ["verdict", "share", "limit", "is", "rows", "note"]
    lines = [f"### auditor check: {escape_markdown(check.describe())}", "", *build_markdown_table(head, rows)]
    if examples := list_worst_examples(check, database):
        cells = [[escape_markdown(name), escape_markdown(example)] for name, example in examples]
        lines += ["", "Rows to look at first:", "", *build_markdown_table(["share", "row"], cells)]
    return "\n".join(lines) + "\n"


def list_worst_examples(check: CheckResult, database: AuditDatabase) -> list[tuple[str, str]]:
    """Rows that count against bounds that are not met, at most ten, divided among the bounds."""
    results = [r for r in check.results if r.verdict != "pass" and r.estimate and r.bound != "at_least"]
    each = max(1, WORST // max(1, len(results)))
    examples = []
    for result in results[:WORST]:
        assert result.estimate is not None
        rows = read_page(database, result.estimate.where, "p_mismatch", descending=True, limit=each).to_pylist()
        examples += [(result.name, describe_example(row)) for row in rows]
    return examples

"""Write the pages of docs/ that the code already says: every command with its options, every column.

    python docs/generate.py              # after a change to a command or column; a test compares
    python docs/generate.py demo/audit   # also the figure of the mixture, from an audit

Nothing here is written by hand twice: the text is what `auditor COMMAND --help` prints and auditor/schema/ declares.
"""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))  # a checkout works without being installed

from auditor.cli import COMMANDS, cli  # noqa: E402
from auditor.schema import COLUMNS, FACTS, FLAGS, MARKS, RULES, SCORES, STATUSES, ValueText  # noqa: E402

WIDTH = 100
HEAD = """# Commands

Every command with its options, as `auditor COMMAND --help` prints them. This page is written by
`python docs/generate.py`; a test fails when it is out of date.

| command | what it is for |
|---|---|
"""


def help_of(name: str) -> str:
    """What `auditor NAME --help` prints, at a fixed width."""
    parent = click.Context(cli, info_name="auditor", **cli.context_settings)
    command = cli.get_command(parent, name)
    assert command is not None, name
    context = click.Context(command, info_name=name, parent=parent, max_content_width=WIDTH, terminal_width=WIDTH)
    command._help_option = None  # click keeps the one of an earlier call, which may have had other names
    return command.get_help(context)


def commands_page() -> str:
    rows = "".join(f"| [`{name}`](#{name}) | {purpose} |\n" for name, purpose in COMMANDS.items())
    sections = (f"\n## {name}\n\n```\n{help_of(name)}\n```\n" for name in COMMANDS)
    return HEAD + rows + "".join(sections)


def columns_page() -> str:
    """docs/columns.md."""
    parts = [
        "# Columns of an audit",
        "Written by `python docs/generate.py` from the declarations in auditor/schema/; a test compares the two.",
        "One row for every key and caption of the corpus, in the table `samples`: `auditor query AUDIT "
        '"SELECT ... FROM samples"`, `Audit(...).sql(...)`. Scores are empty where `status` is not `ok`.',
        "## What the sweep finds out",
        column_table(FACTS),
        "## What scoring adds",
        column_table(SCORES),
        "## Flags",
        "Not stored: derived from the thresholds in the manifest, so a new threshold is a query.",
        column_table(FLAGS),
        "## Review",
        column_table(["review"]),
        word_table("mark", MARKS),
        "## Values of `status`",
        word_table("status", STATUSES),
    ]
    return "\n\n".join(parts) + "\n"


def column_table(names: Iterable[str]) -> str:
    lines = ["| column | type | meaning | unit | suspicious |", "|---|---|---|---|---|"]
    for column in (COLUMNS[name] for name in names):
        meaning = "; ".join(filter(None, (column.meaning, column.definition)))
        lines.append(f"| `{column.name}` | {column.type} | {meaning} | {column.unit} | {column.suspicious or ''} |")
    return "\n".join(lines)


def word_table(title: str, words: Mapping[Any, ValueText]) -> str:
    lines = [
        f"| {title} | meaning |",
        "|---|---|",
        *(f"| `{value}` | {word.meaning} |" for value, word in words.items()),
    ]
    return "\n".join(lines)


def rule_arguments() -> str:
    """auditor/schema/rule_arguments.py: type checkers and editors read names, they do not run what makes them."""
    lines = [
        '"""The limits that `Audit.keep` takes by name, one for each column with a rule: for type checkers, editors.',
        "",
        "Written by `python docs/generate.py` from the declarations beside it; a test compares the two.",
        '"""',
        "",
        "from typing import TypedDict",
        "",
        "Limit = float | str  # 0.3, or '30%' of what is a share",
        "",
        "",
        "class ColumnLimits(TypedDict, total=False):",
        *(f"    {rule}: Limit | None" for rule in RULES),
    ]
    return "\n".join(lines) + "\n"


# by their path from docs/
PAGES = {
    "commands.md": commands_page,
    "columns.md": columns_page,
    "../auditor/schema/rule_arguments.py": rule_arguments,
}


def draw_mixture(audit: str) -> str:
    """docs/screenshots/mixture.svg: the two densities of method.md and p_mismatch, for the pictures of an audit."""
    import numpy as np

    from auditor.python_api import Audit
    from auditor.report.charts import draw_line_figure, mixture_shares

    statistics = Audit(audit).database.manifest["statistics"]["image"]
    observed, null = mixture_shares(statistics["histogram"], statistics["pi0"])
    edges = np.asarray(statistics["histogram"]["edges"])
    centers = (edges[1:] + edges[:-1]) / 2
    p_mismatch = np.interp(centers, statistics["curve"]["score"], statistics["curve"]["p"])
    series = {
        "all pairs, f": np.sqrt(observed / observed.max()),
        "mismatched part, pi0 f0": np.sqrt(null / observed.max()),
        "p_mismatch": p_mismatch,
    }
    points = {name: list(zip(centers.tolist(), values.tolist(), strict=True)) for name, values in series.items()}
    title, y_label = "Mixture of matched and mismatched pairs", "square root of the density"
    return draw_line_figure(title, "mismatch_score", y_label, points)


def main() -> None:
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
    if len(sys.argv) > 1:
        (DOCS / "screenshots" / "mixture.svg").write_text(draw_mixture(sys.argv[1]), encoding="utf-8")


if __name__ == "__main__":
    main()

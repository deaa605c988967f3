"""Hooks of the site that `make docs` builds: formulas as MathML, the demo's report as a page.

mkdocs.yml names this file. The site loads nothing from other servers.
"""

import re
import shutil
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

ROOT = Path(__file__).resolve().parents[1]
REPORT = ROOT / "demo" / "report.html"
MARK = "<!-- demo report -->"
CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)
FORMULA = re.compile(r"\$\$(.+?)\$\$|(?<![\\$\w])\$(?=\S)([^$\n]+?)(?<=\S)\$(?!\w)", re.DOTALL)
OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./[^)]+\)")  # links to files of the checkout that are not pages


def convert_formula(match: re.Match[str]) -> str:
    block, inline = match.groups()
    return convert(block or inline, display="block" if block else "inline")


def convert_formulas(markdown: str) -> str:
    """Replace LaTeX outside of code by MathML, which browsers show without a script."""
    parts = CODE.split(markdown)
    parts[::2] = [FORMULA.sub(convert_formula, part) for part in parts[::2]]
    return "".join(parts)


def describe_report() -> str:
    if REPORT.is_file():
        return "[Open the report of the demo](demo-report.html){ .md-button .md-button--primary }"
    return "*`make demo` was not run before `make docs`, so the report of the demo is not part of this site.*"


def on_page_markdown(markdown: str, **_: Any) -> str:
    return convert_formulas(OUTSIDE.sub(r"\1", markdown).replace(MARK, describe_report()))


def on_post_page(output: str, **_: Any) -> str:
    """Use the script of this site for the search of pages on disk; the theme would load one from another server."""
    return output.replace("https://unpkg.com/iframe-worker/shim", "search_worker.js")


def on_post_template(output_content: str, **_: Any) -> str:
    return on_post_page(output_content)


def on_post_build(config: Any, **_: Any) -> None:
    if REPORT.is_file():
        shutil.copy(REPORT, Path(config["site_dir"]) / "demo-report.html")
    else:
        print("no demo/report.html: run `make demo` first to include the report of the demo")

"""Markdown with untrusted text: escaped, so that keys, captions and paths cannot add markup, links or table cells."""

import html
import re
from collections.abc import Sequence

from auditor.terminal import format_value

MARKUP = re.compile(r"([\\`*_\[\]#|!~@:$])")


def escape_markdown(text: str) -> str:
    return MARKUP.sub(r"\\\1", html.escape(format_value(text), quote=False))


def quote_code(text: str) -> str:
    """Inline code; backticks cannot be escaped inside it."""
    return f"`{format_value(text).replace('`', chr(39)).replace('|', chr(92) + '|')}`"


def build_markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table; cells are Markdown already."""
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]

"""Print lines for people and JSON for machines, with every control character from a corpus escaped.

Keys, captions, paths and messages are untrusted: control characters are shown as `\\x1b`. Everything that the program
prints goes through this module; tables and progress bars are in auditor/console.py.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

import click

# Controls (C0, DEL, C1), line and paragraph separators, marks that reorder text, lone surrogates.
CONTROLS_BEYOND_C0 = "\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
UNSAFE_CHARACTERS = re.compile(f"[\x00-\x1f{CONTROLS_BEYOND_C0}]")
UNSAFE_IN_JSON = re.compile(f"[{CONTROLS_BEYOND_C0}]")


def format_value(value: Any) -> str:
    """Format a value on one line: four significant digits, no control characters."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    return escape_controls(str(value).replace("\n", " "))


def escape_controls(text: str) -> str:
    """Replace control characters, and marks that reorder text, by escapes such as `\\x1b`."""
    return text if text.isprintable() else UNSAFE_CHARACTERS.sub(lambda match: ascii(match[0])[1:-1], text)


def print_line(text: str, *, err: bool = False) -> None:
    click.echo(format_value(text), err=err)


def print_lines(text: str) -> None:
    """Print several lines that the program has laid out itself."""
    for line in text.split("\n"):
        print_line(line)


def print_json(value: Any) -> None:
    click.echo(to_json(value))


def to_json(value: Any) -> str:
    """Strict JSON: dates and paths as text, NaN as null, control characters as \\u009b."""
    text = json.dumps(replace_nonfinite(value), indent=2, default=str, ensure_ascii=False)
    return UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def replace_nonfinite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): replace_nonfinite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [replace_nonfinite(v) for v in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:  # a NumPy scalar
        return replace_nonfinite(value.item())
    return value


def neutralize_formula(value: Any) -> Any:
    """Prefix an apostrophe to a cell that a spreadsheet would run as a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value

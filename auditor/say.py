"""Lines for people and JSON for machines, in which nothing that came from a corpus reaches the terminal as a command.

Keys, captions, paths and messages are untrusted: control characters are shown escaped (`\\x1b`). Everything that the
program prints goes through here; tables and progress are in auditor/console.py.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

import click

# Controls (C0, DEL, C1), line and paragraph separators, marks that reorder text, lone surrogates.
_BEYOND = "\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_UNSAFE, _LEFT_BY_JSON = re.compile(f"[\x00-\x1f{_BEYOND}]"), re.compile(f"[{_BEYOND}]")


def plain(value: Any) -> str:
    """A value as people read it, in one line: four significant digits, no control characters."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    return escaped(str(value).replace("\n", " "))


def escaped(text: str) -> str:
    """The text with what a terminal would obey, or that would turn the order of letters around, shown as `\\x1b`."""
    return text if text.isprintable() else _UNSAFE.sub(lambda found: ascii(found[0])[1:-1], text)


def say(text: str, *, err: bool = False) -> None:
    """One line for people."""
    click.echo(plain(text), err=err)


def say_lines(text: str) -> None:
    """Several lines that the program itself has laid out."""
    for line in text.split("\n"):
        say(line)


def say_json(value: Any) -> None:
    click.echo(as_json(value))


def as_json(value: Any) -> str:
    """JSON that every reader takes and no terminal obeys: dates and paths as text, NaN as null, controls as \\u009b."""
    text = json.dumps(_finite(value), indent=2, default=str, ensure_ascii=False)
    return _LEFT_BY_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:  # a NumPy scalar
        return _finite(value.item())
    return value


def inert(value: Any) -> Any:
    """A cell that no spreadsheet takes for a formula: one that begins like it gets an apostrophe before it."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value

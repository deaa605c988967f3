"""What people and machines see: tables, JSON and CSV from the same rows, and progress on long work.

Captions and keys are untrusted: they are printed as plain text, never as rich markup, and without control characters.
"""

import csv
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

Row = Mapping[str, Any]
WIDTH = 160  # of a table in a file or a pipe, where nobody has said how wide a line may be


def plain(value: Any) -> str:
    """A value as people read it: four significant digits, no control characters."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(value).replace("\n", " "))


def table(rows: Sequence[Row], title: str | None = None, columns: Sequence[str] | None = None) -> None:
    """Print rows as a rich table; numbers stand to the right."""
    names = list(columns or (rows[0] if rows else []))
    numeric = {
        name
        for name in names
        if any(isinstance(row.get(name), int | float) for row in rows)
        and not any(isinstance(row.get(name), str) for row in rows)
    }
    shown = Table(title=title, title_justify="left", header_style="bold")
    for name in names:
        shown.add_column(name, justify="right" if name in numeric else "left", overflow="fold")
    for row in rows:
        shown.add_row(*(Text(plain(row.get(name))) for name in names))
    on_paper = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    Console(width=WIDTH if on_paper else None).print(shown)


def as_json(value: Any) -> str:
    """JSON that every reader takes: dates and paths as text, NaN as null."""
    return json.dumps(_finite(value), indent=2, default=str, ensure_ascii=False)


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


def emit(
    rows: Sequence[Row],
    *,
    title: str | None = None,
    json: bool = False,
    csv: bool = False,
    columns: Sequence[str] = (),
) -> None:
    """Write rows in the form that was asked for; a rich table where none was. `columns` are those of no rows."""
    if json:
        click.echo(as_json(list(rows)))
    elif csv:
        write_csv(rows, columns)
    else:
        table(rows, title)


def write_csv(rows: Sequence[Row], columns: Sequence[str] = ()) -> None:
    """A header, of `columns` where there are no rows, and a line for each row."""
    names = list(rows[0]) if rows else list(columns)
    writer = csv.DictWriter(sys.stdout, fieldnames=names, lineterminator="\n")
    if names:
        writer.writeheader()
    writer.writerows([{name: inert(value) for name, value in row.items()} for row in rows])


def inert(value: Any) -> Any:
    """A cell that no spreadsheet takes for a formula: one that begins like it gets an apostrophe before it."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


class Progress:
    """A bar with rate and time left on a terminal, a plain line now and then elsewhere, nothing when quiet."""

    def __init__(self, label: str, total: int | None, unit: str = "pairs", *, quiet: bool = False, every: float = 10.0):
        self.label, self.total, self.unit, self.every = label, total, unit, every
        self.done = 0
        self.notes: dict[str, Any] = {}
        self.started = self.spoke = time.monotonic()
        self.quiet = quiet
        self.bar: Bar | None = None
        if not quiet and sys.stderr.isatty():
            self.bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[notes]}"),
                console=Console(stderr=True),
            )

    def __enter__(self) -> "Progress":
        if self.bar:
            self.bar.start()
            self.task = self.bar.add_task(self.label, total=self.total, rate="", notes="")
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar:
            self.bar.stop()
        elif not self.quiet:
            self._say()

    def rate(self) -> float:
        return self.done / max(time.monotonic() - self.started, 1e-9)

    def advance(self, count: int = 1, **notes: Any) -> None:
        self.done += count
        self.notes.update(notes)
        if self.bar:
            self.bar.update(self.task, completed=self.done, rate=self._rate(), notes=self._notes())
        elif not self.quiet and time.monotonic() - self.spoke > self.every:
            self._say()

    def _rate(self) -> str:
        return f"{self.rate():,.1f} {self.unit}/s"

    def _notes(self) -> str:
        return "  ".join(f"{name} {plain(value)}" for name, value in self.notes.items())

    def _say(self) -> None:
        self.spoke = time.monotonic()
        left = ""
        if self.total and 0 < self.done < self.total:
            left = f", {(self.total - self.done) / self.rate():,.0f} s left"
        of = f" of {self.total:,}" if self.total else ""
        click.echo(f"{self.label}: {self.done:,}{of}, {self._rate()}{left}  {self._notes()}".rstrip(), err=True)

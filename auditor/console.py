"""What people and machines see: tables, JSON and CSV from the same rows, and progress on long work.

Captions and keys are untrusted: they are printed as plain text (auditor/say.py), never as rich markup.
"""

import csv
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from auditor.say import escaped, inert, plain, say, say_json

Row = Mapping[str, Any]
WIDTH = 160  # of a table in a file or a pipe, where nobody has said how wide a line may be


def table(rows: Sequence[Row], title: str | None = None, columns: Sequence[str] | None = None) -> None:
    """Print rows as a rich table; numbers stand to the right."""
    names = list(columns or (rows[0] if rows else []))
    numeric = {
        name
        for name in names
        if any(isinstance(row.get(name), int | float) for row in rows)
        and not any(isinstance(row.get(name), str) for row in rows)
    }
    shown = Table(title=Text(plain(title)) if title else None, title_justify="left", header_style="bold")
    for name in names:
        shown.add_column(Text(plain(name)), justify="right" if name in numeric else "left", overflow="fold")
    for row in rows:
        shown.add_row(*(Text(plain(row.get(name))) for name in names))
    on_paper = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    Console(width=WIDTH if on_paper else None).print(shown)


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
        say_json(list(rows))
    elif csv:
        write_csv(rows, columns)
    else:
        table(rows, title)


def write_csv(rows: Sequence[Row], columns: Sequence[str] = ()) -> None:
    """A header, of `columns` where there are no rows, and a line for each row."""
    names = list(rows[0]) if rows else list(columns)
    shown = [[inert(row.get(name)) for name in names] for row in rows]
    if sys.stdout.isatty():
        shown = [[escaped(cell) if isinstance(cell, str) else cell for cell in row] for row in shown]
    writer = csv.writer(sys.stdout, lineterminator="\n")
    if names:
        writer.writerow([escaped(inert(name)) for name in names])
    writer.writerows(shown)


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

    def __exit__(self, error: object = None, *_: object) -> None:
        if self.bar:
            self.bar.stop()
        elif not self.quiet and (self.done or error is None):
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
        say(f"{self.label}: {self.done:,}{of}, {self._rate()}{left}  {self._notes()}".rstrip(), err=True)

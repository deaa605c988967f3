"""Print rows as tables, JSON or CSV, and show the progress of long work.

Captions and keys are untrusted: they are printed as plain text (auditor/terminal.py), never as rich markup.
"""

import csv
import os
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from auditor.terminal import escape_controls, format_value, neutralize_formula, print_json, print_line

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

Row = Mapping[str, Any]
PIPE_WIDTH = 160  # characters of a table in a file or a pipe, which have no width
SHOWS_TQDM = ContextVar("SHOWS_TQDM", default=False)  # for calls from Python: a widget in a notebook


def print_table(rows: Sequence[Row], title: str | None = None, columns: Sequence[str] | None = None) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    names = list(columns or (rows[0] if rows else []))
    numeric = {
        name
        for name in names
        if any(isinstance(row.get(name), int | float) for row in rows)
        and not any(isinstance(row.get(name), str) for row in rows)
    }
    output = Table(title=Text(format_value(title)) if title else None, title_justify="left", header_style="bold")
    for name in names:
        output.add_column(Text(format_value(name)), justify="right" if name in numeric else "left", overflow="fold")
    for row in rows:
        output.add_row(*(Text(format_value(row.get(name))) for name in names))
    is_piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    # in a notebook, rich would show a table of its own instead of printing it
    Console(width=PIPE_WIDTH if is_piped else None, force_jupyter=False).print(output)


def print_rows(
    rows: Sequence[Row], *, title: str | None = None, json: bool = False, csv: bool = False, columns: Sequence[str] = ()
) -> None:
    """Print rows as JSON, CSV or a rich table. `columns` name the columns if there are no rows."""
    if json:
        print_json(list(rows))
    elif csv:
        write_csv(rows, columns)
    else:
        print_table(rows, title)


def write_csv(rows: Sequence[Row], columns: Sequence[str] = ()) -> None:
    """Print a header and one line per row. `columns` name the columns if there are no rows."""
    names = list(rows[0]) if rows else list(columns)
    cells = [[neutralize_formula(row.get(name)) for name in names] for row in rows]
    if sys.stdout.isatty():
        cells = [[escape_controls(cell) if isinstance(cell, str) else cell for cell in row] for row in cells]
    writer = csv.writer(sys.stdout, lineterminator="\n")
    if names:
        writer.writerow([escape_controls(neutralize_formula(name)) for name in names])
    writer.writerows(cells)


class Progress:
    """A progress bar with rate and time left on a terminal, an occasional plain line elsewhere, nothing if quiet."""

    def __init__(self, label: str, total: int | None, unit: str = "pairs", *, quiet: bool = False, every: float = 10.0):
        self.label, self.total, self.unit, self.every = label, total, unit, every
        self.completed = 0
        self.notes: dict[str, Any] = {}
        self.started = self.printed_at = time.monotonic()
        self.quiet = quiet
        self.bar: Bar | None = None
        self.tqdm: Any = None
        if not quiet and SHOWS_TQDM.get():
            with warnings.catch_warnings(action="ignore"):  # that widgets are not installed
                from tqdm.auto import tqdm
            self.tqdm = tqdm(desc=label, total=total, unit=f" {unit}")
        elif not quiet and sys.stderr.isatty():
            self.bar = make_bar()

    def __enter__(self) -> "Progress":
        if self.bar:
            self.bar.start()
            self.task = self.bar.add_task(self.label, total=self.total, rate="", notes="")
        return self

    def __exit__(self, error: object = None, *_: object) -> None:
        if self.bar:
            self.bar.stop()
        elif self.tqdm is not None:  # it is false without a total
            self.tqdm.total = self.total if self.completed else None  # if all was done before, nothing has failed
            self.tqdm.close()
        elif not self.quiet and (self.completed or error is None):
            self._print_status()

    def rate(self) -> float:
        return self.completed / max(time.monotonic() - self.started, 1e-9)

    def advance(self, count: int = 1, **notes: Any) -> None:
        self.completed += count
        self.notes.update(notes)
        if self.bar:
            self.bar.update(self.task, completed=self.completed, rate=self._rate(), notes=self._notes())
        elif self.tqdm is not None:
            self.tqdm.total = self.total
            self.tqdm.set_postfix_str(self._notes(), refresh=False)
            self.tqdm.update(count)
        elif not self.quiet and time.monotonic() - self.printed_at > self.every:
            self._print_status()

    def _rate(self) -> str:
        return f"{self.rate():,.1f} {self.unit}/s"

    def _notes(self) -> str:
        return "  ".join(f"{name} {format_value(value)}" for name, value in self.notes.items())

    def _print_status(self) -> None:
        self.printed_at = time.monotonic()
        time_left = ""
        if self.total and 0 < self.completed < self.total:
            time_left = f", {(self.total - self.completed) / self.rate():,.0f} s left"
        total = f" of {self.total:,}" if self.total else ""
        line = f"{self.label}: {self.completed:,}{total}, {self._rate()}{time_left}  {self._notes()}"
        print_line(line.rstrip(), err=True)


def make_bar() -> "Bar":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[notes]}"),
        console=Console(stderr=True),
    )

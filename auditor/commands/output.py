"""Output that the reading commands share: --json, --csv and --parquet, tables, and notes on stderr."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from auditor.commands.options import add_options, advanced_option, json_option, option
from auditor.errors import AuditorError
from auditor.terminal import print_line, print_lines

if TYPE_CHECKING:
    import pyarrow as pa

    from auditor.python_api import Audit
    from auditor.query.database import AuditDatabase
    from auditor.query.sandbox import Limits
    from auditor.report.source_comparison import SourceComparison

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Output:
    """The form of a command's rows: a table for people unless one of the others is requested."""

    json: bool
    csv: bool
    parquet: str | None

    @property
    def for_machines(self) -> bool:
        return self.json or self.csv or self.parquet is not None

    def show(self, rows: "Rows | pa.Table", title: str | None = None, columns: Sequence[str] | None = None) -> None:
        """Print or write rows. `columns` are shown to people; machines get all columns."""
        from auditor import console

        if self.parquet:
            write_rows_to_parquet(rows, self.parquet)
            if not (self.json or self.csv):
                return
        listed_rows: Rows = rows if isinstance(rows, list) else rows.to_pylist()  # type: ignore[union-attr]
        names = rows.column_names if hasattr(rows, "column_names") else list(listed_rows[0] if listed_rows else ())
        if self.json or self.csv:
            console.print_rows(listed_rows, json=self.json, csv=self.csv, columns=names or columns or ())
        else:
            console.print_table(listed_rows, title, columns or names)


def output_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add --json, --csv, --parquet FILE and --force, which the command receives as one `output`."""

    @wraps(function)
    def run(as_json: bool, as_csv: bool, parquet: str | None, force: bool, **values: Any) -> None:
        if parquet and not force:
            refuse_existing_file(parquet)  # before any work is done
        function(output=Output(as_json, as_csv, parquet), **values)

    options = [
        json_option(),
        option("--csv", "as_csv", is_flag=True, help="Print CSV."),
        option("--parquet", type=click.Path(dir_okay=False), help="Write the rows to a Parquet file."),
        advanced_option("--force", is_flag=True, help="Replace an existing Parquet file."),
    ]
    return add_options(options)(run)  # type: ignore[no-any-return]


def refuse_existing_file(target: str) -> None:
    from auditor.audit_folder.folder import split_target
    from auditor.keep.export_target import ExportError

    folder, name = split_target(target)
    if folder.exists(name):
        raise ExportError(f"{target} exists; --force replaces it")


def open_audit(path: str, corpus: str | None = None) -> "Audit":
    """Open an audit and print its notes on stderr. Queries of our own have no time limit."""
    from auditor.python_api import Audit
    from auditor.query.sandbox import Limits

    audit = Audit(path, corpus, limits=Limits(seconds=None))
    announce_audit(audit)
    return audit


def open_database(path: str, limits: "Limits | None" = None) -> "AuditDatabase":
    """Open an audit as `open_audit` does, without importing all that `Audit` offers: for commands that end at once."""
    from auditor.query.database import AuditDatabase
    from auditor.query.sandbox import Limits

    database = AuditDatabase(path, limits=limits or Limits(seconds=None))
    announce_audit(database)
    return database


def announce_audit(audit: "Audit | AuditDatabase") -> None:
    """Print the notes of an audit on stderr, and close it when the command ends."""
    click.get_current_context().call_on_close(audit.close)
    for note in audit.notes:
        print_line(f"note: {note}", err=True)


def show_sources(sources: "SourceComparison", title: str = "sources of captions") -> None:
    """Print the table of sources, and which one is better; nothing if the corpus has one source."""
    from auditor.console import print_table

    if sources.sources:
        print_table(sources.tabulate(), title)
        print_lines("\n".join(sources.lines()))


def print_notes(*paths: str) -> None:
    """Print the notes of audits that a command reads file by file; the command reports a path that is not an audit."""
    from contextlib import suppress

    from auditor.audit_folder.audit_files import find_audit_files, list_audit_notes

    for path in paths:
        with suppress(AuditorError, OSError):
            for note in list_audit_notes(find_audit_files(path)):
                print_line(f"note: {note}", err=True)


def print_changes(counts: Mapping[str, int], is_list: bool = False) -> None:
    """Say how many captions an export changes and what changes them; nothing if none can change."""
    if counts:
        causes = {
            "edited": "edited by hand",
            "without_weak_parts": "without weak parts",
            "without_preamble": "without a preamble",
        }
        parts = [f"{counts[name]:,} {words}" for name, words in causes.items() if counts[name]]
        note = "; a list of keys or uids cannot hold them" if is_list and parts else ""
        noun = "caption" if counts["changed"] == 1 else "captions"
        print_line(f"{counts['changed']:,} {noun} changed{': ' * bool(parts)}{', '.join(parts)}{note}")


def add_place_columns(columns: Sequence[str], rows: Rows) -> list[str]:
    """Insert source, start and end before the caption if any row has them; a key alone names a medium."""
    names = [name for name in ("caption_source", "start", "end") if name not in columns]
    present = [name for name in names if any(row.get(name) is not None for row in rows)]
    position = list(columns).index("caption") if "caption" in columns else len(columns)
    return [*columns[:position], *present, *columns[position:]]


def write_rows_to_parquet(rows: Any, target: str) -> None:
    import pyarrow as pa

    from auditor.audit_folder.folder import split_target

    folder, name = split_target(target)
    folder.write_table(name, rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(list(rows)))

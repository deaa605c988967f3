"""Output that the reading commands share: --json, --csv and --parquet, tables, and notes on stderr."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from auditor.commands.options import Function, add_options, advanced_option
from auditor.errors import AuditorError
from auditor.terminal import print_line

if TYPE_CHECKING:
    import pyarrow as pa

    from auditor.audit import Audit
    from auditor.query.sandbox import Limits

FORCE = "auditor.force"  # key in the `meta` of a click context


def output_options(function: Function) -> Function:
    """Add --json, --csv, --parquet FILE, and --force, whose value `refuse_existing_file` reads."""
    options = [
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option("--csv", "as_csv", is_flag=True, help="Print CSV."),
        click.option("--parquet", type=click.Path(dir_okay=False), callback=refuse_existing_file,
                     help="Write the rows to a Parquet file."),
        advanced_option("--force", is_flag=True, is_eager=True, expose_value=False, callback=remember_force,
                        help="Replace an existing Parquet file."),
    ]  # fmt: skip
    return add_options(function, options)


def remember_force(context: click.Context, _: click.Parameter, force: bool) -> None:
    context.meta[FORCE] = force


def refuse_existing_file(context: click.Context, _: click.Parameter, target: str | None) -> str | None:
    """Refuse an existing file before any work is done; --force is eager, so it has been read."""
    if target is not None and not context.meta[FORCE]:
        from auditor.audit_folder.folder import split_target
        from auditor.keep.export_target import ExportError

        folder, name = split_target(target)
        if folder.exists(name):
            raise ExportError(f"{target} exists; --force replaces it")
    return target


def open_audit(path: str, corpus: str | None = None, limits: "Limits | None" = None) -> "Audit":
    """Open an audit and print its notes on stderr. Queries of our own have no time limit by default."""
    from auditor.audit import Audit
    from auditor.query.sandbox import Limits

    audit = Audit(path, corpus, limits=limits or Limits(seconds=None))
    click.get_current_context().call_on_close(audit.close)
    for note in audit.notes:
        print_line(f"note: {note}", err=True)
    return audit


def print_notes(*paths: str) -> None:
    """Print the notes of audits that a command reads file by file; the command reports a path that is not an audit."""
    from contextlib import suppress

    from auditor.audit_folder.audit_files import find_audit_files, list_audit_notes

    for path in paths:
        with suppress(AuditorError, OSError):
            for note in list_audit_notes(find_audit_files(path)):
                print_line(f"note: {note}", err=True)


def show_rows(
    rows: "Sequence[Mapping[str, Any]] | pa.Table",
    *,
    title: str | None = None,
    as_json: bool = False,
    as_csv: bool = False,
    parquet: str | None = None,
    columns: Sequence[str] | None = None,
) -> None:
    """Print or write rows in the requested form. `columns` are shown to people; machines get all columns."""
    from auditor import console

    if parquet:
        write_rows_to_parquet(rows, parquet)
        if not (as_json or as_csv):
            return
    listed_rows: Sequence[Mapping[str, Any]] = rows if isinstance(rows, list) else rows.to_pylist()  # type: ignore[union-attr]
    all_columns: Sequence[str] = (
        rows.column_names if hasattr(rows, "column_names") else list(listed_rows[0] if listed_rows else ())
    )
    if as_json or as_csv:
        console.print_rows(listed_rows, json=as_json, csv=as_csv, columns=all_columns or columns or ())
    else:
        console.print_table(listed_rows, title, columns or all_columns)


def add_span_columns(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Insert the columns start and end before the caption if any row has a span; a key alone names a whole video."""
    timed = any(row.get("start") is not None for row in rows) and not {"start", "end"} & set(columns)
    position = list(columns).index("caption") if "caption" in columns else len(columns)
    return [*columns[:position], *(("start", "end") if timed else ()), *columns[position:]]


def write_rows_to_parquet(rows: Any, target: str) -> None:
    """Write a Parquet file atomically."""
    import pyarrow as pa

    from auditor.audit_folder.folder import split_target

    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist([dict(row) for row in rows])
    folder, name = split_target(target)
    folder.write_table(name, table)

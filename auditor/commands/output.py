"""Options and output that the reading commands share: --json, --csv, --parquet, the corpus's place, notes on stderr."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    import pyarrow as pa

    from auditor.query import Audit
    from auditor.sandbox import Limits

Function = TypeVar("Function", bound=Callable[..., Any])
CORPUS_HELP = "Where the corpus is now, if it has moved since the audit."


def output_options(function: Function) -> Function:
    """--json, --csv and --parquet FILE."""
    function = click.option("--parquet", type=click.Path(dir_okay=False), help="Write the rows to a Parquet file.")(
        function
    )
    function = click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")(function)
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def open_audit(path: str, corpus: str | None = None, limits: "Limits | None" = None) -> "Audit":
    """Open an audit and tell on stderr what its reader must know. Our own queries may take as long as they take."""
    from auditor.query import Audit, Limits

    audit = Audit(path, corpus, limits=limits or Limits(seconds=None))
    click.get_current_context().call_on_close(audit.close)
    for note in audit.notes:
        click.echo(f"note: {note}", err=True)
    return audit


def show(
    rows: "Sequence[Mapping[str, Any]] | pa.Table",
    *,
    title: str | None = None,
    as_json: bool = False,
    as_csv: bool = False,
    parquet: str | None = None,
    columns: Sequence[str] | None = None,
) -> None:
    """Rows in the form that was asked for. `columns` are those a person is shown; machines get all."""
    from auditor import console

    if parquet:
        write_parquet(rows, Path(parquet))
    listed: Sequence[Mapping[str, Any]] = rows if isinstance(rows, list) else rows.to_pylist()  # type: ignore[union-attr]
    if as_json or as_csv:
        console.emit(listed, json=as_json, csv=as_csv)
    elif not parquet:
        names = columns or (list(listed[0]) if listed else rows.column_names if hasattr(rows, "column_names") else [])
        console.table(listed, title, names)


def write_parquet(rows: Any, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from auditor.export import ExportError

    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist([dict(row) for row in rows])
    try:
        pq.write_table(table, path, compression="zstd")
    except OSError as error:
        raise ExportError(f"cannot write {path}: {error.strerror or error}") from None

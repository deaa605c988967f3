"""Options and output that the reading commands share: --json, --csv, --parquet, the corpus's place, notes on stderr."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from auditor.errors import AuditorError
from auditor.say import say

if TYPE_CHECKING:
    import pyarrow as pa

    from auditor.audit import Audit
    from auditor.query.sandbox import Limits

Function = TypeVar("Function", bound=Callable[..., Any])
FORCE = "auditor.force"  # in the meta of a command
CORPUS_HELP = "Where the corpus is now, if it has moved since the audit."


def output_options(function: Function) -> Function:
    """--json, --csv and --parquet FILE; its --force is kept from the command, which has no use for it."""
    function = click.option(
        "--force", is_flag=True, is_eager=True, expose_value=False, callback=remember_force,
        help="Replace a Parquet file that exists.",
    )(function)  # fmt: skip
    function = click.option(
        "--parquet", type=click.Path(dir_okay=False), callback=refuse_existing, help="Write the rows to a Parquet file."
    )(function)
    function = click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")(function)
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def remember_force(context: click.Context, _: click.Parameter, force: bool) -> None:
    context.meta[FORCE] = force


def refuse_existing(context: click.Context, _: click.Parameter, target: str | None) -> str | None:
    """Before any work is done: --force, being eager, has been read."""
    if target is not None and not context.meta[FORCE]:
        from auditor.audit_folder.folder import split_target
        from auditor.keep.export_target import ExportError

        folder, name = split_target(target)
        if folder.exists(name):
            raise ExportError(f"{target} exists; --force replaces it")
    return target


class Share(click.ParamType[float]):
    """'2%' and '0.02' -> 0.02. Where a bare 1 may well be meant as a percentage (`small`), it is not taken for all."""

    name = "share"

    def __init__(self, *, small: bool = False) -> None:
        self.small = small

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip()
        percent = text.endswith("%")
        try:
            share = float(text.removesuffix("%")) / (100 if percent else 1)
        except ValueError:
            share = -1.0
        if not 0 <= share <= 1 or (share == 1 and self.small and not percent and text == "1"):
            option = f"{param.opts[0]} " if param else ""
            raise AuditorError(f"{option}{text!r} is not a share: write it like 2% or 0.02")
        return share


SHARE, SMALL_SHARE = Share(), Share(small=True)


def open_audit(path: str, corpus: str | None = None, limits: "Limits | None" = None) -> "Audit":
    """Open an audit and tell on stderr what its reader must know. Our own queries may take as long as they take."""
    from auditor.audit import Audit
    from auditor.query.sandbox import Limits

    audit = Audit(path, corpus, limits=limits or Limits(seconds=None))
    click.get_current_context().call_on_close(audit.close)
    for note in audit.notes:
        say(f"note: {note}", err=True)
    return audit


def tell_notes(*paths: str) -> None:
    """The notes of audits that a command reads file by file; what is no audit it says itself."""
    from contextlib import suppress

    from auditor.audit_folder.audit_files import find_files, notes

    for path in paths:
        with suppress(AuditorError, OSError):
            for note in notes(find_files(path)):
                say(f"note: {note}", err=True)


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
        write_parquet(rows, parquet)
        if not (as_json or as_csv):
            return
    listed: Sequence[Mapping[str, Any]] = rows if isinstance(rows, list) else rows.to_pylist()  # type: ignore[union-attr]
    every: Sequence[str] = rows.column_names if hasattr(rows, "column_names") else list(listed[0] if listed else ())
    if as_json or as_csv:
        console.emit(listed, json=as_json, csv=as_csv, columns=every or columns or ())
    else:
        console.table(listed, title, columns or every)


def with_span(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The columns, and before the caption those of its span where rows have one: their key alone is that of a video."""
    timed = any(row.get("start") is not None for row in rows) and not {"start", "end"} & set(columns)
    at = list(columns).index("caption") if "caption" in columns else len(columns)
    return [*columns[:at], *(("start", "end") if timed else ()), *columns[at:]]


def write_parquet(rows: Any, target: str) -> None:
    """Whole or not at all."""
    import pyarrow as pa

    from auditor.audit_folder.folder import split_target

    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist([dict(row) for row in rows])
    folder, name = split_target(target)
    folder.write_table(name, table)

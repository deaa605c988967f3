"""`auditor join`: add the columns of a file to an audit."""

from typing import Any

import click

from auditor.commands.options import audit_command, json_option, option
from auditor.commands.output import open_audit
from auditor.terminal import print_json, print_line

WHICH = click.Choice(["first", "last"])


@audit_command
@click.argument("table")
@option("--on", type=click.Choice(["uid", "key"]), required=True, help="Column that both tables have.")
@click.option("--prefix", default="", help="Prefix of the new columns, such as aesthetics_.")
@option("--which", type=WHICH, help="Row to use if several rows of TABLE have the same key.")
@option("--force", is_flag=True, help="Replace columns of an earlier join.")
@json_option()
def command(audit: str, table: str, as_json: bool, **options: Any) -> None:
    """Add the columns of TABLE (Parquet or CSV) to AUDIT, where they work like any other column.

    Rows that are not in TABLE get null. Lists and structs are left out.

    \b
    auditor join audit/ aesthetics.parquet --on uid --prefix aesthetics_
    auditor filter audit/ --min aesthetics_score=5 --out kept.npy
    """
    from auditor.query.join_columns import join_columns

    result = join_columns(open_audit(audit).database, table, **options)
    if as_json:
        print_json(result.to_dict())
        return
    counts = f"{result.matched:,} of {result.rows:,} rows, {result.missing:,} without a value"
    print_line(f"{', '.join(result.columns)}: {counts}")
    if result.left_out:
        print_line(f"left out because they are lists, structs or bytes: {', '.join(result.left_out)}")

"""`auditor join`: add the columns of a file to an audit."""

import click

from auditor.commands.output import open_audit
from auditor.terminal import print_json, print_line


@click.command()
@click.argument("audit")
@click.argument("table")
@click.option("--on", type=click.Choice(["uid", "key"]), required=True, help="Column that both tables have.")
@click.option("--prefix", default="", help="Prefix of the new columns, such as aesthetics_.")
@click.option(
    "--which", type=click.Choice(["first", "last"]), help="Row to use if several rows of TABLE have the same key."
)
@click.option("--force", is_flag=True, help="Replace columns of an earlier join.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(audit: str, table: str, on: str, prefix: str, which: str | None, force: bool, as_json: bool) -> None:
    """Add the columns of TABLE (Parquet or CSV) to AUDIT, where they work like any other column.

    Rows that are not in TABLE get null. Lists and structs are left out.

    \b
    auditor join audit/ aesthetics.parquet --on uid --prefix aesthetics_
    auditor filter audit/ --min aesthetics_score=5 --out kept.npy
    """
    from auditor.query.join_columns import join_columns

    result = join_columns(open_audit(audit).database, table, on, prefix=prefix, which=which, force=force)  # type: ignore[arg-type]
    if as_json:
        print_json(result.to_dict())
        return
    print_line(
        f"{', '.join(result.columns)}: {result.matched:,} of {result.rows:,} rows, {result.missing:,} without a value"
    )
    if result.left_out:
        print_line(f"left out because they are lists, structs or bytes: {', '.join(result.left_out)}")

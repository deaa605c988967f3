"""`auditor join`: add the columns of a file to an audit."""

import click

from auditor.commands.output import open_audit
from auditor.say import say, say_json


@click.command()
@click.argument("audit")
@click.argument("table")
@click.option("--on", type=click.Choice(["uid", "key"]), required=True, help="Column that both have.")
@click.option("--prefix", default="", help="Before the name of each new column: aesthetics_")
@click.option(
    "--which", type=click.Choice(["first", "last"]), help="Row that counts where a key stands in several of TABLE."
)
@click.option("--force", is_flag=True, help="Replace columns that were joined before.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(audit: str, table: str, on: str, prefix: str, which: str | None, force: bool, as_json: bool) -> None:
    """Add the columns of TABLE (Parquet or CSV) to AUDIT, where they are columns like any other.

    Rows that TABLE does not know are null. Lists and structs are left out.

    \b
    auditor join audit/ aesthetics.parquet --on uid --prefix aesthetics_
    auditor filter audit/ --min aesthetics_score=5 --out kept.npy
    """
    from auditor.query.join_columns import join

    done = join(open_audit(audit).database, table, on, prefix=prefix, which=which, force=force)  # type: ignore[arg-type]
    if as_json:
        say_json(done.to_dict())
        return
    say(f"{', '.join(done.columns)}: {done.matched:,} of {done.rows:,} rows, {done.missing:,} without a value")
    if done.left_out:
        say(f"left out, being lists, structs or bytes: {', '.join(done.left_out)}")

"""`auditor search`: find the media or captions nearest to a text, a picture or a row."""

import click

from auditor.commands.options import GroupedCommand
from auditor.commands.output import add_span_columns, open_audit, output_options, show_rows


@click.command(cls=GroupedCommand)
@click.argument("audit")
@click.argument("text", required=False)
@click.option("--like", metavar="KEY", help="Search by a row of the audit: its key or uid.")
@click.option("--caption", "caption_index", type=click.IntRange(min=0), help="Index of the caption of --like, from 0.")
@click.option("--image", type=click.Path(exists=True, dir_okay=False), help="Search by a picture.")
@click.option(
    "--over",
    type=click.Choice(["media", "captions"]),
    default="media",
    show_default=True,
    help="Search media or captions.",
)
@click.option("--where", help="Only rows that satisfy this SQL condition.")
@click.option("-n", "count", type=click.IntRange(min=1), default=20, show_default=True, help="Number of rows.")
@output_options
def command(
    audit: str,
    text: str | None,
    like: str | None,
    caption_index: int | None,
    image: str | None,
    over: str,
    where: str | None,
    count: int,
    as_json: bool,
    as_csv: bool,
    parquet: str | None,
) -> None:
    """Find the rows of AUDIT nearest to a text, a picture or another row, exactly, best first.

    A text or picture needs the model of the audit; --like needs only the stored embeddings.

    \b
    auditor search audit/ "a dog on a beach"
    auditor search audit/ --like 000000123 --over captions
    auditor search audit/ --image dog.jpg --where "p_mismatch > 0.5" --json
    """
    matches = open_audit(audit).search(
        text, like=like, caption_index=caption_index, image=image, over=over, where=where, n=count
    )
    columns = add_span_columns(
        ("uid", "key", "caption_index", "caption", "similarity"), [row.to_dict() for row in matches]
    )
    rows = [{name: row.to_dict()[name] for name in columns} for row in matches]
    columns_shown = add_span_columns(("similarity", "key", "caption"), rows)
    show_rows(rows, as_json=as_json, as_csv=as_csv, parquet=parquet, columns=columns_shown)

"""`auditor search`: the nearest media or captions to a text, a picture or a row."""

import click

from auditor.commands.output import open_audit, output_options, show, with_span


@click.command()
@click.argument("audit")
@click.argument("text", required=False)
@click.option("--like", metavar="KEY", help="Search by a row of the audit: its key or uid.")
@click.option("--caption", "caption_index", type=click.IntRange(min=0), help="Which caption of --like, from 0.")
@click.option("--image", type=click.Path(exists=True, dir_okay=False), help="Search by a picture.")
@click.option(
    "--over", type=click.Choice(["media", "captions"]), default="media", show_default=True, help="What to search."
)
@click.option("--where", help="Only rows that meet this SQL condition.")
@click.option("-n", "count", type=click.IntRange(min=1), default=20, show_default=True, help="Rows.")
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
    """The rows of AUDIT that are nearest to a text, a picture or another row; exact, best first.

    A text or picture needs the model of the audit; --like needs only the stored embeddings.

    \b
    auditor search audit/ "a dog on a beach"
    auditor search audit/ --like 000000123 --over captions
    auditor search audit/ --image dog.jpg --where "p_mismatch > 0.5" --json
    """
    found = open_audit(audit).search(
        text, like=like, caption_index=caption_index, image=image, over=over, where=where, n=count
    )
    columns = with_span(("uid", "key", "caption_index", "caption", "similarity"), [row.to_dict() for row in found])
    rows = [{name: row.to_dict()[name] for name in columns} for row in found]
    shown = with_span(("similarity", "key", "caption"), rows)
    show(rows, as_json=as_json, as_csv=as_csv, parquet=parquet, columns=shown)

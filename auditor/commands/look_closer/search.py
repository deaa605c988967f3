"""`auditor search`: find the media or captions nearest to a text, a picture or a row."""

from typing import Any

import click

from auditor.commands.options import audit_command, count_option, option, where_option
from auditor.commands.output import Output, add_place_columns, open_audit, output_options

SIDES = click.Choice(["media", "captions"])


@audit_command
@click.argument("text", required=False)
@option("--like", metavar="KEY", help="Search by a row of the audit: its key or uid.")
@option("--caption", "caption_index", type=click.IntRange(min=0), help="Index of the caption of --like, from 0.")
@option("--image", type=click.Path(exists=True, dir_okay=False), help="Search by a picture.")
@option("--model", metavar="M", help="The model of the audit, if you did not make the audit here.")
@option("--over", type=SIDES, default="media", help="Search media or captions.")
@where_option
@count_option(20)
@output_options
def command(audit: str, count: int, output: Output, **query: Any) -> None:
    """Find the rows of AUDIT nearest to a text, a picture or another row, exactly, best first.

    A text or picture needs the model of the audit; --like needs only the stored embeddings.

    \b
    auditor search audit/ "a dog on a beach"
    auditor search audit/ --like 000000123 --over captions
    auditor search audit/ --image dog.jpg --where "p_mismatch > 0.5" --json
    """
    matches = [match.to_dict() for match in open_audit(audit).search(**query, n=count)]
    columns = add_place_columns(("uid", "key", "caption_index", "caption", "similarity"), matches)
    rows = [{name: match[name] for name in columns} for match in matches]
    output.show(rows, columns=add_place_columns(("similarity", "key", "caption"), rows))

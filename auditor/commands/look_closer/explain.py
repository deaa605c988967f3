"""`auditor explain`: the evidence behind one row."""

import click

from auditor.commands.options import audit_command, count_option, json_option, option
from auditor.commands.output import open_audit
from auditor.terminal import print_json


@audit_command
@click.argument("key")
@option("--caption", "caption_index", type=click.IntRange(min=0), help="Index of the caption, counted from 0.")
@count_option(5, "Number of alternatives.")
@json_option()
def command(audit: str, key: str, caption_index: int | None, count: int, as_json: bool) -> None:
    """Show why the row KEY (or uid) of AUDIT is flagged or not: what fits better, its frames and its duplicates.

    \b
    auditor explain audit/ 000000123
    auditor explain audit/ 000000123 --caption 2 --json
    """
    from auditor.query.explain import print_explanation

    explanation = open_audit(audit).explain(key, caption_index, n=count)
    if as_json:
        print_json(explanation.to_dict())
    else:
        print_explanation(explanation)

"""`auditor towards`: the similarity of each medium to a target set, as a column."""

from typing import Any

import click

from auditor.commands.options import add_options, advanced_option, audit_command, json_option, option
from auditor.commands.output import open_audit
from auditor.terminal import print_json, print_line

target_options = add_options(  # also of jobs/towards.py
    [
        option("--name", help="Name of the target; the column is called towards_NAME [default: the name of OTHER]."),
        option(
            "--norm",
            type=click.Choice(["inf", "2"]),
            default="inf",
            help="inf: the highest cosine to the target. 2: the root mean square of the cosines to all of it.",
        ),
        advanced_option("--model", metavar="M", help="The model of the audit, if it is not where the audit found it."),
        advanced_option("--device", default="auto", help="Device that encodes OTHER: cpu, cuda, ..."),
        option("--force", is_flag=True, help="Compute the column again."),
        json_option(),
    ]
)


@audit_command
@click.argument("other")
@target_options
def command(audit: str, other: str, as_json: bool, **options: Any) -> None:
    """Compare the media of AUDIT with a target set and store the similarity as a column.

    OTHER is an audit by the same model, a corpus or folder of pictures, stored embeddings (a corpus of them, or a .npy
    matrix), or a .txt with a description per line. The column can be used like any other: in queries, limits and ranks.
    If the name of OTHER has the word test, filters that use the column leave out the copies of its media.

    \b
    auditor towards audit/ coco-train/ --name coco
    auditor filter audit/ --recommended --towards towards_coco --keep-share 30% --out kept.npy
    auditor filter audit/ --recommended --min towards_coco=0.6 --out clean/
    """
    column = open_audit(audit).towards(other, quiet=as_json, **options)
    if as_json:
        print_json(column.to_dict())
    else:
        print_line(column.describe())

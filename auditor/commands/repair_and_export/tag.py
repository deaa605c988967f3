"""`auditor tag`: add columns by prompts or by marked examples."""

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from auditor.commands.options import add_options, audit_command, json_option, option
from auditor.commands.output import open_audit
from auditor.terminal import print_json, print_line

if TYPE_CHECKING:
    from auditor.audit_folder.tag_estimates import Tag


def tag_options(function: Callable[..., None]) -> Callable[..., None]:
    options = [
        click.argument("texts", metavar="[PROMPT]...", nargs=-1),
        option("--against", multiple=True, help="Opposite of the prompts [default: a photo]."),
        option("--prompts", "file", metavar="FILE", help="TOML file of prompts, or quality, text or medium."),
        option(
            "--by",
            "examples",
            metavar="EXAMPLES",
            help="Learn from a CSV or Parquet file with uid or key and label (0, 1), or from `reviews`.",
        ),
        option("--name", default="", help="Name of the column, or of several columns together."),
        option("--prefix", default="", help="Prefix of the new columns."),
        option("--model", metavar="M", help="The model of the audit, if you did not make the audit here."),
        option("--force", is_flag=True, help="Replace columns of the same name."),
        json_option(),
    ]

    @wraps(function)
    def run(texts: tuple[str, ...], file: str | None, **values: Any) -> None:
        if texts and file:
            raise click.UsageError("give prompts or --prompts FILE, not both")
        function(prompts=Path(file) if file else texts, **values)

    return add_options(options)(run)  # type: ignore[no-any-return]


@audit_command
@tag_options
def command(audit: str, as_json: bool, examples: str | None, **values: Any) -> None:
    """Add a column for each prompt to AUDIT: the probability that a medium shows what it says.

    The probability is calibrated on the corpus. If the media do not form two groups, there is no estimate, and only
    the column of margins, such as photo_of_a_dog_margin, has values. --by learns from marked rows instead.

    \b
    auditor tag audit/ "a photo with a watermark" "a screenshot of text" --against "a photo"
    auditor tag audit/ --prompts medium
    auditor tag audit/ --by labels.csv --name logo
    auditor filter audit/ --max logo=0.5 --out kept.npy
    """
    print_tags(open_audit(audit).tag(by=examples, **values), as_json)


def print_tags(tags: "Sequence[Tag]", as_json: bool) -> None:
    if as_json:
        print_json([tag.to_dict() for tag in tags])
        return
    for tag in tags:
        print_line(f"{tag.column}: {tag.words()} ({tag.origin})")

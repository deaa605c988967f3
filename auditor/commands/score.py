"""`auditor score`: score an audit again from its stored embeddings."""

from dataclasses import replace
from typing import Any

import click


@click.command()
@click.argument("audit")
@click.option("--model", metavar="CHECKPOINT", help="PAU checkpoint made for the audit's own backbone.")
@click.option("--prototypes", type=int, help="K, where prototypes are fitted.")
@click.option("--target", type=click.Choice(["h", "retrieval"]), help="What u follows, where prototypes are fitted.")
@click.option("--reference", type=int, help="Pairs that every pair is compared with.")
@click.option("--near-duplicate", type=float, help="Cosine of near-duplicates.")
@click.option(
    "--keep-duplicate",
    metavar="COLUMN",
    help="Which of a group of duplicates stays: first, pixels, or a column such as media_size or sharpness.",
)
@click.option(
    "--ambiguous-top",
    type=click.FloatRange(0, 1, max_open=True),
    help="Flag this share as ambiguous; 0: what fits a fifth of the corpus or says nothing.",
)
@click.option("--refit", is_flag=True, help="Fit everything again on all shards of an audit that was extended.")
@click.option("--seed", type=int, help="Of every random choice.")
@click.option("--quiet", is_flag=True, help="No progress.")
@click.option("--json", "as_json", is_flag=True, help="The summary as JSON.")
def command(audit: str, model: str | None, refit: bool, quiet: bool, as_json: bool, **settings: Any) -> None:
    """Score AUDIT again from its stored embeddings alone: another PAU head, more prototypes, another reference.

    What is not given stays as it was when the audit was scored last.

    \b
    auditor score audit --model my-pau/best
    """
    from auditor.run.outcome import report_outcome
    from auditor.run.rescore import rescore, settings_of

    config = replace(settings_of(audit), **{name: value for name, value in settings.items() if value is not None})
    report_outcome(audit, rescore(audit, model, config, refit=refit, quiet=quiet), as_json=as_json)

"""`auditor score`: score an audit again from its stored embeddings."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from auditor.score.duplicate_search import Best


@click.command()
@click.argument("audit")
@click.option("--model", metavar="CHECKPOINT", help="PAU checkpoint made for the audit's own backbone.")
@click.option("--prototypes", default=8, show_default=True, help="K, where prototypes are fitted.")
@click.option("--reference", default=4096, show_default=True, help="Pairs that every pair is compared with.")
@click.option("--near-duplicate", type=float, help="Cosine of near-duplicates; measured by default.")
@click.option(
    "--keep-duplicate",
    type=click.Choice(["first", "pixels", "media_size"]),
    default="first",
    show_default=True,
    help="Which of a group of duplicates stays.",
)
@click.option("--seed", default=0, show_default=True, help="Of every random choice.")
@click.option("--quiet", is_flag=True, help="No progress.")
@click.option("--json", "as_json", is_flag=True, help="The summary as JSON.")
def command(
    audit: str,
    model: str | None,
    prototypes: int,
    reference: int,
    near_duplicate: float | None,
    keep_duplicate: "Best",
    seed: int,
    quiet: bool,
    as_json: bool,
) -> None:
    """Score AUDIT again from its stored embeddings alone: another PAU head, more prototypes, another reference.

    \b
    auditor score audit --model my-pau/best
    """
    from auditor.run.outcome import report_outcome
    from auditor.run.rescore import rescore
    from auditor.score.corpus_statistics import ScoreConfig

    config = ScoreConfig(
        reference=reference,
        prototypes=prototypes,
        near_duplicate=near_duplicate,
        keep_duplicate=keep_duplicate,
        seed=seed,
    )
    report_outcome(audit, rescore(audit, model, config, quiet=quiet), as_json=as_json)

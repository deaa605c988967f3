"""`auditor fit`: fits PAU prototypes on the stored embeddings of an audit and saves them as a checkpoint."""

from typing import Any

import click


@click.command()
@click.argument("audit")
@click.option("--out", required=True, type=click.Path(file_okay=False), help="Folder of the new checkpoint.")
@click.option(
    "--recipe",
    type=click.Choice(["corpus", "paper"]),
    default="corpus",
    show_default=True,
    help="Compute the target of u over the whole corpus, or over random batches as in the paper.",
)
@click.option(
    "--target",
    type=click.Choice(["h", "retrieval"]),
    help="What u follows: h (mean similarity), or how much of the corpus fits [default: retrieval; recipe paper: h].",
)
@click.option(
    "--prototypes", default=8, show_default=True, type=click.IntRange(1), help="Number of prototypes (K) per modality."
)
@click.option(
    "--init",
    default="xavier",
    show_default=True,
    help="Initialization: xavier, kaiming_uniform, kaiming_normal or orthogonal.",
)
@click.option("--evidence", default="exp", show_default=True, help="Evidence function: exp, softplus or relu.")
@click.option("--tau", default=5.0, show_default=True, help="Temperature of the exponential evidence.")
@click.option(
    "--scale",
    default=100.0,
    show_default=True,
    help="Factor by which cosines are multiplied before they become evidence.",
)
@click.option(
    "--pairs",
    default=200_000,
    show_default=True,
    type=click.IntRange(1),
    help="Fit on at most this many pairs of each kind of medium.",
)
@click.option("--seed", default=0, show_default=True, help="Random seed.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    audit: str, out: str, recipe: Any, target: Any, pairs: int, seed: int, as_json: bool, **head_settings: Any
) -> None:
    """Fit PAU prototypes on the stored embeddings of AUDIT; the encoders do not change.

    Use the result with `auditor score AUDIT --model DIR` or for any audit with the same encoders.

    \b
    auditor fit audit --out my-head
    auditor fit audit --out my-head --target h --prototypes 32
    """
    from auditor.audit_folder.folder import Folder
    from auditor.commands.output import print_notes
    from auditor.console import print_rows
    from auditor.score.fit_audit import fit_audit

    print_notes(audit)
    rows = fit_audit(Folder(audit), out, head_settings, recipe=recipe, target=target, pairs=pairs, seed=seed)
    title = f"{head_settings['prototypes']} prototypes per modality, saved in {out}"
    print_rows(rows, title=title, json=as_json)

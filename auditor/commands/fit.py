"""`auditor fit`: prototypes learned on the stored embeddings of an audit, saved as a PAU checkpoint."""

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from model.fit_prototypes import Measure
    from model.prototypes import PrototypeHead


@click.command()
@click.argument("audit")
@click.option("--out", required=True, type=click.Path(file_okay=False), help="Folder of the new checkpoint.")
@click.option(
    "--recipe", type=click.Choice(["corpus", "paper"]), default="corpus", show_default=True, help="How h is taken."
)
@click.option(
    "--target",
    type=click.Choice(["h", "retrieval"]),
    help="What u follows: h (the mean similarity; default of recipe paper), or how much of the corpus fits (else).",
)
@click.option("--prototypes", default=8, show_default=True, type=click.IntRange(1), help="K, per modality.")
@click.option(
    "--init", default="xavier", show_default=True, help="xavier, kaiming_uniform, kaiming_normal, orthogonal."
)
@click.option("--evidence", default="exp", show_default=True, help="exp, softplus or relu.")
@click.option("--tau", default=5.0, show_default=True, help="Temperature of exponential evidence.")
@click.option("--scale", default=100.0, show_default=True, help="Factor of cosines before they become evidence.")
@click.option(
    "--pairs",
    default=200_000,
    show_default=True,
    type=click.IntRange(1),
    help="Of each kind of medium, at most.",
)
@click.option("--seed", default=0, show_default=True, help="Of every random choice.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    audit: str, out: str, recipe: Any, target: Any, pairs: int, seed: int, as_json: bool, **head_settings: Any
) -> None:
    """Fit PAU prototypes on the stored embeddings of AUDIT; the encoders stay as they are.

    Use the result with `auditor score AUDIT --model DIR` or for any audit with the same encoders.

    \b
    auditor fit audit --out my-head
    auditor fit audit --out my-head --target h --prototypes 32
    """
    import torch

    from auditor.audit_folder.audit_files import swept_shards
    from auditor.audit_folder.folder import Folder
    from auditor.audit_folder.manifest import Manifest
    from auditor.commands.output import tell_notes
    from auditor.console import emit
    from auditor.score.pair_sample import count_pairs, draw_pairs, to_fit, vectors_to_fit
    from model.checkpoint import save_checkpoint
    from model.fit_prototypes import fit_prototypes, measure_of
    from model.prototypes import HeadConfig

    tell_notes(audit)
    folder = Folder(audit)
    manifest = Manifest.load(folder)
    config = HeadConfig(dim=int(manifest.model["dim"]), **head_settings)
    counts = count_pairs(folder, swept_shards(folder))
    drawn = draw_pairs(folder, counts, to_fit(pairs), seed)
    visual, text = (torch.from_numpy(vectors) for vectors in vectors_to_fit(drawn))
    scale = manifest.model.get("logit_scale")
    target = target or ("h" if recipe == "paper" else "retrieval")
    head = fit_prototypes(visual, text, config, recipe=recipe, target=target, logit_scale=scale, seed=seed)
    rows = describe(head, visual, text, measure_of(target, scale), "h" if target == "h" else "log perplexity")
    save_checkpoint(
        out,
        head,
        backbone_spec=manifest.model["spec"],
        backbone_print=manifest.model["fingerprint"],
        extra={"recipe": recipe, "target": target, "seed": seed, "fitted_on": folder.url, "fit": rows},
    )
    emit(rows, title=f"{config.prototypes} prototypes per modality, saved in {out}", json=as_json)


def describe(head: "PrototypeHead", visual: Any, text: Any, measure: "Measure", name: str) -> list[dict[str, Any]]:
    """One row per modality: does u follow its target, does it spread, are its prototypes different ones."""
    import torch.nn.functional as F

    from model.fit_prototypes import agreement
    from model.prototypes import prototype_overlap

    visual, text = F.normalize(visual, dim=-1), F.normalize(text, dim=-1)
    sides = [
        ("visual", head.uncertainty_visual(visual), measure(visual, text), head.text),
        ("text", head.uncertainty_text(text), measure(text, visual), head.visual),
    ]
    rows = []
    for modality, u, followed, bank in sides:
        found = agreement(u, followed)
        rows.append(
            {
                "modality": modality,
                "instances": len(u),
                f"correlation of u with {name}": found.pearson,
                "u at 5%": found.low,
                "u at 50%": found.median,
                "u at 95%": found.high,
                "mean |cos| of prototypes": prototype_overlap(bank),
            }
        )
    return rows

"""Prototypes fitted on the stored embeddings of an audit, and their checkpoint: the work of `auditor fit`."""

from typing import Any

import torch
import torch.nn.functional as F

from auditor.audit_folder.audit_files import find_swept_shards
from auditor.audit_folder.folder import Folder
from auditor.audit_folder.manifest import Manifest
from auditor.score.pair_sample import KINDS, SampleRequest, count_encoded, draw_pairs, stack_vectors
from auditor.score.score_config import HeadFitConfig
from model.checkpoint import save_checkpoint
from model.fit_prototypes import Measure, Target, choose_target_measure, fit_prototypes, measure_uncertainty_fit
from model.prototypes import HeadConfig, PrototypeHead, compute_prototype_overlap


def fit_audit(folder: Folder, out: str, config: HeadFitConfig) -> list[dict[str, Any]]:
    """Fit prototypes on the stored embeddings, save the checkpoint in `out`, and describe the fit."""
    manifest = Manifest.load(folder)
    dim = int(manifest.model["dim"])
    head_config = HeadConfig(dim, config.prototypes, config.init, config.evidence, config.tau, config.scale)
    counts = count_encoded(folder, find_swept_shards(folder))
    requests = [SampleRequest(kind, config.pairs, frames=False) for kind in KINDS]
    samples = draw_pairs(folder, counts, requests, config.seed)
    visual, text = (torch.from_numpy(vectors) for vectors in stack_vectors(samples))
    scale = manifest.model.get("logit_scale")
    target: Target = config.target or ("h" if config.recipe == "paper" else "retrieval")
    head = fit_prototypes(
        visual, text, head_config, recipe=config.recipe, target=target, logit_scale=scale, seed=config.seed
    )
    rows = describe_fit(head, visual, text, target, choose_target_measure(target, scale))
    save_checkpoint(
        out,
        head,
        backbone_spec=manifest.model["spec"],
        backbone_print=manifest.model["fingerprint"],
        extra={"recipe": config.recipe, "target": target, "seed": config.seed, "fitted_on": folder.url, "fit": rows},
    )
    return rows


def describe_fit(
    head: PrototypeHead, visual: torch.Tensor, text: torch.Tensor, target: Target, measure: Measure
) -> list[dict[str, Any]]:
    """One row per modality: how well u follows its target, how much u varies, and how similar the prototypes are."""
    target_name = "h" if target == "h" else "log perplexity"
    visual, text = F.normalize(visual, dim=-1), F.normalize(text, dim=-1)
    u_visual, u_text = head.uncertainty_visual(visual), head.uncertainty_text(text)
    modalities = [
        ("visual", u_visual, measure_uncertainty_fit(u_visual, measure(visual, text)), head.text),
        ("text", u_text, measure_uncertainty_fit(u_text, measure(text, visual)), head.visual),
    ]
    return [
        {
            "modality": modality,
            "instances": len(u),
            f"correlation of u with {target_name}": fit.pearson,
            "u at 5%": fit.low,
            "u at 50%": fit.median,
            "u at 95%": fit.high,
            "mean |cos| of prototypes": compute_prototype_overlap(bank),
        }
        for modality, u, fit, bank in modalities
    ]

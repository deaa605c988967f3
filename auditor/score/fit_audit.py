"""Prototypes fitted on the stored embeddings of an audit, and their checkpoint: the work of `auditor fit`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from auditor.audit_folder.audit_files import find_swept_shards
from auditor.audit_folder.folder import Folder
from auditor.audit_folder.manifest import Manifest
from auditor.score.pair_sample import KINDS, EncodedPairs, NothingEncodedError, SampleRequest, count_encoded, draw_pairs
from auditor.score.score_config import HeadFitConfig
from auditor.vectors import Floats
from model.checkpoint import save_checkpoint
from model.fit_prototypes import Measure, Target, choose_target_measure, fit_prototypes, measure_uncertainty_fit
from model.prototypes import HeadConfig, PrototypeHead, compute_prototype_overlap


def list_fit_samples(limit: int) -> list[SampleRequest]:
    """The samples that prototypes are fitted on: at most `limit` random pairs of each kind."""
    return [SampleRequest(kind, limit, frames=False) for kind in KINDS]


def stack_vectors(samples: Sequence[EncodedPairs | None]) -> tuple[Floats, Floats]:
    """The vectors of the media and of the captions of all samples."""
    pairs = [sample for sample in samples if sample is not None]
    if not pairs:
        raise NothingEncodedError("no pair of this corpus could be encoded, so there is nothing to fit or score")
    return np.concatenate([sample.visual for sample in pairs]), np.concatenate([sample.text for sample in pairs])


def fit_audit(folder: Folder, out: str, config: HeadFitConfig) -> list[dict[str, Any]]:
    """Fit prototypes on the stored embeddings, save the checkpoint in `out`, and describe the fit."""
    manifest = Manifest.load(folder)
    dim = int(manifest.model["dim"])
    head_config = HeadConfig(dim, config.prototypes, config.init, config.evidence, config.tau, config.scale)
    counts = count_encoded(folder, find_swept_shards(folder))
    samples = draw_pairs(folder, counts, list_fit_samples(config.pairs), config.seed)
    visual, text = (torch.from_numpy(vectors) for vectors in stack_vectors(samples))
    scale = manifest.model.get("logit_scale")
    target: Target = config.target or ("h" if config.recipe == "paper" else "retrieval")
    head = fit_prototypes(
        visual, text, head_config, recipe=config.recipe, target=target, logit_scale=scale, seed=config.seed
    )
    target_name = "h" if target == "h" else "log perplexity"
    rows = describe_fit(head, visual, text, choose_target_measure(target, scale), target_name)
    save_checkpoint(
        out,
        head,
        backbone_spec=manifest.model["spec"],
        backbone_print=manifest.model["fingerprint"],
        extra={"recipe": config.recipe, "target": target, "seed": config.seed, "fitted_on": folder.url, "fit": rows},
    )
    return rows


def describe_fit(
    head: PrototypeHead, visual: torch.Tensor, text: torch.Tensor, measure: Measure, target_name: str
) -> list[dict[str, Any]]:
    """One row per modality: how well u follows its target, how much u varies, and how similar the prototypes are."""
    visual, text = F.normalize(visual, dim=-1), F.normalize(text, dim=-1)
    modalities = [
        ("visual", head.uncertainty_visual(visual), measure(visual, text), head.text),
        ("text", head.uncertainty_text(text), measure(text, visual), head.visual),
    ]
    rows = []
    for modality, u, target, bank in modalities:
        fit = measure_uncertainty_fit(u, target)
        rows.append(
            {
                "modality": modality,
                "instances": len(u),
                f"correlation of u with {target_name}": fit.pearson,
                "u at 5%": fit.low,
                "u at 50%": fit.median,
                "u at 95%": fit.high,
                "mean |cos| of prototypes": compute_prototype_overlap(bank),
            }
        )
    return rows

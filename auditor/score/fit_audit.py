"""Prototypes fitted on the stored embeddings of an audit, and their checkpoint: the work of `auditor fit`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from auditor.audit_folder.audit_files import find_swept_shards
from auditor.audit_folder.folder import Folder
from auditor.audit_folder.manifest import Manifest
from auditor.score.pair_sample import (
    KINDS,
    EncodedPairs,
    NothingEncodedError,
    SampleRequest,
    count_encoded,
    draw_pairs,
)
from auditor.score.prototype_uncertainty import PrototypeBanks
from auditor.score.score_config import HeadFitConfig, ScoreConfig
from auditor.score.statistics.ambiguity import measure_vagueness
from auditor.vectors import MediaVectors
from model.checkpoint import save_checkpoint
from model.fit_prototypes import (
    Target,
    compute_media_uncertainty,
    fit_prototypes,
    measure_target,
    measure_uncertainty_fit,
)
from model.prototypes import HeadConfig, PrototypeHead, compute_prototype_overlap
from model.retrieval_target import FitPairs

FIT_CLIPS = 2048  # clips to fit on: their frames take memory


def request_fit_pairs(count: int) -> list[SampleRequest]:
    """Requests for the pairs that prototypes are fitted on: images first, as `FitPairs` needs it."""
    return [SampleRequest(kind, min(count, FIT_CLIPS) if kind == "video" else count) for kind in KINDS]


def stack_fit_pairs(samples: Sequence[EncodedPairs | None]) -> FitPairs:
    """The samples of `request_fit_pairs` as one."""
    parts = [sample for sample in samples if sample is not None]
    if not parts:
        raise NothingEncodedError("no pair of this corpus could be encoded, so there is nothing to fit or score")
    visual, text, groups = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("visual", "text", "group")
    )
    vagueness = measure_vagueness([caption for part in parts for caption in part.captions], groups)
    clips = [
        None if part is None else torch.from_numpy(part) for part in (parts[-1].media.frames, parts[-1].media.mask)
    ]
    return FitPairs(*map(torch.from_numpy, (visual, text)), *clips, *map(torch.from_numpy, (groups, vagueness)))


def fit_sampled_prototypes(
    samples: Sequence[EncodedPairs | None], config: ScoreConfig, scale: float | None
) -> PrototypeHead:
    """Fit the prototypes of an audit on the samples of `request_fit_pairs`."""
    pairs = stack_fit_pairs(samples)
    settings = HeadConfig(dim=pairs.visual.shape[1], prototypes=config.prototypes, clip_evidence="frames")
    with use_one_thread():
        return fit_prototypes(pairs, settings, target=config.target, logit_scale=scale, seed=config.seed)


@contextmanager
def use_one_thread() -> Iterator[None]:
    """Limit torch to one thread: for these small products, a second one mostly waits, at full load."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def extract_banks(head: PrototypeHead) -> PrototypeBanks:
    visual, text = (bank.detach().float().cpu().numpy() for bank in (head.visual, head.text))
    return PrototypeBanks(visual, text, asdict(head.config), head.fingerprint)


def rebuild_head(banks: PrototypeBanks) -> PrototypeHead:
    head = PrototypeHead(HeadConfig(**banks.settings))
    head.load_state_dict({"visual": torch.from_numpy(banks.visual), "text": torch.from_numpy(banks.text)})
    return head.eval().requires_grad_(False)


def compute_uncertainty_of_media(head: PrototypeHead, media: MediaVectors) -> torch.Tensor:
    """u (N,) of images or clips."""
    device = head.visual.device
    clips = (None if array is None else torch.from_numpy(array).to(device) for array in (media.frames, media.mask))
    return head.uncertainty_visual(torch.from_numpy(media.visual).to(device), *clips)


def fit_audit(folder: Folder, out: str, config: HeadFitConfig) -> list[dict[str, Any]]:
    """Fit prototypes on the stored embeddings, save the checkpoint in `out`, and describe the fit."""
    manifest = Manifest.load(folder)
    dim = int(manifest.model["dim"])
    head_config = HeadConfig(
        dim, config.prototypes, config.init, config.evidence, config.tau, config.scale, clip_evidence="frames"
    )
    counts = count_encoded(folder, find_swept_shards(folder))
    pairs = stack_fit_pairs(draw_pairs(folder, counts, request_fit_pairs(config.pairs), config.seed))
    scale = manifest.model.get("logit_scale")
    target: Target = config.target or ("h" if config.recipe == "paper" else "retrieval")
    head = fit_prototypes(pairs, head_config, recipe=config.recipe, target=target, logit_scale=scale, seed=config.seed)
    rows = describe_fit(head, pairs, target, scale)
    save_checkpoint(
        out,
        head,
        backbone_spec=manifest.model["spec"],
        backbone_print=manifest.model["fingerprint"],
        extra={"recipe": config.recipe, "target": target, "seed": config.seed, "fitted_on": folder.url, "fit": rows},
    )
    return rows


def describe_fit(head: PrototypeHead, pairs: FitPairs, target: Target, scale: float | None) -> list[dict[str, Any]]:
    """One row per modality: how well u follows its target, how much u varies, and how similar the prototypes are."""
    target_name = "h" if target == "h" else "its target"
    of_media, of_captions = measure_target(pairs, target, scale, torch.Generator().manual_seed(0))
    u_visual, u_text = compute_media_uncertainty(head, pairs), head.uncertainty_text(pairs.text)
    modalities = [
        ("visual", u_visual, measure_uncertainty_fit(u_visual, of_media), head.text),
        ("text", u_text, measure_uncertainty_fit(u_text, of_captions), head.visual),
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

"""Fit prototypes on stored embeddings with frozen encoders: in seconds, without labels, for any open_clip model.

`fit_prototypes(visual, text)` has two recipes, which minimize L_uct (equation 6) and L_div (equation 7) with Adam:

- "corpus" (default): the target of u is computed over the *whole* corpus of the other modality, standardized and mapped
  to (0, 1) by a sigmoid: the paper's h (mean similarity), or the log-perplexity of retrieval. It works with a modality
  gap (CLIP), without one, and with negative mean similarities (SigLIP).
- "paper", for comparison: h and lambda of random batches. If mean similarities are close to zero, lambda explodes.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from model.losses import compute_mean_similarities, diversity_loss, uncertainty_loss
from model.model_errors import ModelError
from model.prototype_initialization import PrototypeInitializer, choose_initial_prototypes
from model.prototypes import HeadConfig, PrototypeHead
from model.similarity import compute_log_perplexity

Recipe = Literal["corpus", "paper"]
Target = Literal["h", "retrieval"]
Loss = Callable[[Tensor, Tensor], Tensor]  # (rows of media, rows of captions) -> loss
Measure = Callable[[Tensor, Tensor], Tensor]  # instances (N, D), other modality (M, D) -> (N,)


INITIALIZATION_ROWS = 20_000  # instances for the initialization: many more than embeddings have dimensions


class FitError(ModelError):
    """Embeddings or settings that prototypes cannot be fitted with."""


@dataclass(frozen=True)
class FitConfig:
    """Training settings of the prototypes; the defaults are for recipe "corpus"."""

    steps: int = 100
    batch: int = 2048
    learning_rate: float = 2e-3
    diversity_weight: float = 0.02  # of L_div; L_uct has weight 1
    max_instances: int = 200_000  # of each modality to train on; targets are computed over all


# The weights of the released program, 100 for the mean of both L_uct (here their sum, so 50) and 0.015 * 100^2 for
# L_div, divided by 50.
PAPER = FitConfig(steps=600, batch=256, learning_rate=1e-2, diversity_weight=3.0)


def fit_prototypes(
    visual: Tensor,  # (N, D)
    text: Tensor,  # (M, D)
    config: HeadConfig | None = None,
    *,
    recipe: Recipe = "corpus",
    target: Target = "h",
    logit_scale: float | None = None,
    seed: int = 0,
    settings: FitConfig | None = None,
) -> PrototypeHead:
    """Fit a head whose u follows `target` on these embeddings. Media and captions need not be pairs.

    `logit_scale` is the backbone's inverse temperature, which target "retrieval" needs. Recipe "corpus" may raise
    `config.scale` and set its centers if the geometry needs it: see the returned head.
    """
    config = config or HeadConfig(dim=visual.shape[-1])
    visual, text = normalize_embeddings(visual, "media", config.dim), normalize_embeddings(text, "captions", config.dim)
    if recipe not in ("corpus", "paper"):
        raise FitError(f"recipe must be corpus or paper, not {recipe!r}")
    if recipe == "paper" and target != "h":
        raise FitError("recipe paper is defined for target h only; use recipe corpus")
    with torch.enable_grad():
        if recipe == "paper":
            return fit_like_paper(visual, text, config, settings or PAPER, seed)
        measure = choose_target_measure(target, logit_scale)
        return fit_to_corpus(visual, text, config, settings or FitConfig(), seed, measure)


def choose_target_measure(target: Target, logit_scale: float | None) -> Measure:
    if target == "h":
        return measure_corpus_similarity
    if target != "retrieval":
        raise FitError(f"target must be h or retrieval, not {target!r}")
    if logit_scale is None or not logit_scale > 0:
        raise FitError("target retrieval needs the logit scale of the model that made the embeddings")
    return partial(compute_log_perplexity, scale=logit_scale)


def normalize_embeddings(embeddings: Tensor, modality: str, dim: int) -> Tensor:
    if embeddings.ndim != 2 or embeddings.shape[1] != dim:
        raise FitError(f"embeddings of {modality} must be of shape (N, {dim}), not {tuple(embeddings.shape)}")
    if len(embeddings) == 0:
        raise FitError(f"there are no embeddings of {modality} to fit prototypes on")
    embeddings = embeddings.detach().float()
    if not bool(torch.isfinite(embeddings).all()):
        raise FitError(f"embeddings of {modality} contain NaN or infinity")
    return F.normalize(embeddings, dim=-1)


def measure_corpus_similarity(embeddings: Tensor, candidates: Tensor) -> Tensor:
    """h of equation 6 (N,): mean cosine of unit vectors (N, D) to all unit vectors (M, D) of the other modality."""
    return embeddings @ candidates.mean(dim=0, dtype=torch.float64).to(embeddings.dtype)


def standardize_target(values: Tensor) -> Tensor:
    """Values (N,) with mean 0 and standard deviation 1 over the corpus; all zero if all are equal."""
    centered = values.double() - values.double().mean()
    deviation = centered.square().mean().sqrt()
    if float(deviation) < 1e-7:
        return torch.zeros_like(values)
    # Beyond four deviations the sigmoid is flat, and outliers would only bias the regression.
    return (centered / deviation).clamp(-4.0, 4.0).to(values.dtype)


def fit_to_corpus(
    visual: Tensor, text: Tensor, config: HeadConfig, settings: FitConfig, seed: int, measure: Measure
) -> PrototypeHead:
    """Recipe "corpus": initialization by regression, then Adam on L_uct + L_div."""
    generator = torch.Generator().manual_seed(seed)
    linear = measure is measure_corpus_similarity
    # Perplexity is expensive, so it is computed for fewer instances.
    size = settings.max_instances if linear else min(settings.max_instances, INITIALIZATION_ROWS)

    def draw(embeddings: Tensor) -> Tensor:
        if len(embeddings) <= size:
            return embeddings
        return embeddings[torch.randperm(len(embeddings), generator=generator)[:size].to(embeddings.device)]

    visual_sample, text_sample = draw(visual), draw(text)
    z_visual = standardize_target(measure(visual_sample, text))
    z_text = standardize_target(measure(text_sample, visual))
    random_head = PrototypeHead(config, seed).to(visual.device)
    initializers = []
    for embeddings, z, bank in ((visual_sample, z_visual, random_head.text), (text_sample, z_text, random_head.visual)):
        rows = torch.randperm(len(z), generator=generator)[:INITIALIZATION_ROWS].to(z.device)
        initializers.append(PrototypeInitializer(embeddings[rows], z[rows], config, bank, linear=linear))
    scale, for_visual, for_text = choose_initial_prototypes(initializers[0], initializers[1], config.scale)
    config = replace(config, scale=scale, center_visual=for_visual.center, center_text=for_text.center)
    head = PrototypeHead(config, seed).to(visual.device)
    with torch.no_grad():  # media are compared with the text prototypes, captions with the visual ones
        head.text.copy_(for_visual.bank)
        head.visual.copy_(for_text.bank)
    targets_visual, targets_text = torch.sigmoid(z_visual), torch.sigmoid(z_text)

    def loss(rows_visual: Tensor, rows_text: Tensor) -> Tensor:
        u_visual = head.uncertainty_visual(visual_sample[rows_visual])
        u_text = head.uncertainty_text(text_sample[rows_text])
        loss_visual = uncertainty_loss(u_visual, targets_visual[rows_visual], lam=1.0)
        return loss_visual + uncertainty_loss(u_text, targets_text[rows_text], lam=1.0)

    return optimize_head(head, loss, len(visual_sample), len(text_sample), settings, generator)


def fit_like_paper(visual: Tensor, text: Tensor, config: HeadConfig, settings: FitConfig, seed: int) -> PrototypeHead:
    """Recipe "paper": h and lambda are computed on each batch."""
    head, generator = PrototypeHead(config, seed).to(visual.device), torch.Generator().manual_seed(seed)

    def loss(rows_visual: Tensor, rows_text: Tensor) -> Tensor:
        batch_visual, batch_text = visual[rows_visual], text[rows_text]
        h_visual, h_text = compute_mean_similarities(batch_visual @ batch_text.T)
        loss_visual = uncertainty_loss(head.uncertainty_visual(batch_visual), h_visual)
        return loss_visual + uncertainty_loss(head.uncertainty_text(batch_text), h_text)

    return optimize_head(head, loss, len(visual), len(text), settings, generator)


def optimize_head(
    head: PrototypeHead,
    uncertainty_terms: Loss,
    media: int,
    captions: int,
    settings: FitConfig,
    generator: torch.Generator,
) -> PrototypeHead:
    optimizer = torch.optim.Adam(head.parameters(), lr=settings.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, settings.steps))

    def draw_batch(count: int) -> Tensor:
        if count <= settings.batch:
            return torch.arange(count)
        return torch.randint(count, (settings.batch,), generator=generator)

    for _ in range(settings.steps):
        rows = [draw_batch(count).to(head.visual.device) for count in (media, captions)]
        diversity = diversity_loss(head.visual) + diversity_loss(head.text)
        total = uncertainty_terms(*rows) + settings.diversity_weight * diversity
        if not bool(torch.isfinite(total)):
            raise FitError("the loss is not finite: lambda explodes if the mean similarity is zero; use recipe corpus")
        optimizer.zero_grad()
        total.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    return head.eval().requires_grad_(False)


@dataclass(frozen=True)
class UncertaintyFit:
    """Correlation of u with its target over some instances, and quantiles of u."""

    pearson: float  # NaN if either is constant
    low: float  # 5th percentile of u
    median: float
    high: float  # 95th percentile


def measure_uncertainty_fit(u: Tensor, h: Tensor) -> UncertaintyFit:
    pearson = float(torch.corrcoef(torch.stack([u.double(), h.double()]))[0, 1]) if len(u) > 1 else float("nan")
    quantiles = torch.tensor([0.05, 0.5, 0.95], dtype=u.dtype, device=u.device)
    sample = u[:: max(1, len(u) // 1_000_000)]  # torch.quantile takes no more than 16 million values
    low, median, high = (float(value) for value in torch.quantile(sample, quantiles))
    return UncertaintyFit(pearson, low, median, high)

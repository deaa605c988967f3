"""Fit prototypes on stored embeddings with frozen encoders: in seconds, without labels, for any open_clip model.

`fit_prototypes` has two recipes, which minimize L_uct (equation 6) and L_div (equation 7):

- "corpus" (default): the target of u is computed over the *whole* corpus of the other modality, standardized and mapped
  to (0, 1) by a sigmoid: the paper's h (mean similarity), or how much of the corpus fits (model/retrieval_target.py).
  It works with a modality gap (CLIP), without one, and with negative mean similarities (SigLIP). L-BFGS follows the
  target in a dozen iterations where Adam needs hundreds.
- "paper", for comparison: h and lambda of random batches, with Adam. If mean similarities are close to zero, lambda
  explodes.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from model.losses import compute_mean_similarities, diversity_loss, uncertainty_loss
from model.matrix_products import multiply_by_onednn
from model.model_errors import ModelError
from model.prototype_initialization import PrototypeInitializer, choose_initial_prototypes
from model.prototypes import HeadConfig, PrototypeHead
from model.retrieval_target import FitPairs, measure_mean_similarity, measure_retrieval_entropy

Recipe = Literal["corpus", "paper"]
Target = Literal["h", "retrieval"]
Loss = Callable[[Tensor, Tensor], Tensor]  # (rows of media, rows of captions) -> loss


TOLERANCE = 1e-5  # smallest improvement of the loss, as a share of the target's variance, that is worth an iteration


class FitError(ModelError):
    """Embeddings or settings that prototypes cannot be fitted with."""


@dataclass(frozen=True)
class FitConfig:
    """Training settings of the prototypes; the defaults are for recipe "corpus"."""

    steps: int = 15  # at most; with more, u memorizes the pairs that it is fitted on (tests/bench/uncertainty.py)
    batch: int = 2048  # of recipe "paper"
    learning_rate: float = 2e-3  # of recipe "paper"
    diversity_weight: float = 0.005  # of L_div; L_uct has weight 1
    max_instances: int = 16_384  # pairs to train on


# The weights of the released program, 100 for the mean of both L_uct (here their sum, so 50) and 0.015 * 100^2 for
# L_div, divided by 50.
PAPER = FitConfig(steps=600, batch=256, learning_rate=1e-2, diversity_weight=3.0)


def fit_prototypes(
    pairs: FitPairs,
    config: HeadConfig | None = None,
    *,
    recipe: Recipe = "corpus",
    target: Target = "h",
    logit_scale: float | None = None,
    seed: int = 0,
    settings: FitConfig | None = None,
) -> PrototypeHead:
    """Fit a head whose u follows `target` on these pairs. For target "h", media and captions need not be pairs.

    `logit_scale` is the backbone's inverse temperature, which target "retrieval" needs. Recipe "corpus" may raise
    `config.scale` and set its centers if the geometry needs it: see the returned head.
    """
    config = config or HeadConfig(dim=pairs.visual.shape[-1], clip_evidence="frames")
    pairs = normalize_pairs(pairs, config.dim)
    if recipe not in ("corpus", "paper"):
        raise FitError(f"recipe must be corpus or paper, not {recipe!r}")
    if recipe == "paper" and target != "h":
        raise FitError("recipe paper is defined for target h only; use recipe corpus")
    with torch.enable_grad():
        if recipe == "paper":
            return fit_like_paper(pairs, config, settings or PAPER, seed)
        settings, generator = settings or FitConfig(), torch.Generator().manual_seed(seed)
        sample = draw_instances(pairs, settings.max_instances, generator)
        with torch.no_grad():
            targets = measure_target(sample, target, logit_scale, generator)
        return fit_to_target(sample, targets, config, settings, seed, linear=target == "h")


def normalize_pairs(pairs: FitPairs, dim: int) -> FitPairs:
    frames = pairs.frames
    if frames is not None:
        frames = normalize_embeddings(frames.flatten(0, 1), "frames", dim).view(frames.shape)
    visual, text = normalize_embeddings(pairs.visual, "media", dim), normalize_embeddings(pairs.text, "captions", dim)
    return replace(pairs, visual=visual, text=text, frames=frames)


def draw_instances(pairs: FitPairs, count: int, generator: torch.Generator) -> FitPairs:
    """At most `count` random instances of each modality: pairs, if all are."""
    media, captions = (
        torch.randperm(len(part), generator=generator)[:count].sort().values for part in (pairs.visual, pairs.text)
    )
    if len(pairs.visual) == len(pairs.text):
        return pairs if len(captions) == len(pairs.text) else pairs.take_pairs(media.to(pairs.text.device))
    return replace(pairs.take_media(media.to(pairs.text.device)), text=pairs.text[captions.to(pairs.text.device)])


def measure_target(
    pairs: FitPairs, target: Target, logit_scale: float | None, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """The values that u of the media and u of the captions are fitted to."""
    if target == "h":
        return measure_mean_similarity(pairs)
    if target != "retrieval":
        raise FitError(f"target must be h or retrieval, not {target!r}")
    if logit_scale is None or not logit_scale > 0:
        raise FitError("target retrieval needs the logit scale of the model that made the embeddings")
    if len(pairs.visual) != len(pairs.text):
        raise FitError(f"target retrieval needs pairs, not {len(pairs.visual)} media and {len(pairs.text)} captions")
    return measure_retrieval_entropy(pairs, logit_scale, generator)


def normalize_embeddings(embeddings: Tensor, modality: str, dim: int) -> Tensor:
    if embeddings.ndim != 2 or embeddings.shape[1] != dim:
        raise FitError(f"embeddings of {modality} must be of shape (N, {dim}), not {tuple(embeddings.shape)}")
    if len(embeddings) == 0:
        raise FitError(f"there are no embeddings of {modality} to fit prototypes on")
    embeddings = embeddings.detach().float()
    if not bool(torch.isfinite(embeddings).all()):
        raise FitError(f"embeddings of {modality} contain NaN or infinity")
    return F.normalize(embeddings, dim=-1)


def standardize_target(values: Tensor) -> Tensor:
    """Values (N,) with mean 0 and standard deviation 1 over the corpus; all zero if all are equal."""
    centered = values.double() - values.double().mean()
    deviation = centered.square().mean().sqrt()
    if float(deviation) < 1e-7:
        return torch.zeros_like(values)
    # Beyond four deviations the sigmoid is flat, and outliers would only bias the regression.
    return (centered / deviation).clamp(-4.0, 4.0).to(values.dtype)


@multiply_by_onednn()
def fit_to_target(
    pairs: FitPairs, targets: tuple[Tensor, Tensor], config: HeadConfig, settings: FitConfig, seed: int, *, linear: bool
) -> PrototypeHead:
    """Recipe "corpus": initialization by regression, then L-BFGS on L_uct + L_div."""
    z_visual, z_text = map(standardize_target, targets)
    random_head = PrototypeHead(config, seed).to(pairs.visual.device)
    initializers = [
        PrototypeInitializer(embeddings, z, config, bank, linear=linear)
        for embeddings, z, bank in (
            (pairs.visual, z_visual, random_head.text),
            (pairs.text, z_text, random_head.visual),
        )
    ]
    scale, for_visual, for_text = choose_initial_prototypes(initializers[0], initializers[1], config.scale)
    config = replace(config, scale=scale, center_visual=for_visual.center, center_text=for_text.center)
    head = PrototypeHead(config, seed).to(pairs.visual.device)
    with torch.no_grad():  # media are compared with the text prototypes, captions with the visual ones
        head.text.copy_(for_visual.bank)
        head.visual.copy_(for_text.bank)
    follow_target(head.text, lambda: compute_media_uncertainty(head, pairs), torch.sigmoid(z_visual), settings)
    follow_target(head.visual, lambda: head.uncertainty_text(pairs.text, unit=True), torch.sigmoid(z_text), settings)
    return head.eval().requires_grad_(False)


def compute_media_uncertainty(head: PrototypeHead, pairs: FitPairs) -> Tensor:
    """u (N,) of images and of clips."""
    images = pairs.images
    of_images = [head.uncertainty_visual(pairs.visual[:images], unit=True)] if images else []
    clips = pairs.visual[images:], pairs.frames, pairs.mask
    of_clips = [head.uncertainty_visual(*clips, unit=True)] if pairs.clips else []
    return torch.cat(of_images + of_clips)


def follow_target(bank: Tensor, uncertainty: Callable[[], Tensor], target: Tensor, settings: FitConfig) -> None:
    """Move the prototypes of a bank until u follows its target; nothing to follow if the target is constant."""
    variance = float(target.var(correction=0))
    if variance < 1e-9 or not settings.steps:
        return
    from scipy.optimize import minimize  # torch.optim would import torch's compiler, which takes two seconds

    def place(values: npt.NDArray[np.float64]) -> None:
        with torch.no_grad():
            bank.copy_(torch.from_numpy(values).view(bank.shape))

    def compute_loss(values: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        place(values)
        loss = uncertainty_loss(uncertainty(), target, lam=1.0) + settings.diversity_weight * diversity_loss(bank)
        loss = loss / variance
        (gradient,) = torch.autograd.grad(loss, bank)
        return float(loss.detach()), gradient.double().cpu().numpy().ravel()

    start = bank.detach().double().cpu().numpy().ravel()
    limits = {"maxiter": settings.steps, "ftol": TOLERANCE, "gtol": 0.0}
    place(minimize(compute_loss, start, jac=True, method="L-BFGS-B", options=limits).x)


def fit_like_paper(pairs: FitPairs, config: HeadConfig, settings: FitConfig, seed: int) -> PrototypeHead:
    """Recipe "paper": h and lambda are computed on each batch; of clips, only the mean vector counts."""
    config = replace(config, clip_evidence="mean")
    visual, text = pairs.visual, pairs.text
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

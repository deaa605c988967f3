"""Prototypes learned on stored embeddings with frozen encoders: seconds, no labels, any open_clip model.

`fit_prototypes(visual, text)` follows one of two recipes:

- "corpus" (default): the target of u is a number of each instance, taken over the *whole* corpus of the other modality,
  standardised and squashed to (0, 1): the paper's h (mean similarity), or for target "retrieval" the logarithm of the
  perplexity of its retrieval distribution. It holds in any geometry: with a modality gap (CLIP), without one, or with
  negative mean similarities (SigLIP). `model.prototype_start` gives the prototypes to start from.
- "paper": h of random batches, lambda = mean(u)/mean(h) per batch, Xavier start. Kept to compare with; where mean
  similarities are near zero lambda explodes and the noise of a batch drowns the signal.

Both minimise L_uct (equation 6) and L_div (equation 7) by Adam, and are the same for the same seed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from model.losses import diversity_loss, mean_similarities, uncertainty_loss
from model.model_errors import ModelError
from model.prototype_start import Starts, best_start
from model.prototypes import HeadConfig, PrototypeHead
from model.similarity import log_perplexity

Recipe = Literal["corpus", "paper"]
Target = Literal["h", "retrieval"]
Loss = Callable[[Tensor, Tensor], Tensor]  # of rows of media and rows of captions
Measure = Callable[[Tensor, Tensor], Tensor]  # of instances (N, D) among those of the other modality (M, D)


START_ROWS = 20_000  # instances that the start is computed from: many more than any embedding has dimensions


class FitError(ModelError):
    """Embeddings that no prototypes can be fitted on."""


@dataclass(frozen=True)
class FitConfig:
    """How prototypes are learned; the defaults are for recipe "corpus"."""

    steps: int = 100
    batch: int = 2048
    learning_rate: float = 2e-3
    diversity_weight: float = 0.02  # of L_div, with L_uct at 1
    at_most: int = 200_000  # instances of each modality that are learned from; h is taken against all


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
    """A head whose u follows `target` on these embeddings. Media and captions need not be paired, nor as many.

    `logit_scale` is the backbone's inverse temperature, which target "retrieval" needs. Recipe "corpus" raises
    `config.scale` and sets its centres where the geometry needs it: see the returned head.
    """
    config = config or HeadConfig(dim=visual.shape[-1])
    visual, text = checked(visual, "media", config.dim), checked(text, "captions", config.dim)
    generator = torch.Generator().manual_seed(seed)
    with torch.enable_grad():
        if recipe == "corpus":
            follow = measure_of(target, logit_scale)
            return fit_to_corpus(visual, text, config, settings or FitConfig(), seed, generator, follow)
        if recipe == "paper" and target == "h":
            return fit_like_paper(visual, text, config, settings or PAPER, seed, generator)
    if recipe == "paper":
        raise FitError("recipe paper is defined for target h only; use recipe corpus")
    raise FitError(f"recipe must be corpus or paper, not {recipe!r}")


def measure_of(target: Target, logit_scale: float | None) -> Measure:
    """What u follows: a number of each instance (N, D) among all of the other modality (M, D)."""
    if target == "h":
        return mean_similarity
    if target != "retrieval":
        raise FitError(f"target must be h or retrieval, not {target!r}")
    if logit_scale is None or not logit_scale > 0:
        raise FitError("target retrieval needs the logit scale of the model that made the embeddings")
    return partial(log_perplexity, scale=logit_scale)


def checked(embeddings: Tensor, what: str, dim: int) -> Tensor:
    """L2-normalised single precision, after refusing what cannot be learned from."""
    if embeddings.ndim != 2 or embeddings.shape[1] != dim:
        raise FitError(f"embeddings of {what} must be of shape (N, {dim}), not {tuple(embeddings.shape)}")
    if len(embeddings) == 0:
        raise FitError(f"there are no embeddings of {what} to fit prototypes on")
    embeddings = embeddings.detach().float()
    if not bool(torch.isfinite(embeddings).all()):
        raise FitError(f"embeddings of {what} hold NaN or infinity")
    return F.normalize(embeddings, dim=-1)


def mean_similarity(embeddings: Tensor, others: Tensor) -> Tensor:
    """h (N,): mean cosine of unit vectors (N, D) to all unit vectors (M, D) of the other modality."""
    return embeddings @ others.mean(dim=0, dtype=torch.float64).to(embeddings.dtype)


def standardised(found: Tensor) -> Tensor:
    """Numbers with mean 0 and deviation 1 over the corpus; all zero where every instance is alike."""
    centred = found.double() - found.double().mean()
    deviation = centred.square().mean().sqrt()
    if float(deviation) < 1e-7:
        return torch.zeros_like(found)
    # Beyond four deviations the squashed target is flat, and outliers would only bend the start.
    return (centred / deviation).clamp(-4.0, 4.0).to(found.dtype)


def subset(embeddings: Tensor, at_most: int, generator: torch.Generator) -> Tensor:
    if len(embeddings) <= at_most:
        return embeddings
    return embeddings[torch.randperm(len(embeddings), generator=generator)[:at_most].to(embeddings.device)]


def fit_to_corpus(
    visual: Tensor,
    text: Tensor,
    config: HeadConfig,
    settings: FitConfig,
    seed: int,
    generator: torch.Generator,
    follow: Measure,
) -> PrototypeHead:
    """Recipe "corpus": a warm start by regression, then Adam on L_uct + L_div against the squashed target."""
    linear = follow is mean_similarity
    at_most = settings.at_most if linear else min(settings.at_most, START_ROWS)  # perplexity costs many products
    some_visual, some_text = (subset(x, at_most, generator) for x in (visual, text))
    z_visual = standardised(follow(some_visual, text))
    z_text = standardised(follow(some_text, visual))
    drawn = PrototypeHead(config, seed).to(visual.device)
    starts = []
    for embeddings, z, bank in ((some_visual, z_visual, drawn.text), (some_text, z_text, drawn.visual)):
        rows = torch.randperm(len(z), generator=generator)[:START_ROWS].to(z.device)
        starts.append(Starts(embeddings[rows], z[rows], config, bank, linear=linear))
    scale, for_visual, for_text = best_start(starts[0], starts[1], config.scale)
    config = replace(config, scale=scale, center_visual=for_visual.center, center_text=for_text.center)
    head = PrototypeHead(config, seed).to(visual.device)
    with torch.no_grad():  # media face the text prototypes, captions the visual ones
        head.text.copy_(for_visual.bank)
        head.visual.copy_(for_text.bank)
    targets_visual, targets_text = torch.sigmoid(z_visual), torch.sigmoid(z_text)

    def loss(rows_visual: Tensor, rows_text: Tensor) -> Tensor:
        u_visual = head.uncertainty_visual(some_visual[rows_visual])
        u_text = head.uncertainty_text(some_text[rows_text])
        return uncertainty_loss(u_visual, targets_visual[rows_visual], lam=1.0) + uncertainty_loss(
            u_text, targets_text[rows_text], lam=1.0
        )

    return learn(head, loss, len(some_visual), len(some_text), settings, generator)


def fit_like_paper(
    visual: Tensor, text: Tensor, config: HeadConfig, settings: FitConfig, seed: int, generator: torch.Generator
) -> PrototypeHead:
    """Recipe "paper": h and lambda of each batch."""
    head = PrototypeHead(config, seed).to(visual.device)

    def loss(rows_visual: Tensor, rows_text: Tensor) -> Tensor:
        some_visual, some_text = visual[rows_visual], text[rows_text]
        h_visual, h_text = mean_similarities(some_visual @ some_text.T)
        return uncertainty_loss(head.uncertainty_visual(some_visual), h_visual) + uncertainty_loss(
            head.uncertainty_text(some_text), h_text
        )

    return learn(head, loss, len(visual), len(text), settings, generator)


def learn(
    head: PrototypeHead,
    uncertainty_terms: Loss,
    media: int,
    captions: int,
    settings: FitConfig,
    generator: torch.Generator,
) -> PrototypeHead:
    """Adam with a cosine schedule on random batches of both modalities."""
    optimizer = torch.optim.Adam(head.parameters(), lr=settings.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, settings.steps))
    device = head.visual.device
    for _ in range(settings.steps):
        rows = [drawn(count, settings.batch, generator).to(device) for count in (media, captions)]
        diversity = diversity_loss(head.visual) + diversity_loss(head.text)
        total = uncertainty_terms(*rows) + settings.diversity_weight * diversity
        if not bool(torch.isfinite(total)):
            raise FitError("the loss is not a number: lambda explodes where the mean similarity is zero; use corpus")
        optimizer.zero_grad()
        total.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    return head.eval().requires_grad_(False)


def drawn(count: int, batch: int, generator: torch.Generator) -> Tensor:
    """Rows of a batch: all where they fit, else drawn at random."""
    if count <= batch:
        return torch.arange(count)
    return torch.randint(count, (batch,), generator=generator)


@dataclass(frozen=True)
class Agreement:
    """How u of some instances goes with their h, and how far it spreads."""

    pearson: float  # NaN where either is constant
    low: float  # 5th percentile of u
    median: float
    high: float  # 95th percentile


def agreement(u: Tensor, h: Tensor) -> Agreement:
    """Of u and h (N,)."""
    pearson = float(torch.corrcoef(torch.stack([u.double(), h.double()]))[0, 1]) if len(u) > 1 else float("nan")
    quantiles = torch.tensor([0.05, 0.5, 0.95], dtype=u.dtype, device=u.device)
    at_most = u[:: max(1, len(u) // 1_000_000)]  # torch.quantile takes no more than 16 million
    low, median, high = (float(value) for value in torch.quantile(at_most, quantiles))
    return Agreement(pearson, low, median, high)

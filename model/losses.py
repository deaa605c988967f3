"""The losses of PAU as pure functions: symmetric InfoNCE, L_uct (equation 6) and L_div (equation 7).

The total is info_nce + w_u * (L_uct^v + L_uct^t) / 2 + w_d * (L_div^v + L_div^t); the caller chooses the weights.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from model.model_errors import ModelError


class LossError(ModelError):
    """Tensors whose shapes do not fit a loss."""


def info_nce(logits: Tensor, weights: Tensor | None = None) -> Tensor:
    """Symmetric InfoNCE: mean of both directions for scaled similarities (N, N) with the true pairs on the diagonal.

    `weights` (N,) weigh the pairs. A pair of weight 0 is still a negative for the other pairs: its medium and its
    caption are real.
    """
    if logits.ndim != 2 or logits.shape[0] != logits.shape[1]:
        raise LossError(f"InfoNCE needs a square matrix of similarities, not {tuple(logits.shape)}")
    truth = torch.arange(len(logits), device=logits.device)
    share = torch.full_like(logits[0], 1 / len(logits)) if weights is None else weights / weights.sum().clamp_min(1e-8)
    losses = [F.cross_entropy(way, truth, reduction="none") for way in (logits, logits.T)]
    return sum((share * loss).sum() for loss in losses) / 2  # type: ignore[return-value]


def compute_mean_similarities(cosines: Tensor) -> tuple[Tensor, Tensor]:
    """h of equation 6 in a batch of cosines (N, M): row means (N,) for media, column means (M,) for captions."""
    return cosines.mean(dim=1), cosines.mean(dim=0)


def uncertainty_loss(u: Tensor, h: Tensor, lam: Tensor | float | None = None, detach: bool = True) -> Tensor:
    """L_uct (equation 6): mean over instances of (u - lambda * h)^2 for u and h of shape (N,).

    By default lambda = mean(u) / mean(h) of the batch, as a constant. With a gradient through lambda (`detach` False,
    as in the released program) u = 0 is a trivial minimum. A number `lam` fixes lambda.
    """
    if u.shape != h.shape:
        raise LossError(f"u {tuple(u.shape)} and h {tuple(h.shape)} are not of the same instances")
    if lam is None:
        lam = u.mean() / h.mean()
        lam = lam.detach() if detach else lam
    return (u - lam * h).square().mean()


def diversity_loss(prototypes: Tensor) -> Tensor:
    """L_div (equation 7) of one bank (K, D): mean square of the cosines of all K^2 pairs. Its minimum is 1/K."""
    unit = F.normalize(prototypes, dim=-1)
    return (unit @ unit.T).square().mean()

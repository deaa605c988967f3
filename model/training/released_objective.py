"""The loss as the authors' released program computes it (leolee99/PAU at 1604ccc), where it differs from the paper.

- u comes from the vector of the whole clip, with CLIP's own learned scale.
- The best frame of a clip may be a padded one.
- h leaves out the true pair but divides by the size of the batch, and lambda = mean(u) / mean(h) has a gradient.
- L_uct is the mean over both modalities, and L_div takes scaled cosines without the diagonal.
- Other captions of the same medium are negatives.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from model.evidence import dirichlet_uncertainty
from model.losses import compute_mean_similarities, info_nce, uncertainty_loss
from model.prototypes import PrototypeHead
from model.similarity import similarity_matrix


@dataclass(frozen=True, slots=True)
class ReleasedTerms:
    """The terms of the loss before their weights, and what they are made of."""

    logits: Tensor  # (N, N) media x captions
    u_visual: Tensor  # (N,)
    u_text: Tensor  # (N,)
    similarity: Tensor  # sim_loss
    uncertainty: Tensor  # uct_loss
    diversity: Tensor  # div_loss


def compute_released_uncertainty(
    visual: Tensor, text: Tensor, head: PrototypeHead, scale: Tensor
) -> tuple[Tensor, Tensor]:
    """u (N,) of unit vectors of media (N, D) and of captions (M, D), each from the other modality's prototypes."""
    sides = ((visual, head.text), (text, head.visual))
    logits = [scale * vectors @ F.normalize(bank, dim=-1).T for vectors, bank in sides]
    u_visual, u_text = (dirichlet_uncertainty(values, "exp", head.config.tau) for values in logits)
    return u_visual, u_text


def compute_released_terms(
    visual: Tensor, frames: Tensor, text: Tensor, head: PrototypeHead, scale: Tensor, weights: Tensor | None = None
) -> ReleasedTerms:
    """The terms for unit vectors of clips and captions (N, D) and all frames (N, J, D), padded ones included."""
    cosines = similarity_matrix(visual, frames, None, text)
    u_visual, u_text = compute_released_uncertainty(visual, text, head, scale)
    h_visual, h_text = compute_mean_similarities(cosines - torch.diag(cosines.diagonal()))
    parts = [uncertainty_loss(u, h, detach=False) for u, h in ((u_visual, h_visual), (u_text, h_text))]
    spread = compute_released_diversity(head.visual, scale) + compute_released_diversity(head.text, scale)
    logits = scale * cosines
    return ReleasedTerms(logits, u_visual, u_text, info_nce(logits, weights), (parts[0] + parts[1]) / 2, spread)


def compute_released_diversity(bank: Tensor, scale: Tensor) -> Tensor:
    unit = F.normalize(bank, dim=-1)
    logits = scale * unit @ unit.T
    return (logits - torch.diag(logits.diagonal())).square().mean()

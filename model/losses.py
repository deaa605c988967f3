"""The losses of PAU as pure functions: symmetric InfoNCE, L_uct (equation 6) and L_div (equation 7).

The total is info_nce + w_u * (L_uct^v + L_uct^t) / 2 + w_d * (L_div^v + L_div^t); the caller chooses the weights.
`chunked_info_nce` has the value and gradients of `info_nce` for batches whose similarity matrix does not fit in memory.
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from model.model_errors import ModelError
from model.similarity import similarity_matrix


class LossError(ModelError):
    """Tensors whose shapes do not fit a loss."""


def info_nce(logits: Tensor) -> Tensor:
    """Symmetric InfoNCE: mean of both directions for scaled similarities (N, N) with the true pairs on the diagonal."""
    if logits.ndim != 2 or logits.shape[0] != logits.shape[1]:
        raise LossError(f"InfoNCE needs a square matrix of similarities, not {tuple(logits.shape)}")
    truth = torch.arange(len(logits), device=logits.device)
    return (F.cross_entropy(logits, truth) + F.cross_entropy(logits.T, truth)) / 2


def chunked_info_nce(
    visual: Tensor,  # (N, D)
    text: Tensor,  # (N, D)
    scale: Tensor | float,
    chunk: int = 1024,
    frames: Tensor | None = None,  # (N, J, D)
    mask: Tensor | None = None,  # (N, J)
) -> Tensor:
    """`info_nce(scale * similarity_matrix(...))` with at most `chunk` rows of the matrix in memory.

    Each block of rows gives the log-sums of its rows and its share of those of the columns. The backward pass computes
    the block again instead of storing it.
    """
    if len(visual) != len(text) or chunk < 1:
        raise LossError(f"{len(visual)} media and {len(text)} captions in chunks of {chunk} are not pairs")
    scale = torch.as_tensor(scale, dtype=visual.dtype, device=visual.device)
    blocks = []
    for start in range(0, len(visual), chunk):
        block = slice(start, start + chunk)
        block_frames = None if frames is None else frames[block]
        block_mask = None if mask is None else mask[block]
        inputs = (visual[block], block_frames, block_mask, text, scale, start)
        blocks.append(checkpoint(compute_block_sums, *inputs, use_reentrant=False))
    rows, columns, truths = zip(*blocks, strict=True)
    truth = torch.cat(truths)
    to_text = (torch.cat(rows) - truth).mean()
    to_visual = (torch.logsumexp(torch.stack(columns), dim=0) - truth).mean()
    return (to_text + to_visual) / 2


def compute_block_sums(
    visual: Tensor, frames: Tensor | None, mask: Tensor | None, text: Tensor, scale: Tensor, start: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-sums of n rows (n,), their share of the log-sums of all columns (N,), and the logits of their pairs (n,)."""
    logits = scale * similarity_matrix(visual, frames, mask, text)  # (n, N)
    return torch.logsumexp(logits, dim=1), torch.logsumexp(logits, dim=0), logits.diagonal(offset=start)


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

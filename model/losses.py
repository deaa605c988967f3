"""The losses of PAU as pure functions: symmetric InfoNCE, L_uct (equation 6) and L_div (equation 7).

The total is info_nce + w_u * (L_uct^v + L_uct^t) / 2 + w_d * (L_div^v + L_div^t); weights belong to the caller.
`chunked_info_nce` is `info_nce` for batches whose matrix of similarities does not fit: same value, same gradients.
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from model.model_errors import ModelError
from model.similarity import similarity_matrix


class LossError(ModelError):
    """Tensors that no loss can be taken of."""


def info_nce(logits: Tensor) -> Tensor:
    """Symmetric InfoNCE of scaled similarities (N, N) whose diagonal holds the true pairs: the mean of both ways."""
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

    Each block of rows gives its own log-sums and its share of those of the columns, and is computed again in the
    backward pass instead of being kept.
    """
    if len(visual) != len(text) or chunk < 1:
        raise LossError(f"{len(visual)} media and {len(text)} captions in chunks of {chunk} are not pairs")
    scale = torch.as_tensor(scale, dtype=visual.dtype, device=visual.device)
    blocks = []
    for start in range(0, len(visual), chunk):
        part = slice(start, start + chunk)
        some_frames = None if frames is None else frames[part]
        some_mask = None if mask is None else mask[part]
        blocks.append(
            checkpoint(block_sums, visual[part], some_frames, some_mask, text, scale, start, use_reentrant=False)
        )
    rows, columns, truths = zip(*blocks, strict=True)
    truth = torch.cat(truths)
    to_text = (torch.cat(rows) - truth).mean()
    to_visual = (torch.logsumexp(torch.stack(columns), dim=0) - truth).mean()
    return (to_text + to_visual) / 2


def block_sums(
    visual: Tensor, frames: Tensor | None, mask: Tensor | None, text: Tensor, scale: Tensor, start: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-sums of some rows (n,), their share of those of all columns (N,), and the logits of their pairs (n,)."""
    logits = scale * similarity_matrix(visual, frames, mask, text)  # (n, N)
    return torch.logsumexp(logits, dim=1), torch.logsumexp(logits, dim=0), logits.diagonal(offset=start)


def mean_similarities(cosines: Tensor) -> tuple[Tensor, Tensor]:
    """h of equation 6 within a batch: row means (N,) for the media, column means (M,) for the captions of (N, M)."""
    return cosines.mean(dim=1), cosines.mean(dim=0)


def uncertainty_loss(u: Tensor, h: Tensor, lam: Tensor | float | None = None, detach: bool = True) -> Tensor:
    """L_uct (equation 6): mean over instances of (u - lambda * h)^2 for u and h of shape (N,).

    `lam` None takes lambda = mean(u) / mean(h) of the batch as a constant; with a gradient through it (`detach`
    False, as in the released program) u = 0 is a trivial minimum. A number fixes lambda.
    """
    if u.shape != h.shape:
        raise LossError(f"u {tuple(u.shape)} and h {tuple(h.shape)} are not of the same instances")
    if lam is None:
        lam = u.mean() / h.mean()
        lam = lam.detach() if detach else lam
    return (u - lam * h).square().mean()


def diversity_loss(prototypes: Tensor) -> Tensor:
    """L_div (equation 7) of one bank (K, D): mean square of the cosines of all K^2 pairs, at least 1/K."""
    unit = F.normalize(prototypes, dim=-1)
    return (unit @ unit.T).square().mean()

"""Similarity of media and captions: the cosine; for video the average of the whole clip and of its best frame.

Appendix A of the paper: the global branch compares the caption with the mean of the frames, the local branch with the
frame that fits it best. Padded frames (mask False) count in neither. Rows without any valid frame are images.
The perplexity of what fits an instance is the target of u that predicts failures of retrieval (docs/results.md).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

AMONG = 8192  # instances of the other modality at most: perplexity is compared, not counted
BLOCK = 1 << 24  # similarities at once


def pool_frames(frames: Tensor, mask: Tensor | None = None) -> Tensor:
    """L2-normalised mean (N, D) of the L2-normalised valid frames of (N, J, D); zero where none is valid."""
    unit = F.normalize(frames, dim=-1)
    if mask is not None:
        unit = unit.masked_fill(~mask.bool().unsqueeze(-1), 0.0)
    return F.normalize(unit.sum(dim=1), dim=-1)


def similarity_matrix(visual: Tensor, frames: Tensor | None, mask: Tensor | None, text: Tensor) -> Tensor:
    """Similarities (N, M) of media (N, D) with frames (N, J, D) and valid frames (N, J) to captions (M, D).

    `visual` of a video is its pooled embedding (`pool_frames`); without `frames` the media are images.
    """
    text = F.normalize(text, dim=-1)
    overall = F.normalize(visual, dim=-1) @ text.T  # (N, M)
    if frames is None:
        return overall
    each = F.normalize(frames, dim=-1) @ text.T  # (N, J, M)
    return with_best_frame(overall, each, mask)


def pair_similarity(visual: Tensor, frames: Tensor | None, mask: Tensor | None, text: Tensor) -> Tensor:
    """Similarity (N,) of each medium with its own caption: the diagonal of `similarity_matrix`, without the rest."""
    text = F.normalize(text, dim=-1)
    overall = (F.normalize(visual, dim=-1) * text).sum(dim=-1)  # (N,)
    if frames is None:
        return overall
    each = (F.normalize(frames, dim=-1) * text.unsqueeze(1)).sum(dim=-1)  # (N, J)
    return with_best_frame(overall.unsqueeze(-1), each.unsqueeze(-1), mask).squeeze(-1)


def with_best_frame(overall: Tensor, each: Tensor, mask: Tensor | None) -> Tensor:
    """(overall (N, M) + best valid frame of each (N, J, M)) / 2; overall alone where no frame is valid."""
    if mask is None:
        return (overall + each.amax(dim=1)) / 2
    valid = mask.bool()
    lowest = torch.finfo(each.dtype).min
    best = each.masked_fill(~valid.unsqueeze(-1), lowest).amax(dim=1)  # (N, M)
    has_frames = valid.any(dim=1).unsqueeze(-1)
    return torch.where(has_frames, (overall + torch.where(has_frames, best, overall)) / 2, overall)


def log_perplexity(embeddings: Tensor, others: Tensor, scale: float) -> Tensor:
    """(N,) of unit vectors (N, D) among unit vectors (M, D): the entropy of softmax(scale * cosine), in nats."""
    some = others[:: -(-len(others) // AMONG)]
    rows = max(1, BLOCK // len(some))
    parts = [embeddings[start : start + rows] for start in range(0, len(embeddings), rows)]
    return torch.cat([entropy(part @ some.T, scale) for part in parts])


def entropy(cosines: Tensor, scale: float | Tensor) -> Tensor:
    """(N,) of the retrieval distributions in the rows of cosines (N, M)."""
    logits = cosines * scale
    logarithm = logits.log_softmax(dim=1)
    return -(logarithm.exp() * logarithm).sum(dim=1)

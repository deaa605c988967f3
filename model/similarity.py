"""Similarity of media and captions: the cosine; for video the average of the whole clip and of its best frame.

Appendix A of the paper: the global branch compares the caption with the mean of the frames, the local branch with the
frame that fits it best. Padded frames (mask False) count in neither. Rows without any valid frame are images.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


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

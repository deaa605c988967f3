"""Similarity of media and captions: the cosine; for video, the mean of the clip's cosine and its best frame's cosine.

Appendix A of the paper. Padded frames (mask False) are ignored; rows without valid frames are images. The perplexity of
the retrieval distribution is the target of u that predicts retrieval failures (docs/results.md).
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def pool_frames(frames: Tensor, mask: Tensor | None = None) -> Tensor:
    """L2-normalized mean (N, D) of the L2-normalized valid frames of (N, J, D); zero if no frame is valid."""
    unit = F.normalize(frames, dim=-1)
    if mask is not None:
        unit = unit.masked_fill(~mask.bool().unsqueeze(-1), 0.0)
    return F.normalize(unit.sum(dim=1), dim=-1)


def similarity_matrix(visual: Tensor, frames: Tensor | None, mask: Tensor | None, text: Tensor) -> Tensor:
    """Similarities (N, M) of media (N, D) to captions (M, D), given frames (N, J, D) and a mask of valid frames (N, J).

    `visual` of a video is its pooled embedding (`pool_frames`); without `frames` the media are images.
    """
    text = F.normalize(text, dim=-1)
    overall = F.normalize(visual, dim=-1) @ text.T  # (N, M)
    if frames is None:
        return overall
    by_frame = F.normalize(frames, dim=-1) @ text.T  # (N, J, M)
    return combine_with_best_frame(overall, by_frame, mask)


def combine_with_best_frame(overall: Tensor, by_frame: Tensor, mask: Tensor | None) -> Tensor:
    """Mean of `overall` (N, M) and the best valid frame of `by_frame` (N, J, M); `overall` if no frame is valid."""
    if mask is None:
        return (overall + by_frame.amax(dim=1)) / 2
    valid = mask.bool()
    lowest = torch.finfo(by_frame.dtype).min
    best = by_frame.masked_fill(~valid.unsqueeze(-1), lowest).amax(dim=1)  # (N, M)
    has_frames = valid.any(dim=1).unsqueeze(-1)
    return torch.where(has_frames, (overall + torch.where(has_frames, best, overall)) / 2, overall)


def compute_retrieval_entropy(cosines: Tensor, scale: float | Tensor) -> Tensor:
    """Entropy (N,) of the retrieval distribution in each row of cosines (N, M)."""
    logits = cosines * scale
    logarithm = logits.log_softmax(dim=1)
    return -(logarithm.exp() * logarithm).sum(dim=1)

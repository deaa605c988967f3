"""What the uncertainty follows while the encoders learn: h over the corpus, kept as running means.

The paper takes h in the batch and scales it by lambda = mean(u)/mean(h): noisy, and senseless where the mean
similarity is near zero. Here h is the similarity with the running mean embedding of the other modality, standardised by
its running mean and deviation and squashed to (0, 1); it means the same in every space.
"""

import torch
from torch import Tensor, nn


class CorpusTarget(nn.Module):
    """Running statistics of both modalities, as buffers, so that a checkpoint carries them."""

    mean: Tensor  # (2, D) mean embeddings: visual, text
    centre: Tensor  # (2,) mean of h: visual, text
    spread: Tensor  # (2,) variance of h
    filled: Tensor  # () share of the running means that is data, for their correction at the start

    def __init__(self, dim: int, momentum: float = 0.95) -> None:
        super().__init__()
        self.momentum = momentum
        for name, shape in (("mean", (2, dim)), ("centre", (2,)), ("spread", (2,)), ("filled", ())):
            self.register_buffer(name, torch.zeros(shape))

    @torch.no_grad()
    def forward(self, visual: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        """Take in a batch of embeddings (N, D) and return the targets (N,) of its visual and its text part."""
        keep = self.momentum
        self.filled.mul_(keep).add_(1 - keep)
        self.mean.mul_(keep).add_((1 - keep) * torch.stack([visual.mean(dim=0), text.mean(dim=0)]).float())
        mean = self.mean / self.filled
        h = torch.stack([visual.float() @ mean[1], text.float() @ mean[0]])  # (2, N)
        self.centre.mul_(keep).add_((1 - keep) * h.mean(dim=1))
        centre = (self.centre / self.filled)[:, None]
        self.spread.mul_(keep).add_((1 - keep) * (h - centre).square().mean(dim=1))
        deviation = (self.spread / self.filled).sqrt().clamp_min(1e-6)[:, None]
        squashed = torch.sigmoid((h - centre) / deviation)
        return squashed[0], squashed[1]

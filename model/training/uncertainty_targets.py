"""Targets that the uncertainty learns to follow, standardized by running means and mapped to (0, 1) by a sigmoid.

The paper takes h in the batch and scales it by lambda = mean(u)/mean(h): noisy, and meaningless if the mean similarity
is near zero. `CorpusTarget` takes h against the running mean embedding of the other modality, `RetrievalTarget` the
entropy of the retrieval distribution in the batch. Both have the same meaning in every embedding space.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from model.similarity import compute_retrieval_entropy


class UncertaintyTarget(nn.Module, ABC):
    """Running statistics of both modalities, as buffers, so that a checkpoint stores them."""

    centre: Tensor  # (2,) running mean of the measure: visual, text; its name is part of the file format
    spread: Tensor  # (2,) running variance of the measure
    filled: Tensor  # () total weight of the batches in the running means, which corrects their bias at the start

    def __init__(self, momentum: float = 0.95) -> None:
        super().__init__()
        self.momentum = momentum
        for name, shape in (("centre", (2,)), ("spread", (2,)), ("filled", ())):
            self.register_buffer(name, torch.zeros(shape))

    @abstractmethod
    def measure(self, visual: Tensor, text: Tensor, logits: Tensor) -> Tensor:
        """The measure (2, N) that u follows, for a batch of unit embeddings (N, D) with scaled similarities (N, N)."""

    @torch.no_grad()
    def forward(self, visual: Tensor, text: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Update the statistics with a batch and return the targets (N,) of its media and of its captions."""
        keep = self.momentum
        self.filled.mul_(keep).add_(1 - keep)
        values = self.measure(visual.float(), text.float(), logits.float())
        self.centre.mul_(keep).add_((1 - keep) * values.mean(dim=1))
        centre = (self.centre / self.filled)[:, None]
        self.spread.mul_(keep).add_((1 - keep) * (values - centre).square().mean(dim=1))
        deviation = (self.spread / self.filled).sqrt().clamp_min(1e-6)[:, None]
        squashed = torch.sigmoid((values - centre) / deviation)
        return squashed[0], squashed[1]


class CorpusTarget(UncertaintyTarget):
    """h against the running mean embedding of the other modality."""

    mean: Tensor  # (2, D) mean embeddings: visual, text

    def __init__(self, dim: int, momentum: float = 0.95) -> None:
        super().__init__(momentum)
        self.register_buffer("mean", torch.zeros(2, dim))

    def measure(self, visual: Tensor, text: Tensor, logits: Tensor) -> Tensor:
        keep = self.momentum
        self.mean.mul_(keep).add_((1 - keep) * torch.stack([visual.mean(dim=0), text.mean(dim=0)]))
        mean = self.mean / self.filled
        return torch.stack([visual @ mean[1], text @ mean[0]])


class RetrievalTarget(UncertaintyTarget):
    """The logarithm of the perplexity of each instance's retrieval distribution over the batch."""

    def measure(self, visual: Tensor, text: Tensor, logits: Tensor) -> Tensor:
        return torch.stack([compute_retrieval_entropy(logits, 1.0), compute_retrieval_entropy(logits.T, 1.0)])

"""What the uncertainty follows while the encoders learn, standardised by running means and squashed to (0, 1).

The paper takes h in the batch and scales it by lambda = mean(u)/mean(h): noisy, and senseless where the mean
similarity is near zero. `CorpusTarget` takes h against the running mean embedding of the other modality instead;
`RetrievalTarget` takes the entropy of the retrieval distribution in the batch, which predicts failures of retrieval.
Both mean the same in every space.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from model.similarity import entropy


class Target(nn.Module, ABC):
    """Running statistics of both modalities, as buffers, so that a checkpoint carries them."""

    centre: Tensor  # (2,) mean of what is followed: visual, text
    spread: Tensor  # (2,) variance of it
    filled: Tensor  # () share of the running means that is data, for their correction at the start

    def __init__(self, momentum: float = 0.95) -> None:
        super().__init__()
        self.momentum = momentum
        for name, shape in (("centre", (2,)), ("spread", (2,)), ("filled", ())):
            self.register_buffer(name, torch.zeros(shape))

    @abstractmethod
    def followed(self, visual: Tensor, text: Tensor, logits: Tensor) -> Tensor:
        """What u follows, (2, N), of a batch of unit embeddings (N, D) with scaled similarities (N, N)."""

    @torch.no_grad()
    def forward(self, visual: Tensor, text: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Take in a batch and return the targets (N,) of its visual and its text part."""
        keep = self.momentum
        self.filled.mul_(keep).add_(1 - keep)
        found = self.followed(visual.float(), text.float(), logits.float())
        self.centre.mul_(keep).add_((1 - keep) * found.mean(dim=1))
        centre = (self.centre / self.filled)[:, None]
        self.spread.mul_(keep).add_((1 - keep) * (found - centre).square().mean(dim=1))
        deviation = (self.spread / self.filled).sqrt().clamp_min(1e-6)[:, None]
        squashed = torch.sigmoid((found - centre) / deviation)
        return squashed[0], squashed[1]


class CorpusTarget(Target):
    """h against the running mean embedding of the other modality."""

    mean: Tensor  # (2, D) mean embeddings: visual, text

    def __init__(self, dim: int, momentum: float = 0.95) -> None:
        super().__init__(momentum)
        self.register_buffer("mean", torch.zeros(2, dim))

    def followed(self, visual: Tensor, text: Tensor, logits: Tensor) -> Tensor:
        keep = self.momentum
        self.mean.mul_(keep).add_((1 - keep) * torch.stack([visual.mean(dim=0), text.mean(dim=0)]))
        mean = self.mean / self.filled
        return torch.stack([visual @ mean[1], text @ mean[0]])


class RetrievalTarget(Target):
    """The logarithm of the perplexity of each instance's retrieval distribution over the batch."""

    def followed(self, visual: Tensor, text: Tensor, logits: Tensor) -> Tensor:
        return torch.stack([entropy(logits, 1.0), entropy(logits.T, 1.0)])

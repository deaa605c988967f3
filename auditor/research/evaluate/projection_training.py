"""Trains both projections, the temperature and the prototypes on cached features of frozen trunks.

This runs the paper's training analyses at thousands of pairs a second, with the objective of
`model.training.objective`. The projections start at random, so recall may end below that of the original model. Pairs
with a `backbone` instead train its text tower and its image projection, from the weights that it has. The similarity of
a video is the paper's: the mean of that of its pooled frames and that of its best frame.
"""

import math
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from auditor.research.evaluate.trunk_features import last_linear
from auditor.research.retrieval.recall import Array, EmbeddingSet
from auditor.vectors import MediaVectors
from model.backbone import Backbone
from model.losses import diversity_loss, info_nce, uncertainty_loss
from model.prototypes import HeadConfig, PrototypeHead
from model.similarity import pool_frames, similarity_matrix
from model.text_tower import encode_trimmed_tokens, find_causal_tower, trim_padding
from model.training.objective import mask_false_negatives
from model.training.training_config import scale_learning_rate
from model.training.uncertainty_targets import CorpusTarget, RetrievalTarget, UncertaintyTarget

TEXT_BATCH = 1024  # captions embedded at a time
CHUNK = 64  # captions with the same padding


@dataclass(frozen=True, slots=True)
class ProjectionTraining:
    """Settings of one run. If both weights are zero it is the baseline, whose prototypes are not trained."""

    dim: int = 256
    epochs: int = 8
    batch: int = 256
    rate: float = 1e-3
    prototype_rate: float = 1e-2  # prototypes start at random; the paper's rate is 1000 times that of its encoders
    weight_decay: float = 0.01
    prototypes: int = 8
    init: str = "xavier"
    evidence: str = "exp"
    evidence_scale: float = 100.0
    target: Literal["h", "retrieval"] = "h"  # the target of u, over the corpus
    weight_uncertainty: float = 1.0
    weight_diversity: float = 1.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class FeaturePairs:
    """Features of media and captions, and the medium that each caption is paired with."""

    visual: Array  # (N, P); for a video the mean over its frames
    text: Array  # (M, Q); with a backbone the tokens (M, L)
    owners: Array  # (M,) row of the medium; wrong for shuffled captions
    frames: Array | None = None  # (N, J, P) of videos
    mask: Array | None = None  # (N, J) False for padding
    backbone: Backbone | None = None  # its text tower and its image projection are trained; it stays as it is

    def take_media(self, start: int, stop: int) -> "FeaturePairs":
        chosen = (self.owners >= start) & (self.owners < stop)
        frames, mask = (None if x is None else x[start:stop] for x in (self.frames, self.mask))
        pairs = replace(self, text=self.text[chosen], owners=self.owners[chosen] - start)
        return replace(pairs, visual=self.visual[start:stop], frames=frames, mask=mask)

    def media(self) -> tuple[Tensor, Tensor | None]:
        """Features of the frames (N, J, P) with their mask, or features of images (N, P)."""
        if self.frames is None or self.mask is None:
            return torch.from_numpy(self.visual), None
        return torch.from_numpy(self.frames), torch.from_numpy(self.mask)


class FeatureProjection(nn.Module):
    """A linear layer with random weights for standardized features."""

    mean: Tensor
    spread: Tensor

    def __init__(self, features: Tensor, dim: int) -> None:
        super().__init__()
        self.register_buffer("mean", features.mean(dim=0))
        self.register_buffer("spread", features.std(dim=0).mean().clamp_min(1e-6))
        self.linear = nn.Linear(features.shape[1], dim)

    def forward(self, features: Tensor) -> Tensor:
        return self.linear((features - self.mean) / self.spread)  # type: ignore[no-any-return]


class TextTower(nn.Module):
    """A copy of the text tower of a backbone, from tokens (N, L) to vectors (N, D)."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        tower: Any = deepcopy(find_causal_tower(backbone.model))
        tower.visual = None  # CLIP is its own text tower
        self.tower = tower

    def forward(self, tokens: Tensor) -> Tensor:
        """Captions of like length are encoded together, with little padding."""
        order = (tokens != 0).sum(dim=1).argsort(stable=True)
        parts = [encode_trimmed_tokens(self.tower, trim_padding(tokens[rows])) for rows in torch.split(order, CHUNK)]
        return torch.cat(parts)[order.argsort()]


def copy_image_projection(backbone: Backbone) -> nn.Linear:
    """The last layer of the image tower; for a tower without one, whose features are its embeddings, the identity."""
    if layer := last_linear(backbone.model.visual, "head"):
        return deepcopy(layer)
    layer = nn.Linear(backbone.dim, backbone.dim)
    nn.init.eye_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class Projections(nn.Module):
    """The trained model: maps features of media, and features or tokens of captions, to unit vectors; has a head."""

    visual: nn.Module
    text: nn.Module

    def __init__(self, pairs: FeaturePairs, config: ProjectionTraining) -> None:
        super().__init__()
        dim, scale = config.dim, 1 / 0.07
        if pairs.backbone is None:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(config.seed)
                self.visual = FeatureProjection(torch.from_numpy(pairs.visual), dim)
                self.text = FeatureProjection(torch.from_numpy(pairs.text), dim)
        else:
            dim, scale = pairs.backbone.dim, pairs.backbone.logit_scale
            self.visual, self.text = copy_image_projection(pairs.backbone), TextTower(pairs.backbone)
        self.log_scale = nn.Parameter(torch.tensor(math.log(scale)))
        kind = config.prototypes, config.init, config.evidence
        settings = HeadConfig(dim, *kind, scale=config.evidence_scale, clip_evidence="frames")
        self.head = PrototypeHead(settings, seed=config.seed)

    def embed_visual(self, features: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Embeddings of media (N, D), and of their frames (N, J, D) if they are videos."""
        vectors = F.normalize(self.visual(features), dim=-1)
        return (vectors, None) if mask is None else (pool_frames(vectors, mask), vectors)

    def embed_text(self, features: Tensor) -> Tensor:
        return F.normalize(self.text(features), dim=-1)

    @torch.no_grad()
    def embed(self, pairs: FeaturePairs) -> EmbeddingSet:
        visual, frames = self.embed_visual(*pairs.media())
        batches = torch.split(torch.from_numpy(pairs.text), TEXT_BATCH)
        text = torch.cat([self.embed_text(batch) for batch in batches]).numpy()
        media = MediaVectors(visual.numpy(), None if frames is None else frames.numpy(), pairs.mask)
        return EmbeddingSet(media, text, np.arange(len(visual)), pairs.owners)


def train_projections(pairs: FeaturePairs, config: ProjectionTraining, weights: Array | None = None) -> Projections:
    """Train on all pairs, each once an epoch, with AdamW, warm-up and cosine decay; `weights` (M,) are for InfoNCE."""
    model = Projections(pairs, config)
    target = RetrievalTarget() if config.target == "retrieval" else CorpusTarget(model.head.config.dim)
    (visual, mask), text = pairs.media(), torch.from_numpy(pairs.text)
    owners = torch.from_numpy(pairs.owners.astype(np.int64))
    weight = torch.ones(len(text)) if weights is None else torch.from_numpy(weights.astype(np.float32))
    projections = [*model.visual.parameters(), *model.text.parameters(), model.log_scale]
    optimizer = torch.optim.AdamW(
        [
            {"params": projections, "peak": config.rate},
            {"params": list(model.head.parameters()), "peak": config.prototype_rate},
        ],
        weight_decay=config.weight_decay,
    )
    generator = torch.Generator().manual_seed(config.seed)
    per_epoch = max(1, len(text) // config.batch)
    total = per_epoch * config.epochs
    for step in range(total):
        if step % per_epoch == 0:
            order = torch.randperm(len(text), generator=generator)
        rows = order[step % per_epoch * config.batch :][: config.batch]
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * scale_learning_rate(step, total, max(1, total // 20))
        media = owners[rows]
        visual_batch = visual[media], None if mask is None else mask[media]
        loss = compute_projection_loss(model, target, config, visual_batch, text[rows], media, weight[rows])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        with torch.no_grad():
            model.log_scale.clamp_(max=math.log(100.0))
    return model.eval()


def compute_projection_loss(
    model: Projections,
    target: UncertaintyTarget,
    config: ProjectionTraining,
    visual_features: tuple[Tensor, Tensor | None],  # (B, P) and None, or (B, J, P) and the mask of the frames
    text_features: Tensor,  # (B, Q)
    media: Tensor,  # (B,)
    weights: Tensor,  # (B,)
) -> Tensor:
    (visual, frames), text = model.embed_visual(*visual_features), model.embed_text(text_features)
    similarity = similarity_matrix(visual, frames, visual_features[1], text)
    logits = similarity * model.log_scale.exp()
    loss = info_nce(mask_false_negatives(logits, media), weights)
    if config.weight_uncertainty:
        h_visual, h_text = target(visual, text, logits)
        u_visual = model.head.uncertainty_visual(visual, frames, visual_features[1])
        follow = uncertainty_loss(u_visual, h_visual, lam=1.0)
        follow = follow + uncertainty_loss(model.head.uncertainty_text(text), h_text, lam=1.0)
        loss = loss + config.weight_uncertainty * follow
    if config.weight_diversity:
        spread = diversity_loss(model.head.visual) + diversity_loss(model.head.text)
        loss = loss + config.weight_diversity * spread
    return loss

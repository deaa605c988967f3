"""The training objective over a whole batch, and its gradient through encoders that see the batch in chunks.

Total = InfoNCE + w_u (L_uct visual + text) + w_d (L_div visual + text). The contrastive loss needs all embeddings of a
batch at once, but not all activations: in chunks, embeddings are first made without a graph, the loss gives their
derivatives, and each chunk is encoded again to hand these on to the weights. Same gradient, memory of one chunk.
"""

import hashlib
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from model.backbone import Backbone
from model.losses import diversity_loss, mean_similarities, uncertainty_loss
from model.model_errors import ModelError
from model.prototypes import PrototypeHead
from model.similarity import pool_frames, similarity_matrix
from model.training.trainable import embed_frames, tower_learns
from model.training.training_processes import ProcessGroup
from model.training.uncertainty_targets import Target


class ObjectiveError(ModelError):
    """A loss that is not a number."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """A batch on its way to the encoders; row i of everything is one pair."""

    pixels: Tensor  # (B, J, H, W, 3) uint8
    mask: Tensor  # (B, J) bool
    tokens: Tensor  # (B, L)
    numbers: Tensor  # (B,) int64, equal for pairs of one medium
    weights: Tensor  # (B,) of the pair in InfoNCE

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True, slots=True)
class Embedded:
    """The same batch behind the encoders."""

    frames: Tensor  # (B, J, D) unit vectors, zero where padded
    text: Tensor  # (B, D) unit vectors


@dataclass(frozen=True, slots=True)
class Terms:
    """What a step reports."""

    loss: float
    info_nce: float
    uncertainty: float
    diversity: float
    mean_u_visual: float
    mean_u_text: float


@dataclass(frozen=True, slots=True)
class Learner:
    """Everything that learns, with the weights of its loss terms. `target` None is the paper's in-batch h."""

    backbone: Backbone
    head: PrototypeHead
    target: Target | None
    weight_uncertainty: float
    weight_diversity: float
    autocast: Callable[[], AbstractContextManager[None]]

    @property
    def log_scale(self) -> Tensor:
        scale: Tensor = self.backbone.model.logit_scale
        return scale


def derive_seed(*parts: int) -> int:
    """A seed for each step, batch, process and chunk, so that nothing random needs to be stored for resuming."""
    digest = hashlib.blake2b(" ".join(map(str, parts)).encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big")


def encode(learner: Learner, pairs: Pairs, rows: slice, seed: int) -> Embedded:
    """Embeddings of some rows; the same seed gives the same dropout."""
    torch.manual_seed(seed)
    with learner.autocast():
        frames = embed_frames(learner.backbone, pairs.pixels[rows], pairs.mask[rows])
        text = learner.backbone.embed_tokens(pairs.tokens[rows])
    return Embedded(frames, text)


def objective(learner: Learner, pairs: Pairs, embedded: Embedded, processes: ProcessGroup) -> tuple[Tensor, Terms]:
    """The loss over the pairs of all processes; every process computes all of it."""
    frames, mask = gather_frames(embedded.frames, pairs.mask.to(embedded.frames.device), processes)
    text, numbers, weights = (processes.gather(t) for t in (embedded.text, pairs.numbers, pairs.weights))
    visual = pool_frames(frames, mask)  # (N, D)
    cosines = similarity_matrix(visual, frames, mask, text)  # (N, N)
    logits = cosines * learner.log_scale.exp()
    contrast = weighted_info_nce(without_false_negatives(logits, numbers), weights)
    u_visual, u_text = learner.head.uncertainty_visual(visual), learner.head.uncertainty_text(text)
    if learner.target is None:
        h_visual, h_text = mean_similarities(cosines)
        follow = uncertainty_loss(u_visual, h_visual) + uncertainty_loss(u_text, h_text)
    else:
        h_visual, h_text = learner.target(visual, text, logits)
        follow = uncertainty_loss(u_visual, h_visual, lam=1.0) + uncertainty_loss(u_text, h_text, lam=1.0)
    spread = diversity_loss(learner.head.visual) + diversity_loss(learner.head.text)
    total = contrast + learner.weight_uncertainty * follow + learner.weight_diversity * spread
    reported = (total, contrast, follow, spread, u_visual.mean(), u_text.mean())
    return total, Terms(*(value.item() for value in reported))


def weighted_info_nce(logits: Tensor, weights: Tensor) -> Tensor:
    """Symmetric InfoNCE of (N, N) with each pair counting by its weight (N,); `losses.info_nce` where they are equal.

    A pair of weight 0 still serves as a negative of the others: its medium and its caption are real.
    """
    truth = torch.arange(len(logits), device=logits.device)
    both = [F.cross_entropy(way, truth, reduction="none") for way in (logits, logits.T)]
    share = weights / weights.sum().clamp_min(1e-8)
    return sum((share * losses).sum() for losses in both) / 2  # type: ignore[return-value]


def gather_frames(frames: Tensor, mask: Tensor, processes: ProcessGroup) -> tuple[Tensor, Tensor]:
    """Frames and mask of all processes, padded to the longest video of any."""
    longest = max(processes.share(frames.shape[1]))
    missing = longest - frames.shape[1]
    return processes.gather(F.pad(frames, (0, 0, 0, missing))), processes.gather(F.pad(mask, (0, missing)))


def without_false_negatives(logits: Tensor, numbers: Tensor) -> Tensor:
    """Two captions of one medium in a batch are no negatives of each other: such entries leave the softmax."""
    same = numbers[:, None] == numbers[None, :]
    same.fill_diagonal_(False)
    return logits.masked_fill(same, -math.inf)


def add_gradient(
    learner: Learner, pairs: Pairs, processes: ProcessGroup, *, seed: int, chunk: int = 0, factor: float = 1.0
) -> Terms:
    """Add `factor` times the gradient of the objective to the weights, encoding `chunk` pairs at a time (0: all)."""
    size = chunk or len(pairs)
    parts = [slice(start, min(start + size, len(pairs))) for start in range(0, len(pairs), size)]
    if len(parts) == 1:
        total, terms = objective(learner, pairs, encode(learner, pairs, parts[0], derive_seed(seed, 0)), processes)
        check(terms)
        (factor * total).backward()  # type: ignore[no-untyped-call]
        return terms
    with torch.no_grad():
        made = [encode(learner, pairs, rows, derive_seed(seed, i)) for i, rows in enumerate(parts)]
    whole = Embedded(torch.cat([m.frames for m in made]), torch.cat([m.text for m in made]))
    whole.frames.requires_grad_(tower_learns(learner.backbone.model, visual=True))
    whole.text.requires_grad_(tower_learns(learner.backbone.model, visual=False))
    total, terms = objective(learner, pairs, whole, processes)
    check(terms)
    (factor * total).backward()  # type: ignore[no-untyped-call]
    if whole.frames.requires_grad or whole.text.requires_grad:
        for i, rows in enumerate(parts):
            hand_on(encode(learner, pairs, rows, derive_seed(seed, i)), whole, rows)
    return terms


def hand_on(part: Embedded, whole: Embedded, rows: slice) -> None:
    """Send the derivatives of the loss with respect to some embeddings back through the graph that made them."""
    sides = ((part.frames, whole.frames), (part.text, whole.text))
    known = [(made, leaf.grad[rows]) for made, leaf in sides if leaf.grad is not None and made.requires_grad]
    if known:
        torch.autograd.backward([made for made, _ in known], [gradient for _, gradient in known])


def check(terms: Terms) -> None:
    if not math.isfinite(terms.loss):
        raise ObjectiveError(f"the loss is {terms.loss}")

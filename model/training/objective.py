"""The training objective over a whole batch, and its gradient through encoders that see the batch in chunks.

Total = InfoNCE + w_u (L_uct visual + text) + w_d (L_div visual + text). With chunks, all embeddings are first computed
without a graph, and the loss gives their gradients. Each chunk is then encoded again to propagate these to the weights.
The gradient is the same; the activations of only one chunk are in memory.
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
from model.losses import compute_mean_similarities, diversity_loss, info_nce, uncertainty_loss
from model.model_errors import ModelError
from model.prototypes import PrototypeHead
from model.similarity import pool_frames, similarity_matrix
from model.training.released_objective import compute_released_terms
from model.training.trainable import embed_frames, is_tower_trainable
from model.training.training_processes import ProcessGroup
from model.training.uncertainty_targets import UncertaintyTarget


class ObjectiveError(ModelError):
    """A loss that is not a number."""


@dataclass(frozen=True, slots=True)
class TrainingPairs:
    """A batch before the encoders; row i of each tensor belongs to pair i."""

    pixels: Tensor  # (B, J, H, W, 3) uint8
    mask: Tensor  # (B, J) bool
    tokens: Tensor  # (B, L)
    numbers: Tensor  # (B,) int64, equal for pairs of one medium
    weights: Tensor  # (B,) weight of each pair in InfoNCE

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True, slots=True)
class EmbeddedPairs:
    """The same batch after the encoders."""

    frames: Tensor  # (B, J, D) unit vectors, or features for a temporal transformer; zero for padding
    text: Tensor  # (B, D) unit vectors


@dataclass(frozen=True, slots=True)
class LossTerms:
    """The loss of a step, its terms, and the mean uncertainties."""

    loss: float
    info_nce: float
    uncertainty: float
    diversity: float
    mean_u_visual: float
    mean_u_text: float


@dataclass(frozen=True, slots=True)
class Learner:
    """Everything that learns, and the weights of the loss terms. Without `target`, u follows the paper's in-batch h."""

    backbone: Backbone
    head: PrototypeHead
    target: UncertaintyTarget | None
    weight_uncertainty: float
    weight_diversity: float
    autocast: Callable[[], AbstractContextManager[None]]
    padded_frames: int = 0  # of each clip in the released program's loss (target = "released"); 0: the paper's loss

    @property
    def log_scale(self) -> Tensor:
        scale: Tensor = self.backbone.model.logit_scale
        return scale


def derive_seed(*parts: int) -> int:
    """A seed derived from step, batch, process and chunk, so that no random state has to be stored for resuming."""
    digest = hashlib.blake2b(" ".join(map(str, parts)).encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big")


def encode_rows(learner: Learner, pairs: TrainingPairs, rows: slice, seed: int) -> EmbeddedPairs:
    """Embed some rows of a batch; the same seed gives the same dropout."""
    torch.manual_seed(seed)
    with learner.autocast():
        frames = embed_frames(learner.backbone, pairs.pixels[rows], pairs.mask[rows], learner.padded_frames)
        text = learner.backbone.embed_tokens(pairs.tokens[rows])
    return EmbeddedPairs(frames, text)


def compute_objective(
    learner: Learner, pairs: TrainingPairs, embedded: EmbeddedPairs, processes: ProcessGroup
) -> tuple[Tensor, LossTerms]:
    """The loss over the pairs of all processes; every process computes the whole loss."""
    frames, mask = gather_padded_frames(embedded.frames, pairs.mask.to(embedded.frames.device), processes)
    text, numbers, weights = (processes.gather(t) for t in (embedded.text, pairs.numbers, pairs.weights))
    temporal = learner.backbone.temporal
    visual = pool_frames(frames, mask) if temporal is None else temporal.pool(frames, mask)  # (N, D)
    if learner.padded_frames:
        terms = compute_released_terms(visual, frames, text, learner.head, learner.log_scale.exp(), weights)
        parts = terms.similarity, terms.uncertainty, terms.diversity
        return weigh_terms(learner, *parts, terms.u_visual, terms.u_text)
    cosines = similarity_matrix(visual, frames, mask, text)  # (N, N)
    logits = cosines * learner.log_scale.exp()
    contrast = info_nce(mask_false_negatives(logits, numbers), weights)
    u_visual, u_text = learner.head.uncertainty_visual(visual, frames, mask), learner.head.uncertainty_text(text)
    target, lam = learner.target, None if learner.target is None else 1.0
    h_visual, h_text = target(visual, text, logits) if target else compute_mean_similarities(cosines)
    follow = uncertainty_loss(u_visual, h_visual, lam) + uncertainty_loss(u_text, h_text, lam)
    spread = diversity_loss(learner.head.visual) + diversity_loss(learner.head.text)
    return weigh_terms(learner, contrast, follow, spread, u_visual, u_text)


def weigh_terms(
    learner: Learner, contrast: Tensor, follow: Tensor, spread: Tensor, u_visual: Tensor, u_text: Tensor
) -> tuple[Tensor, LossTerms]:
    total = contrast + learner.weight_uncertainty * follow + learner.weight_diversity * spread
    reported = (total, contrast, follow, spread, u_visual.mean(), u_text.mean())
    return total, LossTerms(*(value.item() for value in reported))


def gather_padded_frames(frames: Tensor, mask: Tensor, processes: ProcessGroup) -> tuple[Tensor, Tensor]:
    """Frames and masks of all processes, padded to the longest video of any process."""
    longest = max(processes.share(frames.shape[1]))
    missing, unmasked = longest - frames.shape[1], longest - mask.shape[1]
    return processes.gather(F.pad(frames, (0, 0, 0, missing))), processes.gather(F.pad(mask, (0, unmasked)))


def mask_false_negatives(logits: Tensor, numbers: Tensor) -> Tensor:
    """Remove other pairs of the same medium from the softmax: two captions of one medium are not negatives."""
    same_medium = numbers[:, None] == numbers[None, :]
    same_medium.fill_diagonal_(False)
    return logits.masked_fill(same_medium, -math.inf)


def add_gradient(
    learner: Learner, pairs: TrainingPairs, processes: ProcessGroup, *, seed: int, chunk: int = 0, factor: float = 1.0
) -> LossTerms:
    """Add `factor` times the gradient of the objective to the weights; `chunk` pairs are encoded at a time (0: all)."""
    size = chunk or len(pairs)
    parts = [slice(start, min(start + size, len(pairs))) for start in range(0, len(pairs), size)]
    if len(parts) == 1:
        whole = encode_rows(learner, pairs, parts[0], derive_seed(seed, 0))
    else:
        with torch.no_grad():
            chunks = [encode_rows(learner, pairs, rows, derive_seed(seed, i)) for i, rows in enumerate(parts)]
        whole = EmbeddedPairs(torch.cat([part.frames for part in chunks]), torch.cat([part.text for part in chunks]))
        whole.frames.requires_grad_(is_tower_trainable(learner.backbone.model, visual=True))
        whole.text.requires_grad_(is_tower_trainable(learner.backbone.model, visual=False))
    total, terms = compute_objective(learner, pairs, whole, processes)
    if not math.isfinite(terms.loss):
        raise ObjectiveError(f"the loss is {terms.loss}")
    (factor * total).backward()  # type: ignore[no-untyped-call]
    if len(parts) > 1 and (whole.frames.requires_grad or whole.text.requires_grad):
        for i, rows in enumerate(parts):
            backpropagate_rows(encode_rows(learner, pairs, rows, derive_seed(seed, i)), whole, rows)
    return terms


def backpropagate_rows(part: EmbeddedPairs, whole: EmbeddedPairs, rows: slice) -> None:
    """Propagate the gradient of the loss with respect to some embeddings through the graph that computed them."""
    sides = ((part.frames, whole.frames), (part.text, whole.text))
    pairs = [(side, leaf.grad[rows]) for side, leaf in sides if leaf.grad is not None and side.requires_grad]
    if pairs:
        torch.autograd.backward([side for side, _ in pairs], [gradient for _, gradient in pairs])

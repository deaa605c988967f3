"""The target of fitted prototypes: how much of the corpus fits an item, with hubs discounted.

An item x retrieves y with probability q(y) proportional to exp(1.5 s (similarity(x, y) - hub(y) / 2)), where s is the
encoder's scale and hub(y) the log-mean-exp of y's own similarities at 2s; the target is the entropy of q. The
candidates are a bounded random sample of the corpus *and the own partner*: without it, the entropy does not predict
which items fail in retrieval (docs/results.md). It counts as often as its medium has pairs, as every rival does.

Two things are added to the entropy, in nats: for a caption, how much of the corpus its words alone fit (`vagueness`);
for a clip, how much its frames disagree, which is log(n) for n scenes that have nothing in common.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from model.matrix_products import multiply_by_onednn
from model.similarity import combine_with_best_frame

CANDIDATES = 2048  # pairs that all others are compared with
BLOCK_SIZE = 1 << 19  # similarities in memory at a time; more than the cache holds take twice the time
SHARPNESS = 1.5  # of the retrieval distribution, relative to the encoder's scale
DISAGREEMENT_WEIGHT = 2.0  # with 1, films of three scenes do not stand out from plain single scenes (docs/results.md)
NO_RIVAL = -1.0  # similarity of pairs of the same medium


@dataclass(frozen=True)
class FitPairs:
    """Unit vectors that prototypes are fitted on, and what is known of them. N = M if they are pairs."""

    visual: Tensor  # (N, D)
    text: Tensor  # (M, D)
    frames: Tensor | None = None  # (C, J, D) of the last C media, which are clips
    mask: Tensor | None = None  # (C, J) which frames are valid
    groups: Tensor | None = None  # (N,) pairs of the same group share a medium
    vagueness: Tensor | None = None  # (M,) what a caption's words add to its entropy, in nats

    @property
    def clips(self) -> int:
        return 0 if self.frames is None else len(self.frames)

    @property
    def images(self) -> int:
        return len(self.visual) - self.clips

    def take_pairs(self, rows: Tensor) -> "FitPairs":
        """Some pairs (N = M); `rows` must ascend."""
        clips = rows[rows >= self.images] - self.images
        of_clips = (None if part is None else part[clips] for part in (self.frames, self.mask))
        of_pairs = (None if part is None else part[rows] for part in (self.groups, self.vagueness))
        return FitPairs(self.visual[rows], self.text[rows], *of_clips, *of_pairs)

    def take_media(self, rows: Tensor) -> "FitPairs":
        """The media of `rows`, which must ascend, and no captions."""
        return replace(self, text=self.visual, vagueness=None).take_pairs(rows)

    def compare(self, text: Tensor) -> Tensor:
        """Similarities (N, T) of all media to captions (T, D)."""
        similarity = self.visual @ text.T
        if self.frames is None:
            return similarity
        rows = max(1, BLOCK_SIZE // max(1, self.frames.shape[1] * len(text)))
        for start in range(0, self.clips, rows):
            block = slice(start, min(start + rows, self.clips))
            target = slice(self.images + block.start, self.images + block.stop)
            mask = None if self.mask is None else self.mask[block]
            similarity[target] = combine_with_best_frame(similarity[target], self.frames[block] @ text.T, mask)
        return similarity

    def compare_own(self) -> Tensor:
        """Similarity (N,) of each pair."""
        own = (self.visual * self.text).sum(dim=1)
        if self.frames is None:
            return own
        by_frame = (self.frames @ self.text[self.images :].unsqueeze(-1)).squeeze(-1)  # (C, J)
        clips = combine_with_best_frame(own[self.images :, None], by_frame.unsqueeze(-1), self.mask)
        return torch.cat([own[: self.images], clips[:, 0]])


@dataclass(frozen=True)
class Rivals:
    """Sums over the similarities of N items to all items but their own partners."""

    hub: Tensor  # (N,) log-mean-exp of the similarities at twice the scale
    mass: Tensor  # (N,) logarithm of the sum of exp(logit)
    logit: Tensor  # (N,) expected logit


def measure_mean_similarity(pairs: FitPairs) -> tuple[Tensor, Tensor]:
    """h of equation 6, of media (N,) and captions (M,): mean similarity to all items of the other modality."""
    of_media, of_text = (
        measure_corpus_similarity(pairs.visual, pairs.text),
        measure_corpus_similarity(pairs.text, pairs.visual),
    )
    if pairs.clips:
        sample = pairs.text[:: -(-len(pairs.text) // CANDIDATES)]
        clips = torch.arange(pairs.images, len(pairs.visual), device=sample.device)
        of_media = torch.cat([of_media[: pairs.images], pairs.take_media(clips).compare(sample).mean(dim=1)])
    return of_media, of_text


def measure_corpus_similarity(embeddings: Tensor, candidates: Tensor) -> Tensor:
    """Mean cosine (N,) of unit vectors (N, D) to all unit vectors (M, D) of the other modality."""
    return embeddings @ candidates.mean(dim=0, dtype=torch.float64).to(embeddings.dtype)


def measure_retrieval_entropy(pairs: FitPairs, scale: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Targets in nats of media (N,) and captions (N,)."""
    count, device = len(pairs.text), pairs.text.device
    groups = torch.arange(count, device=device) if pairs.groups is None else pairs.groups
    chosen = torch.randperm(count, generator=generator)[:CANDIDATES].sort().values.to(device)
    sample, sample_groups = pairs.take_pairs(chosen), groups[chosen]
    square = sample.compare(sample.text)
    square[sample_groups[:, None] == sample_groups[None, :]] = NO_RIVAL
    hub_visual, hub_text = (compute_hubs(matrix, scale) for matrix in (square, square.T))

    def compare_media(rows: Tensor) -> Tensor:
        return pairs.take_media(rows).compare(sample.text)

    def compare_captions(rows: Tensor) -> Tensor:
        text = pairs.text[rows]
        return text @ sample.visual.T if sample.frames is None else sample.compare(text).T.contiguous()

    columns = len(chosen) * (1 if pairs.frames is None else pairs.frames.shape[1])
    step = max(16, BLOCK_SIZE // columns)

    @multiply_by_onednn()
    def reduce(compare: Callable[[Tensor], Tensor], hubs: Tensor) -> Rivals:
        blocks = torch.split(torch.arange(count, device=device), step)
        parts = [reduce_rivals(compare(rows), groups[rows], sample_groups, hubs, scale) for rows in blocks]
        return Rivals(*(torch.cat(values) for values in zip(*parts, strict=True)))

    media, captions = reduce(compare_media, hub_text), reduce(compare_captions, hub_visual)
    own, weight = pairs.compare_own(), math.log(count / len(chosen))
    _, number, sizes = torch.unique(groups, return_inverse=True, return_counts=True)
    copies = sizes[number].log()  # pairs of the own medium
    of_media = add_own_partner(media, SHARPNESS * scale * (own - captions.hub / 2), copies, weight)
    if pairs.frames is not None:
        disagreement = measure_frame_disagreement(pairs.frames, pairs.mask, sample.text, hub_text, scale)
        of_media[pairs.images :] += DISAGREEMENT_WEIGHT * disagreement
    of_captions = add_own_partner(captions, SHARPNESS * scale * (own - media.hub / 2), copies, weight)
    return of_media, of_captions if pairs.vagueness is None else of_captions + pairs.vagueness


def measure_frame_disagreement(frames: Tensor, mask: Tensor | None, text: Tensor, hubs: Tensor, scale: float) -> Tensor:
    """Entropy of the mean of the frames' distributions over captions less the mean of their entropies: (C,) in nats."""
    valid = torch.ones(frames.shape[:2], device=frames.device) if mask is None else mask.to(frames.dtype)
    weights = (valid / valid.sum(dim=1, keepdim=True).clamp(min=1)).unsqueeze(1)  # (C, 1, J)
    parts = []
    step = max(1, BLOCK_SIZE // max(1, frames.shape[1] * len(text)))
    for block, weight in zip(frames.split(step), weights.split(step), strict=True):  # type: ignore[no-untyped-call]
        q = (SHARPNESS * scale * (block @ text.T - hubs / 2)).softmax(dim=-1)  # (B, J, R)
        of_frames = weight @ torch.special.entr(q).sum(dim=-1, keepdim=True)
        parts.append(torch.special.entr(weight @ q).sum(dim=(1, 2)) - of_frames[:, 0, 0])
    return torch.cat(parts)


def compute_hubs(similarity: Tensor, scale: float) -> Tensor:
    """Log-mean-exp (N,) of similarities (N, R) at twice the scale, without those that are NO_RIVAL."""
    top, count = similarity.amax(dim=1), (similarity != NO_RIVAL).sum(dim=1).clamp(min=1)
    mass = exponentiate((similarity - top[:, None]).mul_(2 * scale)).sum(dim=1)
    return top + (mass / count).log() / (2 * scale)


def exponentiate(logits: Tensor) -> Tensor:
    """exp of logits that are at most 0, in their place. Of those below -88, torch's takes ten times as long."""
    return logits.clamp_(min=-80).exp_()


def reduce_rivals(
    similarity: Tensor, groups: Tensor, sample_groups: Tensor, hubs: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The fields of `Rivals` for a block of similarities (B, R), which is overwritten; the sample's `hubs` are (R,)."""
    similarity[groups[:, None] == sample_groups[None, :]] = NO_RIVAL
    own_hubs = compute_hubs(similarity, scale)
    logits = similarity.sub_(hubs / 2).mul_(SHARPNESS * scale)
    top = logits.amax(dim=1)
    weights = exponentiate(logits - top[:, None])
    mass = weights.sum(dim=1)
    return own_hubs, top + mass.log(), weights.mul_(logits).sum(dim=1) / mass


def add_own_partner(rivals: Rivals, own: Tensor, copies: Tensor, weight: float) -> Tensor:
    """Entropy (N,) with the logits of the `own` partner (N,), exp(`copies`) times, and rivals exp(`weight`) times."""
    total = torch.logaddexp(rivals.mass + weight, own + copies)
    share = (own + copies - total).exp()
    return total - (1 - share) * rivals.logit - share * own

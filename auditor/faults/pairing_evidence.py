"""The evidence that a caption belongs to a medium: the log-likelihood ratio log(f1 / f0) of their similarity.

f0 is the density of the statistic over random re-pairings of the corpus, f1 the density over pairs that belong
together. The statistic is the cosine minus the level of both sides against a bounded reference sample, so that media
near every caption (hubs) do not look like the partner of every caption. Log ratios add up over rows, which reveals
patterns that no single row shows. NumPy only.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from auditor.score.statistics.mismatch import fit_isotonic
from auditor.score.statistics.rivals import TIE, multiply_blocks
from auditor.vectors import Bools, Floats, Rows, multiply_rows

LEVEL_WEIGHT = 0.5
MOST = 9.0  # largest evidence of one pair in nats; beyond it, the tails of f0 and f1 are guesses
BINS = 64
DRAWS = 200_000


@dataclass(frozen=True, slots=True)
class SampleVectors:
    """The media vectors and mean caption vectors of samples, in corpus order; `present` is false if not encoded."""

    visual: Floats  # (N, D)
    text: Floats  # (N, D)
    present: Bools  # (N,)
    levels: tuple[Floats, Floats] | None = None  # (N,) of media and captions against the reference, if computed

    def __len__(self) -> int:
        return len(self.visual)

    def take(self, rows: Rows) -> "SampleVectors":
        levels = (self.levels[0][rows], self.levels[1][rows]) if self.levels else None
        return SampleVectors(self.visual[rows], self.text[rows], self.present[rows], levels)

    def with_levels(self, reference: "ReferencePairs") -> "SampleVectors":
        """The same samples with their levels, so that repeated use computes them once."""
        return replace(self, levels=self.compute_levels(reference))

    def compute_levels(self, reference: "ReferencePairs") -> tuple[Floats, Floats]:
        return self.levels or (reference.visual_level(self.visual), reference.text_level(self.text))


@dataclass(frozen=True, slots=True)
class ReferencePairs:
    """Random media and captions of the corpus, which show what is near everything."""

    visual: Floats  # (R, D)
    text: Floats  # (R, D)
    scale: float
    shard: tuple[str, ...] = ()  # (R,) the shard of each pair, if known

    def visual_level(self, visual: Floats) -> Floats:
        return compute_level(visual, self.text, self.scale)

    def text_level(self, text: Floats) -> Floats:
        return compute_level(text, self.visual, self.scale)


def compute_level(vectors: Floats, other_vectors: Floats, scale: float) -> Floats:
    """Log-mean-exp of the similarities to `other_vectors` at temperature 1/scale, in units of similarity; (N,)."""
    levels = np.empty(len(vectors), np.float32)
    for rows, logits in multiply_blocks(vectors, other_vectors):
        top = logits.max(axis=1, keepdims=True)
        logits -= top
        logits *= np.float32(scale)
        mass = np.exp(logits, out=logits).mean(axis=1)
        levels[rows] = top[:, 0] + np.log(mass) / np.float32(scale)
    return levels


@dataclass(frozen=True, slots=True)
class PairingEvidence:
    """The log-likelihood ratio as an increasing function of the statistic."""

    score: Floats  # (G,) increasing
    ratio: Floats  # (G,) nats

    def log_ratio(self, score: Floats) -> Floats:
        return np.interp(score, self.score, self.ratio).astype(np.float32)

    def lowest_score(self, ratio: float) -> float:
        """A statistic below which the evidence is less than `ratio`; infinite if it is always less."""
        place = int(np.searchsorted(self.ratio, ratio))
        return -np.inf if place == 0 else float(self.score[place - 1]) if place < len(self.ratio) else np.inf


def fit_evidence(together: Floats, apart: Floats) -> PairingEvidence:
    """Fit the ratio to the statistic of pairs that (mostly) belong together and of pairs that do not.

    Pairs of the corpus are a mixture f = pi f0 + (1 - pi) f1; pi is estimated from the low scores, where f1 is zero.
    """
    bins = int(np.clip(len(together) // 8, 4, BINS))
    as_many = np.sort(apart)[:: max(1, len(apart) // max(1, len(together)))]
    edges = np.unique(np.quantile(np.concatenate([together, as_many]), np.linspace(0, 1, bins)))
    if edges[-1] - edges[0] < TIE:  # all pairs look alike: no evidence for or against any of them
        return PairingEvidence(edges[:1].astype(np.float32), np.zeros(1, np.float32))
    f, f0 = _bin_shares(together, edges), _bin_shares(apart, edges)
    low = np.cumsum(f0) <= 0.5
    pi = float(np.clip(f[low].sum() / max(f0[low].sum(), 1e-9), 0, 0.98))
    f1 = np.maximum(f - pi * f0, 0) + 0.5 / len(together)
    ratio = fit_isotonic(np.log(f1 / f1.sum()) - np.log(f0), f0 + f1)
    centers = (edges[1:] + edges[:-1]) / 2
    return PairingEvidence(centers.astype(np.float32), np.clip(ratio, -MOST, MOST).astype(np.float32))


def _bin_shares(values: Floats, edges: Floats) -> npt.NDArray[np.float64]:
    place = np.clip(np.searchsorted(edges, values, "right") - 1, 0, len(edges) - 2)
    counts = np.bincount(place, minlength=len(edges) - 1) + 0.5
    return np.asarray(counts / counts.sum(), np.float64)


def compute_pair_statistic(cosine: Floats, visual_level: Floats, text_level: Floats) -> Floats:
    return cosine - np.float32(LEVEL_WEIGHT) * (visual_level + text_level)


def score_all_pairs(visual: Floats, text: Floats, reference: ReferencePairs) -> Floats:
    """The statistic of every caption (N, D) with every medium (M, D): (N, M)."""
    return compute_pair_statistic(text @ visual.T, reference.visual_level(visual), reference.text_level(text)[:, None])


def score_cross_pairs(samples: SampleVectors, reference: ReferencePairs) -> Floats:
    """The statistic of every caption with every medium of the same samples: (N, N)."""
    visual_level, text_level = samples.compute_levels(reference)
    return compute_pair_statistic(samples.text @ samples.visual.T, visual_level, text_level[:, None])


def score_own_pairs(samples: SampleVectors, reference: ReferencePairs) -> Floats:
    """The statistic of each present sample's own pair."""
    present = samples.take(samples.present)
    cosine = np.einsum("nd,nd->n", present.text, present.visual)
    return compute_pair_statistic(cosine, *present.compute_levels(reference))


def score_random_pairs(samples: SampleVectors, reference: ReferencePairs) -> Floats:
    """The statistic of captions with random media of the same samples, which is distributed as f0."""
    present = samples.take(samples.present)
    generator = np.random.default_rng(0)
    caption = generator.integers(0, len(present), DRAWS)
    medium = (caption + generator.integers(1, max(2, len(present)), DRAWS)) % len(present)
    cosine = multiply_rows(present.text, caption, present.visual, medium)
    visual_level, text_level = present.compute_levels(reference)
    return compute_pair_statistic(cosine, visual_level[medium], text_level[caption])

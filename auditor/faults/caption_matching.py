"""Assign captions to media within a permuted block, with the probability that each assignment is right.

Sinkhorn's algorithm turns the similarities of a block into a doubly stochastic matrix, whose entries approximate the
posterior that two belong together; a linear assignment picks one medium for each caption. How often it is right is
measured: sound pairs of the same corpus are permuted in a block of the same size, with as many captions without a
medium, and assigned by the same function.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment
from scipy.special import logsumexp

from auditor.faults.pairing_evidence import ReferencePairs, SampleVectors, score_all_pairs
from auditor.score.statistics.mismatch import fit_isotonic
from auditor.vectors import Bools, Floats, Ints

Doubles = npt.NDArray[np.float64]
ROUNDS = 30  # of Sinkhorn's algorithm; more do not change the assignment
SHARPNESS = np.geomspace(2, 300, 24)  # inverse temperatures tried
LARGEST = 4096  # samples matched at once: 64 MB of similarities
TRIALS = 4  # permuted blocks of sound pairs from which the probabilities are fitted
FEWEST_SOUND = 50


@dataclass(frozen=True, slots=True)
class Assignment:
    """For each sample, the medium assigned to its captions and the entry of the doubly stochastic matrix."""

    medium: Ints  # (N,)
    share: Floats  # (N,) in 0..1


@dataclass(frozen=True, slots=True)
class MatchConfidence:
    """The probability that an assignment is right, as an increasing function of its share."""

    share: Doubles
    right: Doubles
    mean: float  # of the shares it was fitted to

    def probability(self, share: Floats) -> Floats:
        return np.interp(share, self.share, self.right).astype(np.float32)


def assign_media(score: Floats, sharpness: float) -> Assignment:
    share = run_sinkhorn(score, sharpness)
    rows, medium = linear_sum_assignment(np.log(share + 1e-12), maximize=True)
    return Assignment(medium.astype(np.int64), share[rows, medium].astype(np.float32))


def run_sinkhorn(score: Floats, sharpness: float) -> Doubles:
    """Scale exp(sharpness * score) until rows and columns sum to one."""
    mass: Doubles = np.exp(sharpness * (score.astype(np.float64) - score.max(axis=1, keepdims=True)))
    for _ in range(ROUNDS):
        mass /= np.maximum(mass.sum(axis=0, keepdims=True), 1e-300)
        mass /= np.maximum(mass.sum(axis=1, keepdims=True), 1e-300)
    return mass


def fit_sharpness(score: Floats) -> float:
    """The inverse temperature that maximizes the softmax likelihood of each caption's own medium (the diagonal)."""

    def loss(sharpness: float) -> float:
        logits = sharpness * score.astype(np.float64)
        return float((logsumexp(logits, axis=1) - np.diagonal(logits)).mean())

    return float(min(SHARPNESS, key=loss))


def calibrate_confidence(
    sound: SampleVectors, reference: ReferencePairs, block: SampleVectors, missing: float, sharpness: float, seed: int
) -> MatchConfidence:
    """Measure how often assignments are right, on sound pairs permuted like `block`, a share `missing` without medium.

    If there are fewer sound pairs than samples in the block, samples of the block itself fill it up, because more
    candidates mean more errors.
    """
    generator = np.random.default_rng(seed)
    count = min(len(block), int(len(sound) / (1 + missing)))
    shares, right = [], []
    for _ in range(TRIALS):
        chosen = generator.permutation(len(sound))
        inside, strangers = chosen[:count], chosen[count : count + round(missing * count)]
        swapped = inside.copy()
        swapped[: len(strangers)] = strangers
        filler = generator.permutation(len(block))[: len(block) - count]
        visual = np.concatenate([sound.visual[swapped], block.visual[filler]])
        text = np.concatenate([sound.text[inside], block.text[filler]])
        assignment = assign_media(score_all_pairs(visual, text, reference), sharpness)
        shares.append(assignment.share[:count])
        right.append((assignment.medium[:count] == np.arange(count)) & (np.arange(count) >= len(strangers)))
    return fit_confidence(np.concatenate(shares), np.concatenate(right))


def fit_confidence(share: Floats, right: Bools) -> MatchConfidence:
    """Isotonic regression of correctness on the share, over bins of equally many assignments.

    Half a wrong assignment is added to each bin, so that no probability is 1.
    """
    order = np.argsort(share, kind="stable")
    parts = np.array_split(order, min(60, max(1, len(order) // 20)))
    center = np.array([share[part].mean() for part in parts])
    rate = np.array([right[part].sum() / (len(part) + 0.5) for part in parts])
    weight = np.array([len(part) for part in parts], np.float64)
    return MatchConfidence(center, fit_isotonic(rate, weight), float(share.mean()))

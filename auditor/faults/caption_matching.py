"""Which caption belongs to which medium, within a block in which they were mixed up, and how sure that is.

The similarities of a block become a doubly stochastic matrix (Sinkhorn), whose entries are close to the posterior that
two belong together; a linear assignment picks one medium for each caption. How often that is right is not assumed but
measured: sound pairs of the same corpus are mixed up in a block of the same size, with as many captions without a
medium, and matched by the same function.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

from auditor.faults.pairing_evidence import Reference, Scene, increasing, scores
from auditor.vectors import Floats, Ints

Doubles = npt.NDArray[np.float64]
ROUNDS = 30  # of Sinkhorn; more change nothing that matters
SHARPNESS = np.geomspace(2, 300, 24)  # inverse temperatures tried
LARGEST = 4096  # samples matched at once: 64 MB of similarities
TRIALS = 4  # blocks of sound pairs that are mixed up to learn the probabilities
FEWEST_SOUND = 50


@dataclass(frozen=True, slots=True)
class Matching:
    """For each sample the medium that its captions fit best, and the entry of the doubly stochastic matrix."""

    medium: Ints  # (N,)
    share: Floats  # (N,) in 0..1


@dataclass(frozen=True, slots=True)
class Confidence:
    """The probability that a match is right, as an increasing function of its share."""

    share: Doubles
    right: Doubles
    mean: float  # of the shares it was learned from

    def of(self, share: Floats) -> Floats:
        return np.interp(share, self.share, self.right).astype(np.float32)


def match(score: Floats, sharpness: float) -> Matching:
    """The assignment of media to captions that is likeliest as a whole."""
    share = sinkhorn(score, sharpness)
    rows, medium = linear_sum_assignment(np.log(share + 1e-12), maximize=True)
    return Matching(medium.astype(np.int64), share[rows, medium].astype(np.float32))


def sinkhorn(score: Floats, sharpness: float) -> Doubles:
    """exp(sharpness * score) scaled until rows and columns sum to one."""
    mass: Doubles = np.exp(sharpness * (score.astype(np.float64) - score.max(axis=1, keepdims=True)))
    for _ in range(ROUNDS):
        mass /= np.maximum(mass.sum(axis=0, keepdims=True), 1e-300)
        mass /= np.maximum(mass.sum(axis=1, keepdims=True), 1e-300)
    return mass


def fit_sharpness(score: Floats) -> float:
    """The inverse temperature at which the softmax over media is likeliest to find each caption its own (diagonal)."""

    def loss(sharpness: float) -> float:
        logits = sharpness * score.astype(np.float64)
        top = logits.max(axis=1)
        return float((top + np.log(np.exp(logits - top[:, None]).sum(axis=1)) - np.diagonal(logits)).mean())

    return float(min(SHARPNESS, key=loss))


def learn_confidence(
    sound: Scene, reference: Reference, block: Scene, missing: float, sharpness: float, seed: int = 0
) -> Confidence:
    """How often matches are right, from sound pairs mixed up like `block`, a share `missing` without medium.

    Where there are fewer sound pairs than the block is large, samples of the block itself fill it up: the more there
    are to choose from, the more often a choice is wrong.
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
        found = match(scores(visual, np.concatenate([sound.text[inside], block.text[filler]]), reference), sharpness)
        shares.append(found.share[:count])
        right.append((found.medium[:count] == np.arange(count)) & (np.arange(count) >= len(strangers)))
    return fit_confidence(np.concatenate(shares), np.concatenate(right))


def fit_confidence(share: Floats, right: npt.NDArray[np.bool_], bins: int = 60) -> Confidence:
    """Isotonic regression of being right on the share, over bins of equally many matches.

    Half a wrong match is added to each bin: nothing is certain because it has not gone wrong yet.
    """
    order = np.argsort(share, kind="stable")
    parts = np.array_split(order, min(bins, max(1, len(order) // 20)))
    centre = np.array([share[part].mean() for part in parts])
    rate = np.array([right[part].sum() / (len(part) + 0.5) for part in parts])
    weight = np.array([len(part) for part in parts], np.float64)
    return Confidence(centre, increasing(rate, weight), float(share.mean()))

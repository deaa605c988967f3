"""How strongly similarities speak for "this caption belongs to this medium": the log of f1 / f0.

f0 is the density of the statistic over random re-pairings of the corpus, f1 that over pairs that belong together. The
statistic is the cosine less the level of both sides against a bounded reference sample, so that media near every
caption (hubs) do not look like everybody's partner. A ratio can be added up over rows, which is what makes patterns
visible that no single row shows. NumPy only.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from auditor.vectors import Bools, Floats, Rows

LEVEL_WEIGHT = 0.5
MOST = 9.0  # nats that one pair may say for or against: beyond, the tails of f0 and f1 are guesses
BINS = 64
DRAWS = 200_000
ROWS_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class Scene:
    """Samples of the corpus in its order: media, and the mean of each one's captions.

    A sample that could not be encoded keeps its place with `present` false.
    """

    visual: Floats  # (N, D)
    text: Floats  # (N, D)
    present: Bools  # (N,)

    def __len__(self) -> int:
        return len(self.visual)

    def take(self, rows: Rows) -> "Scene":
        return Scene(self.visual[rows], self.text[rows], self.present[rows])


@dataclass(frozen=True, slots=True)
class Reference:
    """Random media and captions of the corpus, to tell what is near everything."""

    visual: Floats  # (R, D)
    text: Floats  # (R, D)
    scale: float
    shard: tuple[str, ...] = ()  # (R) where they are from, where that is known

    def visual_level(self, visual: Floats) -> Floats:
        return level(visual, self.text, self.scale)

    def text_level(self, text: Floats) -> Floats:
        return level(text, self.visual, self.scale)


def level(vectors: Floats, others: Floats, scale: float) -> Floats:
    """Log-mean-exp of the similarities to `others` at temperature 1/scale, in units of similarity; (N,)."""
    found = np.empty(len(vectors), np.float32)
    for start in range(0, len(vectors), ROWS_AT_ONCE):
        logits = (vectors[start : start + ROWS_AT_ONCE] @ others.T) * np.float32(scale)
        top = logits.max(axis=1, keepdims=True)
        mass = np.exp(logits - top).mean(axis=1)
        found[start : start + ROWS_AT_ONCE] = (top[:, 0] + np.log(mass)) / np.float32(scale)
    return found


@dataclass(frozen=True, slots=True)
class Evidence:
    """The log-ratio as an increasing function of the statistic."""

    score: Floats  # (G,) increasing
    ratio: Floats  # (G,) nats

    def of(self, score: Floats) -> Floats:
        return np.interp(score, self.score, self.ratio).astype(np.float32)


def fit_evidence(together: Floats, apart: Floats) -> Evidence:
    """The ratio from the statistic of pairs that (mostly) belong together and of pairs that do not.

    Pairs as they stand are a mixture f = pi f0 + (1 - pi) f1; pi is read off the low scores, where f1 has nothing.
    """
    bins = int(np.clip(len(together) // 8, 4, BINS))
    edges = np.unique(np.quantile(np.concatenate([together, _thinned(apart, len(together))]), np.linspace(0, 1, bins)))
    f = _share(together, edges)
    f0 = _share(apart, edges)
    low = np.cumsum(f0) <= 0.5
    pi = float(np.clip(f[low].sum() / max(f0[low].sum(), 1e-9), 0, 0.98))
    f1 = np.maximum(f - pi * f0, 0) + 0.5 / len(together)
    ratio = increasing(np.log(f1 / f1.sum()) - np.log(f0), f0 + f1)
    centres = (edges[1:] + edges[:-1]) / 2
    return Evidence(centres.astype(np.float32), np.clip(ratio, -MOST, MOST).astype(np.float32))


def _thinned(values: Floats, count: int) -> Floats:
    return np.sort(values)[:: max(1, len(values) // max(1, count))]


def _share(values: Floats, edges: Floats) -> npt.NDArray[np.float64]:
    place = np.clip(np.searchsorted(edges, values, "right") - 1, 0, len(edges) - 2)
    counts = np.bincount(place, minlength=len(edges) - 1) + 0.5
    return np.asarray(counts / counts.sum(), np.float64)


def increasing(value: npt.NDArray[np.float64], weight: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Isotonic regression by pooling adjacent violators."""
    blocks: list[list[float]] = []  # mean, weight, size
    for mean, mass in zip(value.tolist(), weight.tolist(), strict=True):
        blocks.append([mean, mass, 1])
        while len(blocks) > 1 and blocks[-2][0] >= blocks[-1][0]:
            last, before = blocks.pop(), blocks.pop()
            mass = before[1] + last[1]
            blocks.append([(before[0] * before[1] + last[0] * last[1]) / mass, mass, before[2] + last[2]])
    return np.repeat([block[0] for block in blocks], [int(block[2]) for block in blocks])


def statistic(cosine: Floats, visual_level: Floats, text_level: Floats) -> Floats:
    return cosine - np.float32(LEVEL_WEIGHT) * (visual_level + text_level)


def scores(visual: Floats, text: Floats, reference: Reference) -> Floats:
    """The statistic of every caption (N, D) with every medium (M, D): (N, M)."""
    return statistic(text @ visual.T, reference.visual_level(visual)[None, :], reference.text_level(text)[:, None])


def own_scores(scene: Scene, reference: Reference) -> Floats:
    """The statistic of the samples that are there, as they stand."""
    there = scene.take(scene.present)
    cosine = np.einsum("nd,nd->n", there.text, there.visual, dtype=np.float32)
    return statistic(cosine, reference.visual_level(there.visual), reference.text_level(there.text))


def random_scores(scene: Scene, reference: Reference, seed: int = 0, draws: int = DRAWS) -> Floats:
    """The statistic of captions with random media of the same samples: f0."""
    there = scene.take(scene.present)
    generator = np.random.default_rng(seed)
    caption = generator.integers(0, len(there), draws)
    medium = (caption + generator.integers(1, max(2, len(there)), draws)) % len(there)
    found = np.empty(draws, np.float32)
    for start in range(0, draws, 16 * ROWS_AT_ONCE):
        rows = slice(start, start + 16 * ROWS_AT_ONCE)
        found[rows] = np.einsum("nd,nd->n", there.text[caption[rows]], there.visual[medium[rows]], dtype=np.float32)
    return statistic(found, reference.visual_level(there.visual)[medium], reference.text_level(there.text)[caption])

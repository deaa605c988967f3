"""How strongly similarities speak for "this caption belongs to this medium": the log of f1 / f0.

f0 is the density of the statistic over random re-pairings of the corpus, f1 that over pairs that belong together. The
statistic is the cosine less the level of both sides against a bounded reference sample, so that media near every
caption (hubs) do not look like everybody's partner. A ratio can be added up over rows, which is what makes patterns
visible that no single row shows. NumPy only.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from auditor.vectors import Bools, Floats, Ints, Rows

LEVEL_WEIGHT = 0.5
MOST = 9.0  # nats that one pair may say for or against: beyond, the tails of f0 and f1 are guesses
BINS = 64
DRAWS = 200_000
ROWS_AT_ONCE = 1024
DRAWS_AT_ONCE = 512
CELLS = (1024, 4096, 16384, 65536)  # of the grid that finds the knots of the evidence


@dataclass(frozen=True, slots=True)
class Scene:
    """Samples of the corpus in its order: media, and the mean of each one's captions.

    A sample that could not be encoded keeps its place with `present` false.
    """

    visual: Floats  # (N, D)
    text: Floats  # (N, D)
    present: Bools  # (N,)
    levels: tuple[Floats, Floats] | None = None  # (N,) of media and captions against the reference, once known

    def __len__(self) -> int:
        return len(self.visual)

    def take(self, rows: Rows) -> "Scene":
        levels = (self.levels[0][rows], self.levels[1][rows]) if self.levels else None
        return Scene(self.visual[rows], self.text[rows], self.present[rows], levels)

    def levelled(self, reference: "Reference") -> "Scene":
        """The same with its levels: what looks at the same samples several times computes them once."""
        return replace(self, levels=self.levels_against(reference))

    def levels_against(self, reference: "Reference") -> tuple[Floats, Floats]:
        return self.levels or (reference.visual_level(self.visual), reference.text_level(self.text))


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
    block = np.empty((min(ROWS_AT_ONCE, len(vectors)), len(others)), np.float32)
    for start in range(0, len(vectors), ROWS_AT_ONCE):
        part = vectors[start : start + ROWS_AT_ONCE]
        logits = np.matmul(part, others.T, out=block[: len(part)])
        logits *= np.float32(scale)
        top = logits.max(axis=1, keepdims=True)
        logits -= top
        mass = np.exp(logits, out=logits).mean(axis=1)
        found[start : start + len(part)] = (top[:, 0] + np.log(mass)) / np.float32(scale)
    return found


@dataclass(frozen=True, slots=True)
class Segments:
    """Straight lines between knots. A cell of an even grid holds one knot at most, so it tells the line at once."""

    low: np.float32
    cells: np.float32  # in one unit
    below: Ints  # (C,) how many knots lie in the cells before
    knot: Floats  # (C,) the one in the cell; infinite where there is none
    start: Floats  # (G + 1,) where each line begins, and what it is there
    value: Floats
    slope: Floats

    @classmethod
    def of(cls, score: Floats, ratio: Floats) -> "Segments | None":
        """None where the knots are too near each other for a grid."""
        low, span = score[0], max(float(score[-1]) - float(score[0]), 1e-9)
        for size in CELLS:
            cells = np.float32((size - 1) / span)
            place = ((score - low) * cells).astype(np.int64)
            if (np.diff(place) > 0).all() and place[-1] < size:
                break
        else:
            return None
        knot = np.full(size, np.inf, np.float32)
        knot[place] = score
        below = np.searchsorted(place, np.arange(size)).astype(np.int64)
        slope = np.diff(ratio.astype(np.float64)) / np.diff(score.astype(np.float64))
        edges = np.concatenate([[0], slope, [0]]).astype(np.float32)
        return cls(low, cells, below, knot, score[np.r_[0, : len(score)]], ratio[np.r_[0, : len(ratio)]], edges)

    def at(self, score: Floats) -> Floats:
        place = (score - self.low) * self.cells
        cell = np.clip(place, 0, len(self.below) - 1, out=place).astype(np.int64)
        line = self.below[cell]
        line += score >= self.knot[cell]
        found = score - self.start[line]
        found *= self.slope[line]
        found += self.value[line]
        return found


@dataclass(frozen=True)
class Evidence:
    """The log-ratio as an increasing function of the statistic."""

    score: Floats  # (G,) increasing
    ratio: Floats  # (G,) nats

    def of(self, score: Floats) -> Floats:
        if self._segments is None:
            return np.interp(score, self.score, self.ratio).astype(np.float32)
        return self._segments.at(score)

    @cached_property
    def _segments(self) -> Segments | None:
        return Segments.of(self.score, self.ratio)

    def least(self, ratio: float) -> float:
        """A statistic below which the evidence is less than `ratio`; infinite where it is always less."""
        place = int(np.searchsorted(self.ratio, ratio))
        return -np.inf if place == 0 else float(self.score[place - 1]) if place < len(self.ratio) else np.inf


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


def cross_scores(scene: Scene, reference: Reference) -> Floats:
    """The statistic of every caption with every medium of the same samples: (N, N)."""
    visual_level, text_level = scene.levels_against(reference)
    return statistic(scene.text @ scene.visual.T, visual_level[None, :], text_level[:, None])


def own_scores(scene: Scene, reference: Reference) -> Floats:
    """The statistic of the samples that are there, as they stand."""
    there = scene.take(scene.present)
    cosine = np.einsum("nd,nd->n", there.text, there.visual, dtype=np.float32)
    return statistic(cosine, *there.levels_against(reference))


def random_scores(scene: Scene, reference: Reference, seed: int = 0, draws: int = DRAWS) -> Floats:
    """The statistic of captions with random media of the same samples: f0."""
    there = scene.take(scene.present)
    generator = np.random.default_rng(seed)
    caption = generator.integers(0, len(there), draws)
    medium = (caption + generator.integers(1, max(2, len(there)), draws)) % len(there)
    found = np.empty(draws, np.float32)
    for start in range(0, draws, DRAWS_AT_ONCE):
        rows = slice(start, start + DRAWS_AT_ONCE)
        found[rows] = np.einsum("nd,nd->n", there.text[caption[rows]], there.visual[medium[rows]], dtype=np.float32)
    visual_level, text_level = there.levels_against(reference)
    return statistic(found, visual_level[medium], text_level[caption])

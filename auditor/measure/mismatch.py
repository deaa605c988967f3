"""The probability that a pair is mismatched, learned from the corpus alone.

Random re-pairings of a corpus are samples of what a mismatched pair looks like, so their density f0 of the statistic
s is known. With f the density of the pairs as they stand, f = pi0 f0 + (1 - pi0) f1, which gives the share of
mismatched pairs pi0 and for each pair its local false discovery rate p(s) = pi0 f0(s) / f(s), decreasing in s.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from auditor.measure.rivals import (
    Reference,
    frame_match_threshold,
    mismatch_score,
    standing_of_text,
    standing_of_visual,
)
from auditor.vectors import Floats, Ints

Doubles = npt.NDArray[np.float64]

SMALLEST, SMALLEST_MEDIA = 20, 5  # pairs and media; below, no statement about a corpus is worth making
NO_GROUP = -(2**62)  # a group that no medium has
BINS = 256  # of the curve: equally many re-pairings and pairs in each
BOOTSTRAPS = 100
DRAWS = 100_000  # re-pairings at most
INTERVAL = (0.05, 0.95)
NULL_QUANTILES = np.arange(1, 10) / 10


@dataclass(frozen=True)
class MismatchModel:
    """p_mismatch as a function of the statistic, with its uncertainty; one per kind of medium."""

    pairs: int
    pi0: float
    pi0_low: float
    pi0_high: float
    score: Doubles  # (G,) increasing: the knots of the curve
    curve: Doubles  # (G,) p at each knot, decreasing
    bootstrap: Doubles  # (B, G) curves of resampled references
    edges: Doubles  # (H + 1,) of the histogram
    observed: Doubles  # (H,) share of the pairs
    null: Doubles  # (H,) share of the re-pairings
    frame_threshold: float | None

    def p(self, score: npt.ArrayLike) -> Floats:
        """Probability that pairs with these values of `mismatch_score` are mismatched."""
        return np.interp(np.asarray(score, np.float64), self.score, self.curve).astype(np.float32)

    def to_dict(self) -> dict[str, Any]:
        return {
            "reference_pairs": self.pairs,
            "pi0": self.pi0,
            "pi0_low": self.pi0_low,
            "pi0_high": self.pi0_high,
            "curve": {"score": self.score.tolist(), "p": self.curve.tolist()},
            "bootstrap": np.round(self.bootstrap, 5).tolist(),
            "histogram": {
                "edges": self.edges.tolist(),
                "observed": self.observed.tolist(),
                "null": self.null.tolist(),
            },
            "frame_threshold": self.frame_threshold,
        }

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> "MismatchModel":
        return cls(
            pairs=int(saved.get("reference_pairs", saved.get("pairs", 0))),
            pi0=float(saved["pi0"]),
            pi0_low=float(saved["pi0_low"]),
            pi0_high=float(saved["pi0_high"]),
            score=np.asarray(saved["curve"]["score"], np.float64),
            curve=np.asarray(saved["curve"]["p"], np.float64),
            bootstrap=np.asarray(saved.get("bootstrap", []), np.float64).reshape(-1, len(saved["curve"]["score"])),
            edges=np.asarray(saved["histogram"]["edges"], np.float64),
            observed=np.asarray(saved["histogram"]["observed"], np.float64),
            null=np.asarray(saved["histogram"]["null"], np.float64),
            frame_threshold=saved.get("frame_threshold"),
        )


def fit_mismatch(
    reference: Reference, *, seed: int = 0, captions: int | None = None, draws: int = DRAWS
) -> MismatchModel | None:
    """Learn p_mismatch from the reference; None where it has fewer than 20 pairs or 5 different media.

    `captions` is the corpus's number of OK pairs, of which the reference is a sample (by default the whole of it).
    """
    if len(reference) < SMALLEST or len(np.unique(reference.group)) < SMALLEST_MEDIA:
        return None
    generator = np.random.default_rng(seed)
    coverage = min(1.0, len(reference) / captions) if captions else 1.0
    observed, null, i, j = reference_scores(reference, generator, draws, coverage)
    return fit_scores(
        observed,
        null,
        group=reference.group,
        null_groups=(reference.group[i], reference.group[j]),
        seed=seed,
        frame_threshold=frame_match_threshold(reference, seed=seed),
    )


def reference_scores(
    reference: Reference, generator: np.random.Generator, draws: int, coverage: float
) -> tuple[Floats, Floats, Ints, Ints]:
    """The statistic of the reference's own pairs and of random re-pairings of other groups, and which were drawn.

    A caption swapped within the corpus meets its true medium in the reference as often as the reference covers
    the corpus; that medium is then a strong rival, so re-pairings must meet theirs as often.
    """
    ref = reference
    of_visual = standing_of_visual(ref.media, ref.group, ref)
    of_text = standing_of_text(ref.text, ref.group, ref)
    with_own = standing_of_text(ref.text, np.full(len(ref), NO_GROUP), ref).rivals if coverage > 0 else of_text.rivals
    own = ref.media.own_similarity(ref.text)
    i, j = repairings(ref.group, generator, min(draws, 200 * len(ref)))
    parts = []
    for start in range(0, len(i), 4096):
        a, b = i[start : start + 4096], j[start : start + 4096]
        similarity = ref.media.take(a).own_similarity(ref.text[b])
        met = generator.random(len(b)) < coverage
        rivals = np.where(met, with_own[b], of_text.rivals[b])
        parts.append(mismatch_score(similarity, of_visual.rivals[a], rivals))
    return mismatch_score(own, of_visual.rivals, of_text.rivals), np.concatenate(parts), i, j


def repairings(group: Ints, generator: np.random.Generator, draws: int) -> tuple[Ints, Ints]:
    """Random (medium, caption) of different groups: not itself, no other caption of the medium, no duplicate."""
    i = generator.integers(0, len(group), draws)
    j = generator.integers(0, len(group), draws)
    apart = group[i] != group[j]
    return i[apart], j[apart]


def fit_scores(
    observed: npt.ArrayLike,
    null: npt.ArrayLike,
    *,
    group: Ints | None = None,
    null_groups: tuple[Ints, Ints] | None = None,
    seed: int = 0,
    frame_threshold: float | None = None,
    bootstraps: int = BOOTSTRAPS,
) -> MismatchModel:
    """Fit pi0 and the curve to the scores of pairs and of re-pairings; pairs of one group are resampled together."""
    seen = np.asarray(observed, np.float64)
    drawn = np.asarray(null, np.float64)
    edges = curve_edges(seen, drawn)
    bins = len(edges) - 1
    seen_bin = np.searchsorted(edges[1:-1], seen, "right")
    drawn_bin = np.searchsorted(edges[1:-1], drawn, "right")
    seen_count, drawn_count = np.bincount(seen_bin, minlength=bins), np.bincount(drawn_bin, minlength=bins)
    shape = shape_of(seen_count, drawn_count)
    pi0, curve = estimate(seen_count, drawn_count, shape)

    members, of = np.unique(np.arange(len(seen)) if group is None else group, return_inverse=True)
    ends = None if null_groups is None else tuple(np.searchsorted(members, side) for side in null_groups)
    shares, curves = [], []
    for weight in group_weights(len(members), bootstraps, seed):
        null_weight = None if ends is None else weight[ends[0]] * weight[ends[1]]
        share, resampled = estimate(
            np.bincount(seen_bin, weights=weight[of], minlength=bins),
            np.bincount(drawn_bin, weights=null_weight, minlength=bins),
            shape,
        )
        shares.append(share)
        curves.append(resampled)
    low, high = np.quantile(shares, INTERVAL) if shares else (pi0, pi0)
    shown = np.linspace(min(seen.min(), drawn.min()), max(seen.max(), drawn.max()), 81)
    return MismatchModel(
        pairs=len(seen),
        pi0=pi0,
        pi0_low=float(min(low, pi0)),
        # resampling never finds what was not seen: without one low score the interval still has a width
        pi0_high=float(min(1.0, max(high, pi0, 3 / (len(seen) * drawn_count[: shape.pure + 1].sum() / len(drawn))))),
        score=(edges[1:] + edges[:-1]) / 2,
        curve=curve,
        bootstrap=np.asarray(curves).reshape(-1, bins),
        edges=shown,
        observed=np.histogram(seen, shown)[0] / len(seen),
        null=np.histogram(drawn, shown)[0] / len(drawn),
        frame_threshold=frame_threshold,
    )


def group_weights(groups: int, rounds: int, seed: int) -> Iterator[Doubles]:
    """How often each group is drawn when as many are drawn with replacement, again and again."""
    generator = np.random.default_rng([seed, 1])
    even = np.full(groups, 1 / groups)
    for _ in range(rounds):
        yield generator.multinomial(groups, even).astype(np.float64)


def curve_edges(observed: Doubles, null: Doubles) -> Doubles:
    """Edges of the bins: quantiles of pairs and re-pairings in equal parts, fewer where the pairs are few."""
    bins = int(np.clip(len(observed) // 4, 8, BINS))
    at = np.linspace(0, 1, bins // 2 + 1)
    edges = np.unique(np.concatenate([np.quantile(observed, at), np.quantile(null, at)]))
    return edges if len(edges) > 2 else np.array([edges[0] - 1, edges[0], edges[-1] + 1])


@dataclass(frozen=True, slots=True)
class Shape:
    """What is decided on the whole sample and kept when it is resampled: else every round would overfit again."""

    pure: int  # the last bin of those in which all pairs look mismatched
    block: Ints  # (G,) which bins share a value of f / f0


def shape_of(observed: npt.NDArray[Any], null: npt.NDArray[Any]) -> Shape:
    """Where pi0 is read off, and the bins to pool so that f / f0 increases with the score."""
    f, f0 = observed / observed.sum(), null / null.sum()
    fraction = pooled(f / np.maximum(f + f0, 1e-300), f + f0)
    return Shape(pure_bin(f, f0, float(observed.sum())), np.cumsum(np.diff(fraction, prepend=fraction[:1]) > 0))


def estimate(observed: npt.NDArray[Any], null: npt.NDArray[Any], shape: Shape) -> tuple[float, Doubles]:
    """pi0 and the curve of p, from counts of pairs and re-pairings per bin."""
    f, f0 = observed / observed.sum(), null / null.sum()
    below_null = np.cumsum(f0)
    pi0 = min(1.0, float(f[: shape.pure + 1].sum() / max(below_null[shape.pure], 1e-12)))
    ratio = np.bincount(shape.block, f0) / np.maximum(np.bincount(shape.block, f), 1e-12)
    curve = np.minimum(1.0, pi0 * ratio[shape.block])
    if pi0 > 0:  # where f and pi0 f0 cannot be told apart their ratio is only noise
        curve[below_null <= below_null[shape.pure] / 2] = 1.0
    return pi0, curve


def pure_bin(f: Doubles, f0: Doubles, count: float) -> int:
    """The bin up to which F/F0 estimates pi0.

    F/F0 falls towards pi0 at low scores, where only mismatched pairs are left, but gets noisier. So take the highest
    quantile whose ratio does not exceed any lower one's by two standard errors of their difference (Lepski's rule;
    taking the lowest ratio of all would be biased).
    """
    below, below_null = np.cumsum(f), np.cumsum(f0)
    at = np.unique(np.minimum(np.searchsorted(below_null, NULL_QUANTILES), len(f) - 1))
    share, level = below[at] / below_null[at], below_null[at]
    best = 0
    for high in range(1, len(at)):
        variance = (share[high] + 1 / count) * (1 / level[:high] - 1 / level[high]) / count
        if (share[high] - share[:high] > 2 * np.sqrt(np.maximum(variance, 0))).any():
            break
        best = high
    return int(at[best])


def pooled(value: Doubles, weight: Doubles) -> Doubles:
    """Isotonic (increasing) regression by pooling adjacent violators."""
    means: list[float] = []
    weights: list[float] = []
    sizes: list[int] = []
    for mean, mass in zip(value.tolist(), weight.tolist(), strict=True):
        means.append(mean)
        weights.append(mass)
        sizes.append(1)
        while len(means) > 1 and means[-2] >= means[-1]:
            total = weights[-2] + weights[-1]
            joint = (means[-2] * weights[-2] + means[-1] * weights[-1]) / total if total else means[-2]
            means[-2:], weights[-2:], sizes[-2:] = [joint], [total], [sizes[-2] + sizes[-1]]
    return np.repeat(means, sizes)

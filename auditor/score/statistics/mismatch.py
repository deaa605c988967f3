"""The probability that a pair is mismatched, learned from the corpus alone.

Random re-pairings of a corpus are samples of what a mismatched pair looks like, so their density f0 of the statistic
s is known. With f the density of the pairs as they stand, f = pi0 f0 + (1 - pi0) f1, which gives the share of
mismatched pairs pi0 and for each pair its local false discovery rate p(s) = pi0 f0(s) / f(s), decreasing in s.

Related captions look right to an encoder, and no re-pairing shows what they look like: without labels pi0 is a lower
bound of what a person would call mismatched.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from auditor.score.statistics.mismatch_share import (
    Binned,
    Doubles,
    Mixture,
    climb,
    fit_share,
    group_weights,
    is_above_zero,
    is_all_random,
    settled,
    skew_normal,
)
from auditor.score.statistics.mismatch_statistic import Judge, hold_trial
from auditor.score.statistics.rivals import Reference, frame_match_threshold
from auditor.score.statistics.word_evidence import Vocabulary
from auditor.vectors import Floats, Ints

SMALLEST, SMALLEST_MEDIA = 20, 5  # pairs and media; below, no statement about a corpus is worth making
BOOTSTRAPS = 100
DRAWS = 50_000  # re-pairings at most
INTERVAL = (0.05, 0.95)
SMOOTH = 3  # bins by which histograms are smoothed for the curve
DRAWN = 0.6  # of the variance of a drawn share that is taken off; all of it covers too little with one caption each
LEAST_SPREAD = 0.15  # of the variance of the resampled shares that is left in any case


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
    judge: Judge | None = None  # measures the statistic of any pair; not kept in the manifest

    def p(self, score: npt.ArrayLike) -> Floats:
        """Probability that pairs with these values of `mismatch_score` are mismatched."""
        return np.interp(np.asarray(score, np.float64), self.score, self.curve).astype(np.float32)

    def score_of(self, p: npt.ArrayLike) -> Floats:
        """A score that has this probability: the way back."""
        return np.interp(np.asarray(p, np.float64), self.curve[::-1], self.score[::-1]).astype(np.float32)

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
            "evidence": self.judge.to_dict() if self.judge else {},
            "middle": self.judge.chance.middle if self.judge else None,
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
    reference: Reference,
    *,
    seed: int = 0,
    captions: int | None = None,
    draws: int = DRAWS,
    words: Vocabulary | None = None,
) -> MismatchModel | None:
    """Learn p_mismatch from the reference; None where it has fewer than 20 pairs or 5 different media.

    `captions` is the corpus's number of OK pairs, of which the reference is a sample (by default the whole of it).
    """
    if len(reference) < SMALLEST or len(np.unique(reference.group)) < SMALLEST_MEDIA:
        return None
    generator = np.random.default_rng(seed)
    coverage = min(1.0, len(reference) / captions) if captions else 1.0
    trial = hold_trial(reference, generator, draws, coverage, words)
    found = fit_scores(
        trial.observed,
        trial.null,
        alone=trial.alone,
        group=reference.group,
        null_groups=(reference.group[trial.i], reference.group[trial.j]),
        seed=seed,
        coverage=coverage,
        frame_threshold=frame_match_threshold(reference, seed=seed),
    )
    return replace(found, judge=trial.judge)


def fit_scores(
    observed: npt.ArrayLike,
    null: npt.ArrayLike,
    *,
    alone: tuple[Floats, Floats] | None = None,
    group: Ints | None = None,
    null_groups: tuple[Ints, Ints] | None = None,
    seed: int = 0,
    coverage: float = 1.0,
    frame_threshold: float | None = None,
    bootstraps: int = BOOTSTRAPS,
) -> MismatchModel:
    """Fit pi0 and the curve to the scores of pairs and of re-pairings; pairs of one group are resampled together.

    `alone` are the same scores without siblings, where there are some.
    """
    seen, drawn = np.asarray(observed, np.float64), np.asarray(null, np.float64)
    ways = [Binned.of(*(np.asarray(side, np.float64) for side in way)) for way in ((seen, drawn), alone) if way]
    at = ways[0].bins.middle
    counted = [way.counts() for way in ways]
    counts, density = counted[0]
    fitted = [fit_share(*numbers, way.bins.middle) for way, numbers in zip(ways, counted, strict=True)]
    best = settled(fitted[0], fitted[1] if alone else None, counts, density, at)
    members, of = np.unique(np.arange(len(seen)) if group is None else group, return_inverse=True)
    ends = None if null_groups is None else tuple(np.searchsorted(members, side) for side in null_groups)
    shares, curves = [], []
    for weight in group_weights(len(members), bootstraps, seed):
        of_null = None if ends is None else weight[ends[0]] * weight[ends[1]]
        found, again, around = resampled(ways, fitted, weight[of], of_null)
        shares.append(found.pi0)
        curves.append(curve_of(found, again, around, at))
    low, high = interval(best.pi0, np.array(shares), len(seen), coverage)
    everything = is_all_random(fitted[0], counts, density)
    shown = np.linspace(min(seen.min(), drawn.min()), max(seen.max(), drawn.max()), 81)
    return MismatchModel(
        pairs=len(seen),
        pi0=1.0 if everything else best.pi0,
        pi0_low=low if everything or is_above_zero(fitted[0], counts, density, at) else 0.0,
        pi0_high=1.0 if everything else high,
        score=at,
        curve=np.ones(len(at)) if everything else curve_of(best, counts, density, at),
        bootstrap=np.asarray(curves).reshape(-1, len(at)),
        edges=shown,
        observed=np.histogram(seen, shown)[0] / len(seen),
        null=np.histogram(drawn, shown)[0] / len(drawn),
        frame_threshold=frame_threshold,
    )


def resampled(
    ways: Sequence[Binned], fitted: Sequence[Mixture], of_pairs: Doubles, of_null: Doubles | None
) -> tuple[Mixture, Doubles, Doubles]:
    """The mixture of pairs and re-pairings with these weights, climbed to from what all of them gave; their counts."""
    again = [way.counts(of_pairs, of_null) for way in ways]
    climbed = [
        climb(*numbers, way.bins.middle, found.numbers) for way, numbers, found in zip(ways, again, fitted, strict=True)
    ]
    counts, density = again[0]
    alone = climbed[1] if len(climbed) > 1 else None
    return settled(climbed[0], alone, counts, density, ways[0].bins.middle), counts, density


def interval(pi0: float, shares: Doubles, pairs: int, coverage: float) -> tuple[float, float]:
    """90% of the resampled shares, less the part of their spread that comes from drawing pairs.

    What is asked for is the share in this corpus, which is as it is: only as far as the reference is a sample of it
    does the draw matter.
    """
    variance = float(shares.var()) if len(shares) else 0.0
    rest = max(variance - DRAWN * coverage * pi0 * (1 - pi0) / pairs, LEAST_SPREAD * variance)
    factor = np.sqrt(rest / variance) if variance > 0 else 0.0
    low, high = np.quantile(factor * (shares - pi0), INTERVAL) if len(shares) else (0.0, 0.0)
    # resampling never finds what was not seen: without one low score the interval still has a width
    return float(max(0.0, pi0 + min(low, 0.0))), float(min(1.0, max(pi0 + high, pi0, 3 / pairs)))


def curve_of(mixture: Mixture, counts: Doubles, null: Doubles, at: Doubles) -> Doubles:
    """The local false discovery rate at each bin, smooth and decreasing.

    Half way, in log odds, between what the mixture says and what the smoothed histogram of the pairs says: the first
    is steady where pairs are few, the second right where f1 is not skew-normal.
    """
    bad = mixture.pi0 * smoothed(null, SMOOTH)
    good = (1 - mixture.pi0) * skew_normal(mixture.numbers[1:], at)[0]
    there = np.maximum(smoothed(counts / counts.sum(), SMOOTH), 1e-12)
    odds = [log_odds(bad / np.maximum(bad + good, 1e-300)), log_odds(np.minimum(bad / there, 1.0))]
    p = 1 / (1 + np.exp(-(odds[0] + odds[1]) / 2))
    return 1 - pooled(1 - p, bad + good + 1e-9)


def log_odds(p: Doubles) -> Doubles:
    inside = np.clip(p, 1e-6, 1 - 1e-6)
    found: Doubles = np.log(inside / (1 - inside))
    return found


def smoothed(density: Doubles, width: int) -> Doubles:
    """By a Gaussian kernel of so many bins; what leaves at an end comes back there."""
    reach = 4 * width
    kernel = np.exp(-((np.arange(-reach, reach + 1) / width) ** 2) / 2)
    return np.convolve(np.pad(density, reach, mode="edge"), kernel / kernel.sum(), "valid")


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

"""The probability that a pair is mismatched, learned from the corpus alone.

Random re-pairings of a corpus are samples of mismatched pairs, so their density f0 of the statistic s is known. With f
the density of the pairs as they are, f = pi0 f0 + (1 - pi0) f1 gives the share pi0 of mismatched pairs, and each pair
has the local false discovery rate p(s) = pi0 f0(s) / f(s), which decreases in s.

Related captions look right to an encoder, and no re-pairing shows what they look like: without labels, pi0 is a lower
bound of the share that a person would call mismatched.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from auditor.score.statistics.mismatch_share import (
    BinnedScores,
    Doubles,
    Mixture,
    ScoreHistogram,
    correct_share,
    draw_group_weights,
    fit_mixture,
    is_null_only,
    is_share_above_zero,
    refit_mixtures,
    skew_normal_probabilities,
)
from auditor.score.statistics.mismatch_statistic import MismatchStatistic, cross_validate
from auditor.score.statistics.rivals import ReferenceSample, estimate_frame_threshold
from auditor.score.statistics.word_evidence import Vocabulary
from auditor.vectors import Floats, Ints

SMALLEST, SMALLEST_MEDIA = 20, 5  # pairs and media below which no model is fitted
BOOTSTRAPS = 100
DRAWS = 50_000  # upper limit on re-pairings
INTERVAL = (0.05, 0.95)
SMOOTH = 3  # kernel width in bins of the histograms behind the curve
DRAWN = 0.6  # part of the sampling variance that is subtracted; all of it covers too little with one caption each
LEAST_SPREAD = 0.15  # smallest part of the bootstrap variance that remains
# Some matched pairs look like re-pairings ("Two of them" below a photo), which no density of matched pairs shows: up to
# about this share of them, so far as it was seen on photos that the encoder was trained on (docs/results.md).
LOOKALIKES = 0.006
SMALLEST_P = 1e-6  # log odds are computed between this and 1 minus this


@dataclass(frozen=True)
class MismatchModel:
    """p_mismatch as a function of the statistic, with its uncertainty; one model per kind of medium.

    If groups of pairs are calibrated by themselves, `groups` has their models and, as "", that of the other pairs.
    """

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
    frame_threshold: float | None = None
    statistic: MismatchStatistic | None = None  # not stored in the manifest
    groups: Mapping[str, "MismatchModel"] = field(default_factory=dict)
    column: str = ""  # whose values name the groups

    def of_group(self, name: str | None) -> "MismatchModel":
        """The model of a calibration group; that of the other pairs for None and for groups without a model."""
        return self.groups.get(name or "", self.groups.get("", self))

    @property
    def pairs_stand_out(self) -> bool:
        """Whether some pairs do not look like re-pairings, and most are more similar."""
        return self.pi0 < 1 and self.statistic is not None and self.statistic.scales["similarity"].typical > 0

    def p(self, score: npt.ArrayLike) -> Floats:
        """Probability that pairs with these values of `mismatch_score` are mismatched."""
        return np.interp(np.asarray(score, np.float64), self.score, self.curve).astype(np.float32)

    def score_of(self, p: npt.ArrayLike) -> Floats:
        """The inverse of `p`: a score that has this probability."""
        return np.interp(np.asarray(p, np.float64), self.curve[::-1], self.score[::-1]).astype(np.float32)

    def to_dict(self) -> dict[str, Any]:
        return {
            "reference_pairs": self.pairs,
            "pi0": self.pi0,
            "pi0_low": self.pi0_low,
            "pi0_high": self.pi0_high,
            "curve": {"score": self.score.tolist(), "p": self.curve.tolist()},
            "bootstrap": np.round(self.bootstrap, 5).tolist(),
            "histogram": {"edges": self.edges.tolist(), "observed": self.observed.tolist(), "null": self.null.tolist()},
            "frame_threshold": self.frame_threshold,
            "evidence": self.statistic.to_dict() if self.statistic else {},
            "middle": self.statistic.null_cosines.neutral if self.statistic else None,
            **({"calibrated_by": self.column, "groups": groups} if (groups := self._list_groups()) else {}),
        }

    def _list_groups(self) -> dict[str, Any]:
        return {name: model.to_dict() for name, model in self.groups.items()}

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> "MismatchModel":
        curve, histogram = saved["curve"], saved["histogram"]
        return cls(
            pairs=saved["reference_pairs"],
            pi0=saved["pi0"],
            pi0_low=saved["pi0_low"],
            pi0_high=saved["pi0_high"],
            score=np.asarray(curve["score"], np.float64),
            curve=np.asarray(curve["p"], np.float64),
            bootstrap=np.asarray(saved["bootstrap"], np.float64).reshape(-1, len(curve["score"])),
            edges=np.asarray(histogram["edges"], np.float64),
            observed=np.asarray(histogram["observed"], np.float64),
            null=np.asarray(histogram["null"], np.float64),
            frame_threshold=saved["frame_threshold"],
            groups={name: cls.from_dict(group) for name, group in saved.get("groups", {}).items()},
            column=saved.get("calibrated_by", ""),
        )


def fit_mismatch(
    reference: ReferenceSample,
    *,
    seed: int = 0,
    captions: int | None = None,
    draws: int = DRAWS,
    bootstraps: int = BOOTSTRAPS,
    words: Vocabulary | None = None,
    use_siblings: bool = True,
) -> MismatchModel | None:
    """Fit p_mismatch to the reference; None if it has fewer than 20 pairs or 5 media, or all re-pairings look alike.

    `captions` is the corpus's number of usable pairs, of which the reference is a sample (default: all of them).
    `use_siblings` is False if sibling evidence must not change the share.
    """
    if len(reference) < SMALLEST or len(np.unique(reference.group)) < SMALLEST_MEDIA:
        return None
    generator = np.random.default_rng(seed)
    coverage = min(1.0, len(reference) / captions) if captions else 1.0
    validation = cross_validate(reference, generator, draws, coverage, words)
    if "similarity" not in validation.statistic.scales:
        return None
    model = fit_scores(
        validation.observed,
        validation.null,
        without_siblings=validation.without_siblings,
        group=reference.group,
        null_groups=(reference.group[validation.i], reference.group[validation.j]),
        seed=seed,
        coverage=coverage,
        bootstraps=bootstraps,
        use_siblings=use_siblings,
    )
    frame_threshold = estimate_frame_threshold(reference, seed=seed)
    return replace(model, statistic=validation.statistic, frame_threshold=frame_threshold)


def fit_scores(
    observed: npt.ArrayLike,
    null: npt.ArrayLike,
    *,
    without_siblings: tuple[Floats, Floats] | None = None,
    group: Ints | None = None,
    null_groups: tuple[Ints, Ints] | None = None,
    seed: int = 0,
    coverage: float = 1.0,
    bootstraps: int = BOOTSTRAPS,
    use_siblings: bool = True,
) -> MismatchModel:
    """Fit pi0 and the curve to the scores of pairs and of re-pairings; pairs of one group are resampled together.

    `without_siblings` are the same scores without sibling evidence, if there are siblings.
    """
    scores, null_scores = np.asarray(observed, np.float64), np.asarray(null, np.float64)
    binned = [BinnedScores.bin(scores, null_scores)]
    if without_siblings is not None:
        binned.append(BinnedScores.bin(*(values.astype(np.float64) for values in without_siblings)))
    histograms = [part.count() for part in binned]
    fits = [fit_mixture(part) for part in histograms]
    histogram = histograms[0]
    best = correct_share(histogram, *fits, use_siblings=use_siblings)
    members, member = np.unique(np.arange(len(scores)) if group is None else group, return_inverse=True)
    null_members = None if null_groups is None else tuple(np.searchsorted(members, side) for side in null_groups)
    shares, curves = np.zeros(0), np.zeros((0, len(histogram.centers)))
    null_only = is_null_only(fits[0], histogram)
    if bootstraps:
        resamples: list[list[ScoreHistogram]] = [[] for _ in binned]
        for weight in draw_group_weights(len(members), bootstraps, seed):
            null_weight = None if null_members is None else weight[null_members[0]] * weight[null_members[1]]
            for part, drawn in zip(binned, resamples, strict=True):
                drawn.append(part.count(weight[member], null_weight))
        mixtures = [Mixture(parameters, 0.0) for parameters in refit_mixtures(resamples, fits)]
        shares = np.array([mixture.pi0 for mixture in mixtures])
        curves = np.stack([estimate_curve(*draw) for draw in zip(mixtures, resamples[0], strict=True)])
        lookalikes = np.maximum(np.random.default_rng([seed, 2]).normal(0, LOOKALIKES, len(shares)), 0)
        kept_share = np.clip(1 - lookalikes * (1 - shares) / np.maximum(shares, 1e-9), 0, 1)
        if not null_only and not is_share_above_zero(fits[0], histogram):
            kept_share[: len(kept_share) // 10] = 0  # so that the interval includes zero
        shares, curves = shares * kept_share, curves * kept_share[:, None]
    low, high = bootstrap_interval(best.pi0, shares, len(scores), coverage)
    centers = histogram.centers
    edges = np.linspace(min(scores.min(), null_scores.min()), max(scores.max(), null_scores.max()), 81)
    return MismatchModel(
        pairs=len(scores),
        pi0=1.0 if null_only else best.pi0,
        pi0_low=low,
        pi0_high=1.0 if null_only else high,
        score=centers,
        curve=np.ones(len(centers)) if null_only else estimate_curve(best, histogram),
        bootstrap=curves,
        edges=edges,
        observed=np.histogram(scores, edges)[0] / len(scores),
        null=np.histogram(null_scores, edges)[0] / len(null_scores),
    )


def bootstrap_interval(pi0: float, shares: Doubles, pairs: int, coverage: float) -> tuple[float, float]:
    """90% interval of the bootstrap shares, without the part of their variance that comes from sampling pairs.

    The interval is for the share in this corpus, which is fixed: sampling matters only as far as the reference does not
    cover the corpus.
    """
    variance = float(shares.var()) if len(shares) else 0.0
    remaining = max(variance - DRAWN * coverage * pi0 * (1 - pi0) / pairs, LEAST_SPREAD * variance)
    factor = np.sqrt(remaining / variance) if variance > 0 else 0.0
    low, high = np.quantile(factor * (shares - pi0), INTERVAL) if len(shares) else (0.0, 0.0)
    # resampling cannot produce values that were not observed: without any low score, the rule of three gives the width
    return float(max(0.0, pi0 + min(low, 0.0))), float(min(1.0, max(pi0 + high, pi0, 3 / pairs)))


def combine_models(groups: Mapping[str, MismatchModel], sizes: Sequence[int], column: str) -> MismatchModel:
    """The model of the pairs without a group (""), with the models of the groups, and share and histogram of all.

    `sizes` are the numbers of pairs of the groups. The null of the histogram is that of all mismatched pairs.
    """
    models, weight = list(groups.values()), np.array(sizes, np.float64) / sum(sizes)
    share, low, high = (weight * [getattr(model, name) for model in models] for name in ("pi0", "pi0_low", "pi0_high"))
    edges = np.linspace(min(m.edges[0] for m in models), max(m.edges[-1] for m in models), len(models[0].edges))
    return replace(
        groups[""],
        pairs=sum(sizes),
        pi0=float(share.sum()),
        pi0_low=float(low.sum()),
        pi0_high=float(high.sum()),
        edges=edges,
        observed=add_histograms([(model.edges, model.observed) for model in models], weight, edges),
        null=add_histograms([(model.edges, model.null) for model in models], share + SMALLEST_P * weight, edges),
        groups={name: replace(model, pairs=size) for (name, model), size in zip(groups.items(), sizes, strict=True)},
        column=column,
    )


def add_histograms(histograms: Sequence[tuple[Doubles, Doubles]], weight: Doubles, edges: Doubles) -> Doubles:
    """The weighted mean of histograms, each with its edges, in the bins of `edges`."""
    sums = np.stack([np.interp(edges, ends, np.append(0, np.cumsum(shares))) for ends, shares in histograms])
    return np.asarray(np.diff(weight @ sums) / weight.sum(), np.float64)


def estimate_curve(mixture: Mixture, histogram: ScoreHistogram) -> Doubles:
    """The local false discovery rate pi0 f0 / f at each bin, smooth and decreasing.

    The mean, in log odds, of the rate by the fitted mixture and the rate by the smoothed histogram of the pairs: the
    first is stable if pairs are few, the second is right if f1 is not skew-normal.
    """
    counts, null, centers = histogram
    mismatched = mixture.pi0 * smooth_histogram(null, SMOOTH)
    matched = (1 - mixture.pi0) * skew_normal_probabilities(mixture.parameters[None, 1:], centers)[0][0]
    observed = np.maximum(smooth_histogram(counts / counts.sum(), SMOOTH), 1e-12)
    mixture_odds = compute_log_odds(mismatched / np.maximum(mismatched + matched, 1e-300))
    histogram_odds = compute_log_odds(np.minimum(mismatched / observed, 1.0))
    p = 1 / (1 + np.exp(-(mixture_odds + histogram_odds) / 2))
    return 1 - fit_isotonic(1 - p, mismatched + matched + 1e-9)


def compute_log_odds(p: Doubles) -> Doubles:
    """log(p / (1 - p)), bounded."""
    inside = np.clip(p, SMALLEST_P, 1 - SMALLEST_P)
    return np.asarray(np.log(inside / (1 - inside)), np.float64)


def smooth_histogram(density: Doubles, width: int) -> Doubles:
    """Gaussian kernel smoothing with a standard deviation of `width` bins; the edges are extended."""
    reach = 4 * width
    kernel = np.exp(-((np.arange(-reach, reach + 1) / width) ** 2) / 2)
    return np.convolve(np.pad(density, reach, mode="edge"), kernel / kernel.sum(), "valid")


def fit_isotonic(value: Doubles, weight: Doubles) -> Doubles:
    """Isotonic (increasing) regression."""
    from scipy.optimize import isotonic_regression

    return np.asarray(isotonic_regression(value, weights=weight).x, np.float64)

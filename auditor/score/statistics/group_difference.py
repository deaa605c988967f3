"""How far the similarities of groups of pairs (languages, caption sources) differ from those of all pairs.

If the encoder reads a language worse, or has another geometry for one source, one curve for all pairs flags sound pairs
of one group and misses wrong ones of the other. The difference of a group is a likelihood ratio: how much better its
own densities of re-pairings and of matched pairs explain its similarities than those of all pairs do. The share of
mismatched pairs is free in both, so groups that are only noisier do not differ. Small groups reach a large ratio only
if they are very different: nothing is gained by fitting them alone, and nothing is done. NumPy and SciPy.
"""

from collections.abc import Sequence

import numpy as np

from auditor.score.statistics.mismatch_share import (
    SMALL,
    BinnedScores,
    Doubles,
    ScoreHistogram,
    fit_mixture,
    skew_normal_probabilities,
)
from auditor.score.statistics.mismatch_statistic import draw_repairings
from auditor.score.statistics.rivals import ReferenceSample
from auditor.vectors import Floats, Ints

DRAWS = 20_000  # upper limit on re-pairings of all pairs, and of each group
SHARES = np.linspace(0, 1, 101)  # of mismatched pairs, tried with the densities of all pairs


def measure_differences(reference: ReferenceSample, groups: Sequence[Ints], seed: int = 0) -> Doubles:
    """The likelihood ratios (G,) of groups of rows; captions of one medium count as one observation."""
    generator = np.random.default_rng(seed)
    similarity = reference.media.own_similarity(reference.text).astype(np.float64)
    samples = [np.arange(len(reference)), *groups]
    null = [draw_null_similarities(reference, rows, generator) for rows in samples]
    source = np.repeat(np.arange(len(null)), [len(values) for values in null])
    binned = BinnedScores.bin(similarity, np.concatenate(null).astype(np.float64))
    whole = binned.count(None, (source == 0).astype(np.float64))
    matched = skew_normal_probabilities(fit_mixture(whole).parameters[None, 1:], whole.centers)[0][0]
    ratios = np.zeros(len(groups))
    for number, rows in enumerate(groups):
        weight = np.bincount(rows, minlength=len(reference)).astype(np.float64)
        histogram = binned.count(weight, (source == number + 1).astype(np.float64))
        gain = fit_mixture(histogram).log_likelihood - fit_share(histogram.counts, whole, matched)
        ratios[number] = 2 * gain * len(np.unique(reference.group[rows])) / len(rows)
    return ratios


def draw_null_similarities(reference: ReferenceSample, rows: Ints, generator: np.random.Generator) -> Floats:
    """Similarities of random re-pairings of some rows."""
    i, j = draw_repairings(reference.group[rows], generator, min(DRAWS, 200 * len(rows)))
    return reference.media.take(rows[i]).own_similarity(reference.text[rows[j]])


def fit_share(counts: Doubles, whole: ScoreHistogram, matched: Doubles) -> float:
    """The log likelihood of a group under the densities of all pairs, with the best share of mismatched pairs."""
    mixed = SHARES[:, None] * whole.null + (1 - SHARES[:, None]) * matched
    return float((np.log(np.maximum(mixed, SMALL)) @ counts).max())

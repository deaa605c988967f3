"""Compare statistics that find mismatched pairs on real photos, and check the calibration of p_mismatch.

    python -m tests.bench.mismatch_flickr8k [--rates 0.05 0.2 0.4]

Plants five kinds of noise (tests/bench/noise.py) into the half of the validation photos of Flickr8k on which no setting
was chosen, with one caption each and with five. Compares the raw cosine, a Gaussian mixture on it (NCR), LEMoN,
negCLIPLoss, Distribution Normalization, the margin over rivals, and the product's own statistic with and without words.
Every threshold is chosen without labels. Writes bench-results/mismatch_flickr8k.json.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from auditor.console import print_table
from auditor.research.retrieval import analyses
from auditor.score.statistics.mismatch import fit_mismatch, fit_scores
from auditor.score.statistics.mismatch_statistic import compute_statistic, draw_repairings
from auditor.score.statistics.rivals import PairEmbeddings, PairMeasures, ReferenceSample, measure_pairs
from auditor.score.statistics.word_evidence import Vocabulary, WordFrequencies, encode_words
from auditor.vectors import Floats
from tests.bench.flickr8k import Encode, Photos, encoder, load_photos
from tests.bench.noise import KINDS, halves, part, reference_of, spoil

RATES, SEEDS = (0.05, 0.2, 0.4), (0, 1)
OWN = "auditor"
RESULTS = Path(__file__).resolve().parents[2] / "bench-results"
Doubles = npt.NDArray[np.float64]
Found = tuple[Doubles, Doubles, float]  # score (low is suspicious), p_mismatch, pi0


def auroc(score: Doubles, spoiled: npt.NDArray[np.bool_]) -> float:
    """Probability that a spoiled pair scores below a good one."""
    return analyses.compute_auroc(-score, spoiled)


def average_precision(score: Doubles, spoiled: npt.NDArray[np.bool_]) -> float:
    hit = spoiled[np.argsort(score, kind="stable")]
    precision = np.cumsum(hit) / np.arange(1, len(hit) + 1)
    return float(precision[hit].mean())


def f1(flagged: npt.NDArray[np.bool_], spoiled: npt.NDArray[np.bool_]) -> float:
    return float(2 * (flagged & spoiled).sum() / max(1, flagged.sum() + spoiled.sum()))


def calibration_error(p: Doubles, spoiled: npt.NDArray[np.bool_], bins: int = 15) -> float:
    """Expected calibration error: |mean p - share spoiled| over equal bins of p, weighted by their pairs."""
    if np.isnan(p).any():  # a method that gives no probabilities
        return float("nan")
    at = np.minimum((p * bins).astype(int), bins - 1)
    return float(sum(abs(p[at == k].sum() - spoiled[at == k].sum()) for k in range(bins)) / len(p))


def mixture(score: Doubles, steps: int = 200) -> tuple[Doubles, float]:
    """Two Gaussians by EM: probability of the lower one for each score, and its weight."""
    mean = np.quantile(score, [0.1, 0.9])
    spread, weight = np.full(2, score.std() / 2), np.full(2, 0.5)
    part = np.zeros((len(score), 2))
    for _ in range(steps):
        log = np.log(weight) - np.log(spread) - (score[:, None] - mean) ** 2 / (2 * spread**2)
        part = np.exp(log - np.logaddexp(log[:, :1], log[:, 1:]))
        weight = part.mean(axis=0)
        mean = (part * score[:, None]).sum(axis=0) / part.sum(axis=0)
        spread = np.sqrt((part * (score[:, None] - mean) ** 2).sum(axis=0) / part.sum(axis=0)) + 1e-6
    low = int(np.argmin(mean))
    return part[:, low], float(weight[low])


def lemon(ref: ReferenceSample) -> Doubles:
    """LEMoN of the pairs of a corpus."""
    return lemon_of(ref, ref)


def lemon_of(pairs: ReferenceSample, ref: ReferenceSample, neighbours: int = 30) -> Doubles:
    """LEMoN with its fixed settings (k = 30, beta = gamma = 5, tau1 = 0.1, tau2 = 5), low is suspicious.

    The distance of the two, and beta and gamma times the mean over the k nearest neighbours in either modality of the
    distance in the other one, weighed by exp(-tau1 distance to the neighbour) exp(-tau2 the neighbour's own distance).
    """
    mine, theirs = ([one.visual.astype(np.float64), one.text.astype(np.float64)] for one in (pairs, ref))
    own = 1 - np.einsum("nd,nd->n", *theirs)  # of the neighbors
    total: Doubles = 1 - np.einsum("nd,nd->n", *mine)
    for near, far in ((0, 1), (1, 0)):
        for start in range(0, len(pairs), 512):
            rows = slice(start, start + 512)
            distance = 1 - mine[near][rows] @ theirs[near].T
            distance[pairs.group[rows, None] == ref.group] = np.inf
            at = np.argpartition(distance, neighbours, axis=1)[:, :neighbours]
            there = 1 - np.einsum("nd,nkd->nk", mine[far][rows], theirs[far][at])
            weight = np.exp(-0.1 * np.take_along_axis(distance, at, 1)) * np.exp(-5 * own[at])
            total[rows] += 5 * (there * weight).sum(axis=1) / neighbours
    return -total


def normalize_distribution(pairs: ReferenceSample, ref: ReferenceSample) -> Doubles:
    """Distribution Normalization (Zhou et al., NeurIPS 2023): cosines after half of each side's mean is subtracted."""
    visual, text = (pairs.visual - ref.visual.mean(axis=0) / 2, pairs.text - ref.text.mean(axis=0) / 2)
    return np.einsum("nd,nd->n", visual, text).astype(np.float64)


def methods(ref: ReferenceSample, seed: int, vocabulary: Vocabulary | None = None) -> dict[str, Found]:
    """Score, probability and estimated mismatch share of each method on one corpus."""
    found = measure_pairs(ref, ref)
    i, j = draw_repairings(ref.group, np.random.default_rng(seed), 15_000)
    # no exclusion of the caption's own photo for re-pairings, as in the product
    null = measure_pairs(PairEmbeddings(ref.media.take(i), ref.text[j], ref.group[i]), ref)

    def calibrated(pick: Callable[[PairMeasures], Floats]) -> Found:
        score = pick(found).astype(np.float64)
        fitted = fit_scores(score, pick(null), bootstraps=0)
        return score, fitted.p(score).astype(np.float64), fitted.pi0

    def own(words: Vocabulary | None) -> Found:
        model = fit_mismatch(ref, seed=seed, words=words, draws=20_000)
        assert model is not None and model.statistic is not None
        score = compute_statistic(model.statistic, ref, found)
        return score.astype(np.float64), model.p(score).astype(np.float64), model.pi0

    cosine = found.similarity.astype(np.float64)
    unknown = np.full(len(ref), np.nan)
    return {
        "cosine": calibrated(lambda m: m.similarity),
        "mixture on cosine (NCR)": (cosine, *mixture(cosine)),
        "LEMoN": (lemon(ref), unknown, float("nan")),
        "negCLIPLoss": calibrated(lambda m: m.similarity_normalised),
        "Distribution Normalization": (normalize_distribution(ref, ref), unknown, float("nan")),
        "rival margin": calibrated(lambda m: m.rival_margin),
        "auditor without words": own(None),
        OWN: own(vocabulary),
    }


def row(
    kind: str, rate: float, name: str, found: list[Found], spoiled: list[npt.NDArray[np.bool_]], captions: int
) -> dict[str, Any]:
    both = list(zip(found, spoiled, strict=True))
    return {
        "noise": kind,
        "captions": captions,
        "rate": rate,
        "method": name,
        "auroc": float(np.mean([auroc(score, bad) for (score, _, _), bad in both])),
        "ap": float(np.mean([average_precision(score, bad) for (score, _, _), bad in both])),
        "f1": float(np.mean([f1(p >= 0.5, bad) if not np.isnan(p).any() else np.nan for (_, p, _), bad in both])),
        "calibration_error": float(np.mean([calibration_error(p, bad) for (_, p, _), bad in both])),
        "pi0": float(np.mean([pi0 for (_, _, pi0), _ in both])),
        "pi0_error": float(np.max([abs(pi0 - bad.mean()) for (_, _, pi0), bad in both])),
    }


def run(
    photos: Photos, encode: Encode, rates: Sequence[float] = RATES, seeds: Sequence[int] = SEEDS
) -> list[dict[str, Any]]:
    """All kinds of noise on these photos, with one caption each and with all five."""
    rows = []
    vocabulary = encode_words(WordFrequencies.count(photos.captions).informative_words(), encode)
    for captions in (1, None):
        for kind in KINDS:
            for rate in rates:
                results: dict[str, list[Found]] = {}
                truth = []
                for seed in seeds:
                    some = part(photos, range(len(photos.keys)), captions, seed)
                    spoiled = spoil(some, kind, rate, seed, encode)
                    for name, found in methods(reference_of(spoiled.photos), seed, vocabulary).items():
                        results.setdefault(name, []).append(found)
                    truth.append(spoiled.wrong)
                rows += [row(kind, rate, name, found, truth, captions or 5) for name, found in results.items()]
                print_table(rows[-len(results) :])
    return rows


def main() -> None:
    from tests.conftest import SHARED

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", type=float, nargs="+", default=RATES, help="shares of spoiled captions")
    photos = load_photos(SHARED)
    reported = part(photos, halves(photos)[1])
    rows = run(reported, encoder(SHARED), parser.parse_args().rates)
    clean = methods(reference_of(reported), 0)
    results = {
        "photos": len(reported.keys),
        "rows": rows,
        "flagged_without_noise": {name: float((p >= 0.5).mean()) for name, (_, p, _) in clean.items()},
    }
    print_table(
        [{"method": name, "flagged at 0% noise": share} for name, share in results["flagged_without_noise"].items()]
    )
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "mismatch_flickr8k.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()

"""How well mismatched pairs are found on real photos, by which statistic, and whether p_mismatch means what it says.

    python -m tests.bench.mismatch_flickr8k

Plants noise into the 5,000 validation pairs of Flickr8k and compares raw cosine, a Gaussian mixture on it (NCR),
hubness-normalised similarity, agreement of neighbours in both modalities (LEMoN), that together with the product's own
statistic, and the product's own alone. Every threshold is chosen without labels; but the weight of rivals in the
product's statistic was chosen on the first 500 of these photos, so figures over all 1,000 flatter it a little. Writes
bench-results/mismatch_flickr8k.json.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from auditor.console import table
from auditor.measure.mismatch import fit_mismatch, fit_scores, repairings
from auditor.measure.rivals import Measures, Reference, measure
from auditor.retrieval import analyses
from auditor.vectors import Floats, MediaVectors
from tests.bench.flickr8k import Photos, encoder, load_photos, plant

KINDS, RATES, SEEDS = ("random", "similar", "noun"), (0.05, 0.2, 0.4), (0, 1, 2, 3)
OWN = "auditor"
RESULTS = Path(__file__).resolve().parents[2] / "bench-results"
Doubles = npt.NDArray[np.float64]
Found = tuple[Doubles, Doubles, float]  # score (low is suspicious), p_mismatch, pi0


def auroc(score: Doubles, spoiled: npt.NDArray[np.bool_]) -> float:
    """Chance that a spoiled pair scores below a good one."""
    return analyses.auroc(-score, spoiled)


def average_precision(score: Doubles, spoiled: npt.NDArray[np.bool_]) -> float:
    hit = spoiled[np.argsort(score, kind="stable")]
    precision = np.cumsum(hit) / np.arange(1, len(hit) + 1)
    return float(precision[hit].mean())


def f1(flagged: npt.NDArray[np.bool_], spoiled: npt.NDArray[np.bool_]) -> float:
    return float(2 * (flagged & spoiled).sum() / max(1, flagged.sum() + spoiled.sum()))


def calibration_error(p: Doubles, spoiled: npt.NDArray[np.bool_], bins: int = 15) -> float:
    """Expected calibration error: |mean p - share spoiled| over equal bins of p, weighted by their pairs."""
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


def neighbour_agreement(ref: Reference, text: Floats, neighbours: int = 30) -> Callable[[Any, Any], Doubles]:
    """As LEMoN: is the caption like those of the medium's nearest media, and the medium like those of the nearest
    captions? Neighbours count by nearness and by how well they match their own partner."""
    trust = np.exp(5 * np.einsum("nd,nd->n", ref.visual, text))
    apart = ref.group[:, None] != ref.group

    def nearest(vectors: Floats) -> tuple[Any, Any]:
        near = np.where(apart, vectors @ vectors.T, -np.inf)
        at = np.argpartition(-near, neighbours, axis=1)[:, :neighbours]
        weight = trust[at] * np.exp(5 * np.take_along_axis(near, at, 1))
        return at, (weight / weight.sum(axis=1, keepdims=True)).astype(np.float32)

    def profile(vectors: Floats, of: tuple[Any, Any]) -> Floats:
        mean: Floats = np.einsum("nk,nkd->nd", of[1], vectors[of[0]])
        return mean

    caption_like = profile(text, nearest(ref.visual))
    medium_like = profile(ref.visual, nearest(text))

    def agreement(i: Any, j: Any) -> Doubles:
        found: Doubles = np.einsum("nd,nd->n", caption_like[i], text[j]) + np.einsum(
            "nd,nd->n", medium_like[j], ref.visual[i]
        )
        return found

    return agreement


def methods(ref: Reference, seed: int) -> dict[str, Found]:
    """Every method on one corpus: its score, its probability, its estimate of the share mismatched."""
    text = ref.text
    model = fit_mismatch(ref, seed=seed)
    assert model is not None
    found = measure(ref.media, text, ref.group, ref)
    i, j = repairings(ref.group, np.random.default_rng(seed), 15_000)
    # no exclusion of the caption's own photo for re-pairings, as in the product
    null = measure(MediaVectors(ref.visual[i]), text[j], ref.group[i], ref)
    own = np.arange(len(ref))
    agree = neighbour_agreement(ref, text)
    near, near_null = agree(own, own), agree(i, j)

    def calibrated(pick: Callable[[Measures], Floats], weight: float = 0.0) -> Found:
        score = pick(found).astype(np.float64) + weight * near
        fitted = fit_scores(score, pick(null) + weight * near_null, bootstraps=0)
        return score, fitted.p(score).astype(np.float64), fitted.pi0

    cosine = found.similarity.astype(np.float64)
    own_score = found.mismatch_score.astype(np.float64)
    return {
        "cosine": calibrated(lambda m: m.similarity),
        "mixture on cosine (NCR)": (cosine, *mixture(cosine)),
        "hubness-normalised": calibrated(lambda m: m.similarity_normalised),
        "neighbours (LEMoN)": calibrated(lambda m: m.similarity, 0.5),
        "auditor + neighbours": calibrated(lambda m: m.mismatch_score, 0.1),
        OWN: (own_score, model.p(own_score).astype(np.float64), model.pi0),
    }


def row(kind: str, rate: float, name: str, found: list[Found], spoiled: list[npt.NDArray[np.bool_]]) -> dict[str, Any]:
    both = list(zip(found, spoiled, strict=True))
    return {
        "noise": kind,
        "rate": rate,
        "method": name,
        "auroc": float(np.mean([auroc(score, bad) for (score, _, _), bad in both])),
        "ap": float(np.mean([average_precision(score, bad) for (score, _, _), bad in both])),
        "f1": float(np.mean([f1(p >= 0.5, bad) for (_, p, _), bad in both])),
        "calibration_error": float(np.mean([calibration_error(p, bad) for (_, p, _), bad in both])),
        "pi0": float(np.mean([pi0 for (_, _, pi0), _ in both])),
        "pi0_error": float(np.max([abs(pi0 - bad.mean()) for (_, _, pi0), bad in both])),
    }


def run(photos: Photos, encode: Any) -> dict[str, Any]:
    rows = []
    for kind in KINDS:
        for rate in RATES:
            results: dict[str, list[Found]] = {}
            truth = []
            for seed in SEEDS:
                text, spoiled = plant(photos, kind, rate, seed, encode)
                ref = Reference(MediaVectors(photos.visual[photos.media]), text, photos.media, photos.scale)
                for name, found in methods(ref, seed).items():
                    results.setdefault(name, []).append(found)
                truth.append(spoiled)
            rows += [row(kind, rate, name, found, truth) for name, found in results.items()]
            table(rows[-len(results) :])
    clean = Reference(MediaVectors(photos.visual[photos.media]), photos.text, photos.media, photos.scale)
    flagged = {name: float((p >= 0.5).mean()) for name, (_, p, _) in methods(clean, 0).items()}
    return {"rows": rows, "flagged_without_noise": flagged, "pairs": len(photos.captions), "seeds": len(SEEDS)}


def main() -> None:
    from tests.conftest import SHARED

    photos = load_photos(SHARED)
    results = run(photos, encoder(SHARED))
    names = list(results["flagged_without_noise"])
    mean = [
        {
            "method": name,
            **{
                m: float(np.mean([r[m] for r in results["rows"] if r["method"] == name])) for m in ("auroc", "ap", "f1")
            },
        }
        for name in names
    ]
    results["mean"] = mean
    table(mean, title="mean over kinds and rates")
    table([{"method": k, "flagged at 0% noise": v} for k, v in results["flagged_without_noise"].items()])
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "mismatch_flickr8k.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()

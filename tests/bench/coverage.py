"""Measure the error of the estimated mismatch share and the coverage of its 90% interval on planted corpora.

    python -m tests.bench.coverage [--corpora 100] [--pairs 1000] [--words]

Val photos of Flickr8k with one caption or five, 200 to 5,000 pairs, 0 to 60% of the captions swapped at random. For
each size: the error of the share (root mean square, worst), the coverage of the interval, and the calibration error of
p_mismatch. Writes bench-results/coverage.json.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from auditor.console import print_table
from auditor.score.statistics.mismatch import fit_mismatch
from auditor.score.statistics.mismatch_statistic import compute_statistic
from auditor.score.statistics.rivals import measure_pairs
from auditor.score.statistics.word_evidence import Vocabulary, WordFrequencies, encode_words
from tests.bench.flickr8k import Photos, encoder, load_photos
from tests.bench.mismatch_flickr8k import calibration_error
from tests.bench.noise import part, reference_of, spoil

SIZES = ((200, 1), (200, 5), (500, 1), (500, 5), (1000, 1), (1000, 5), (5000, 5))
RATES = (0.0, 0.05, 0.1, 0.2, 0.4, 0.6)
RESULTS = Path(__file__).resolve().parents[2] / "bench-results"


def one(photos: Photos, pairs: int, captions: int, seed: int, words: Vocabulary | None = None) -> dict[str, float]:
    """Estimate and truth for one planted corpus."""
    chosen = np.random.default_rng([seed, pairs]).permutation(len(photos.keys))[: pairs // captions]
    spoiled = spoil(part(photos, np.sort(chosen), captions, seed), "random", RATES[seed % len(RATES)], seed)
    reference = reference_of(spoiled.photos)
    model = fit_mismatch(reference, seed=seed, words=words)
    assert model is not None and model.statistic is not None
    score = compute_statistic(model.statistic, reference, measure_pairs(reference, reference))
    truth = float(spoiled.wrong.mean())
    return {
        "pairs": pairs,
        "captions": captions,
        "truth": truth,
        "pi0": model.pi0,
        "low": model.pi0_low,
        "high": model.pi0_high,
        "calibration_error": calibration_error(model.p(score).astype(np.float64), spoiled.wrong),
    }


def described(found: list[dict[str, float]]) -> dict[str, Any]:
    """Figures over the corpora of one size."""
    error = np.array([each["pi0"] - each["truth"] for each in found])
    holds = [each["low"] - 1e-9 <= each["truth"] <= each["high"] + 1e-9 for each in found]
    return {
        "pairs": int(found[0]["pairs"]),
        "captions": int(found[0]["captions"]),
        "corpora": len(found),
        "rms": float(np.sqrt((error**2).mean())),
        "worst": float(np.abs(error).max()),
        "bias": float(error.mean()),
        "coverage": float(np.mean(holds)),
        "width": float(np.mean([each["high"] - each["low"] for each in found])),
        "calibration error": float(np.mean([each["calibration_error"] for each in found])),
    }


def main() -> None:
    from tests.conftest import SHARED

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpora", type=int, default=100, help="corpora of each size")
    parser.add_argument("--pairs", type=int, nargs="+", default=sorted({pairs for pairs, _ in SIZES}))
    parser.add_argument("--words", action="store_true", help="also use single words")
    options = parser.parse_args()
    photos = load_photos(SHARED)
    words = (
        encode_words(WordFrequencies.count(photos.captions).informative_words(), encoder(SHARED))
        if options.words
        else None
    )
    rows, corpora = [], []
    for pairs, captions in (size for size in SIZES if size[0] in options.pairs):
        found = [one(photos, pairs, captions, seed, words) for seed in range(options.corpora)]
        corpora += found
        rows.append(described(found))
        print_table(rows[-1:])
    print_table(rows, "share of mismatched pairs, estimated without labels")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "coverage.json").write_text(json.dumps({"rows": rows, "corpora": corpora}, indent=1))


if __name__ == "__main__":
    main()

"""Measure the benefit of 100 labels if mismatches are related captions, which no unlabeled null sees.

    python -m tests.bench.certify_flickr8k

Captions of similar (or random) photos are planted into the 2,500 pairs of the last 500 val photos of Flickr8k; the
prior of the correction was chosen on the first 500. Prints share and calibration error before and after
`--recalibrate`, and the coverage of the 90% interval, for 3 corpora of each kind and 40 samples of 100 labels each.
Writes bench-results/certify_flickr8k.json.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from auditor.console import print_table
from auditor.review.certificate import Stratum, certify
from auditor.review.correction_map import fit_correction
from auditor.review.strata import draw_rows, stratify_rows
from auditor.score.statistics.mismatch import fit_mismatch
from auditor.score.statistics.mismatch_statistic import compute_statistic
from auditor.score.statistics.rivals import measure_pairs
from tests.bench.flickr8k import Photos, encoder, load_photos
from tests.bench.mismatch_flickr8k import calibration_error
from tests.bench.noise import reference_of, spoil

LABELS, SEEDS, DRAWS = 100, 3, 40
SORTS = (("similar", 0.0), ("similar", 0.05), ("similar", 0.2), ("similar", 0.4), ("random", 0.2))
RESULTS = Path(__file__).resolve().parents[2] / "bench-results"


def second_half(photos: Photos) -> Photos:
    keep = photos.media >= len(photos.keys) // 2
    captions = [caption for caption, there in zip(photos.captions, keep, strict=True) if there]
    return Photos(photos.keys, captions, photos.visual, photos.text[keep], photos.media[keep], photos.scale)


def one_corpus(photos: Photos, kind: str, rate: float, seed: int, encode: Any) -> list[dict[str, float]]:
    spoiled = spoil(photos, kind, rate, seed, encode)
    reference, bad = reference_of(spoiled.photos), spoiled.wrong
    model = fit_mismatch(reference, seed=seed)
    assert model is not None and model.statistic is not None
    measured = measure_pairs(reference, reference)
    score = compute_statistic(model.statistic, reference, measured).astype(np.float64)
    p, z = model.p(score).astype(np.float64), (score - score.mean()) / score.std()
    division = stratify_rows(p, -score, p >= 0.5, np.zeros(len(p), bool), LABELS)
    return [one_sample(p, z, bad, division, 100 * seed + number) for number in range(DRAWS)]


def one_sample(p: Any, z: Any, bad: Any, division: Any, seed: int) -> dict[str, float]:
    rows, strata = draw_rows(division, seed)
    weight = (division.rows / np.maximum(division.labels, 1))[strata]
    found = fit_correction(p[rows], z[rows], bad[rows], weight, {}, {})
    after = p if found is None else found.p(p, z)
    said = [bad[rows[strata == h]] for h in range(len(division.labels))]
    counted = [Stratum(int(n), int(y.sum()), int((~y).sum())) for n, y in zip(division.rows, said, strict=True)]
    interval = certify(counted, filtered=False).mismatched
    return {
        "share error before": abs(p.mean() - bad.mean()),
        "after": abs(after.mean() - bad.mean()),
        "within 0.05": float(abs(after.mean() - bad.mean()) <= 0.05),
        "calibration error before": calibration_error(p, bad),
        "after ": calibration_error(after, bad),
        "under 0.05": float(calibration_error(after, bad) < 0.05),
        "left as it was": float(found is None),
        "interval covers": float(interval.low <= bad.mean() <= interval.high),
        "its width": interval.high - interval.low,
    }


def main() -> None:
    from tests.conftest import SHARED

    photos, encode = second_half(load_photos(SHARED)), encoder(SHARED)
    rows = []
    for kind, rate in SORTS:
        found = [one for seed in range(SEEDS) for one in one_corpus(photos, kind, rate, seed, encode)]
        rows.append(
            {"noise": kind, "rate": rate, **{name: float(np.mean([f[name] for f in found])) for name in found[0]}}
        )
    print_table(rows)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "certify_flickr8k.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()

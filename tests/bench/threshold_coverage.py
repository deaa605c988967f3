"""Measure the coverage of the 90% intervals of `auditor thresholds`: every estimate at four cuts.

    python -m tests.bench.threshold_coverage [CORPORA]

40 simulated corpora of each kind by default, from seeds on which the intervals were not tuned. Writes
bench-results/threshold_coverage.json.
"""

import json
import sys
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from auditor.console import print_table
from auditor.keep.thresholds import NOTHING, Cut, PairCounts, compute_cuts
from auditor.score.statistics import mismatch_statistic
from auditor.score.statistics.mismatch import fit_mismatch
from auditor.score.statistics.rivals import measure_pairs
from tests.support.pair_counts import count_scores
from tests.support.pairs import make_planted_pairs

Bools = npt.NDArray[np.bool_]
SORTS = {  # media, captions each, noise of the captions
    "200 pairs": (200, 1, 1.1),
    "600 pairs": (600, 1, 1.1),
    "600 pairs, poor encoder": (600, 1, 1.5),
    "150 media, 4 captions each": (150, 4, 1.1),
}
RATES, AT = (0.03, 0.1, 0.3), (0.1, 0.3, 0.5, 0.9)
ESTIMATES = ("precision", "caught", "lost", "left")
FIRST_SEED = 100  # smaller seeds were used to choose CURVE
RESULTS = Path(__file__).resolve().parents[2] / "bench-results"


def judged(media: int, captions: int, noise: float, rate: float, seed: int) -> tuple[PairCounts, Bools, Bools]:
    """The statistics that cut-offs need, p_mismatch, and which pairs are really mismatched."""
    corpus = make_planted_pairs(media, rate, seed=seed, captions=captions, noise=noise)
    reference = corpus.reference
    model = fit_mismatch(reference, seed=seed)
    assert model is not None and model.statistic is not None
    score = mismatch_statistic.compute_statistic(model.statistic, reference, measure_pairs(reference, reference))
    return count_scores(score, model), model.p(score), corpus.spoiled


def truth(gone: Bools, spoiled: Bools) -> dict[str, float]:
    """Every estimate's true value; NaN if its denominator is zero."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return {
            "precision": float(np.divide((gone & spoiled).sum(), gone.sum())),
            "caught": float(np.divide((gone & spoiled).sum(), spoiled.sum())),
            "lost": float(np.divide((gone & ~spoiled).sum(), (~spoiled).sum())),
            "left": float(np.divide((~gone & spoiled).sum(), (~gone).sum())),
        }


def holds(cut: Cut, name: str, value: float) -> bool | None:
    low, high = getattr(cut, f"{name}_low"), getattr(cut, f"{name}_high")
    return None if np.isnan(value) or low is None else bool(low <= value <= high)


def coverage(sort: str, rate: float, corpora: int) -> dict[str, Any]:
    """Share of intervals that contain the truth, and their mean width, for one kind of corpus."""
    held, width = defaultdict(list), defaultdict(list)
    for seed in range(FIRST_SEED, FIRST_SEED + corpora):
        found, p, spoiled = judged(*SORTS[sort], rate, seed)
        for cut in compute_cuts(found, [*AT, NOTHING]):
            for name, value in truth(p >= np.float32(cut.p), spoiled).items():
                what = "mismatched" if cut.p > 1 else name
                answer = holds(cut, name, value) if cut.p <= 1 or name == "left" else None
                if answer is not None:
                    held[what].append(answer)
                    width[what].append(getattr(cut, f"{name}_high") - getattr(cut, f"{name}_low"))
    line: dict[str, Any] = {"corpus": sort, "planted": rate}
    for name in ("mismatched", *ESTIMATES):
        line |= {name: float(np.mean(held[name])), f"{name} width": float(np.mean(width[name]))}
    return line


def shown(line: dict[str, Any]) -> dict[str, Any]:
    held = partial("{:.0%} ({:.1%})".format)
    figures = {name: held(line[name], line[f"{name} width"]) for name in ("mismatched", *ESTIMATES)}
    return {"corpus": line["corpus"], "planted": f"{line['planted']:.0%}", **figures}


def main() -> None:
    corpora = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    lines = [coverage(sort, rate, corpora) for sort in SORTS for rate in RATES]
    means = {
        name: float(np.mean([line[name] for line in lines])) for name in lines[0] if name not in ("corpus", "planted")
    }
    print_table([*map(shown, lines), shown({"corpus": "all", "planted": float(np.mean(RATES)), **means})])
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "threshold_coverage.json").write_text(json.dumps(lines, indent=1))


if __name__ == "__main__":
    main()

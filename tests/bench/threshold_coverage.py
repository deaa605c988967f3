"""Measure the coverage of the 90% intervals of `auditor thresholds`: every estimate at four cuts.

    python -m tests.bench.threshold_coverage [CORPORA] [WORD]

40 corpora of each kind by default, from seeds on which the intervals were not tuned; with WORD, only kinds whose name
contains it. Simulated vectors, and photos of Flickr8k with swapped captions: `seen` by the model in its training, and
`unseen`; their rates alternate. Writes bench-results/threshold_coverage.json.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from auditor.console import print_table
from auditor.keep.thresholds import NOTHING, Cut, PairCounts, choose_cut, compute_cuts
from auditor.score.statistics import mismatch_statistic
from auditor.score.statistics.mismatch import fit_mismatch
from auditor.score.statistics.rivals import ReferenceSample, measure_pairs
from tests.bench.flickr8k import Photos, load_photos
from tests.bench.noise import part, reference_of, spoil
from tests.conftest import SHARED
from tests.support.pair_counts import count_scores
from tests.support.pairs import make_planted_pairs

Bools = npt.NDArray[np.bool_]
SORTS = {  # media, captions each, noise of the captions
    "200 pairs": (200, 1, 1.1),
    "600 pairs": (600, 1, 1.1),
    "600 pairs, poor encoder": (600, 1, 1.5),
    "150 media, 4 captions each": (150, 4, 1.1),
}
PHOTOS = {  # tars, pairs, captions each
    f"{name}, {pairs} pairs, {captions} captions each": (tars, pairs, captions)
    for name, tars in (("unseen", ("val-00000",)), ("seen", ("train-00000", "train-00001")))
    for pairs, captions in ((200, 1), (1000, 1), (1000, 5), (5000, 5))
}
RATES, AT = (0.03, 0.1, 0.3), (0.1, 0.3, 0.5, 0.9)
PROMISES = ("mismatched", "precision", "caught", "lost", "left", "lose 2%")  # the last: beside it the loss, not a width
LOSE_AT_MOST = 0.02
FIRST_SEED = 100  # smaller seeds were used to choose CURVE
RESULTS = Path(__file__).resolve().parents[2] / "bench-results"


def simulate(sort: str, rate: float, seed: int) -> tuple[ReferenceSample, Bools]:
    media, captions, noise = SORTS[sort]
    corpus = make_planted_pairs(media, rate, seed=seed, captions=captions, noise=noise)
    return corpus.reference, corpus.spoiled


def swap_captions(sort: str, rate: float, seed: int) -> tuple[ReferenceSample, Bools]:
    tars, pairs, captions = PHOTOS[sort]
    photos = read_photos(tars[seed % len(tars)])
    chosen = np.random.default_rng(seed).permutation(len(photos.keys))[: pairs // captions]
    corpus = spoil(part(photos, chosen, captions, seed), "random", rate, seed)
    return reference_of(corpus.photos), corpus.wrong


@cache
def read_photos(tar: str) -> Photos:
    return load_photos(SHARED, 1500, f"flickr8k/{tar}.tar")


def judged(reference: ReferenceSample, seed: int) -> tuple[PairCounts, Bools]:
    """The statistics that cut-offs need, and p_mismatch."""
    model = fit_mismatch(reference, seed=seed)
    assert model is not None and model.statistic is not None
    score = mismatch_statistic.compute_statistic(model.statistic, reference, measure_pairs(reference, reference))
    return count_scores(score, model), model.p(score)


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


def coverage(sort: str, rates: Sequence[float], corpora: int) -> dict[str, Any]:
    """Share of intervals that contain the truth, and their mean width, for one kind of corpus."""
    held, width = defaultdict(list), defaultdict(list)
    for seed in range(FIRST_SEED, FIRST_SEED + corpora):
        reference, spoiled = (simulate if sort in SORTS else swap_captions)(sort, rates[seed % len(rates)], seed)
        counts, p = judged(reference, seed)
        chosen = p >= np.float32(choose_cut(counts, lose_at_most=LOSE_AT_MOST).p)
        held["lose 2%"].append(bool(chosen[~spoiled].mean() <= LOSE_AT_MOST))
        width["lose 2%"].append(float(chosen[~spoiled].mean()))
        for cut in compute_cuts(counts, [*AT, NOTHING]):
            for name, value in truth(p >= np.float32(cut.p), spoiled).items():
                what = "mismatched" if cut.p > 1 else name
                answer = holds(cut, name, value) if cut.p <= 1 or name == "left" else None
                if answer is not None:
                    held[what].append(answer)
                    width[what].append(getattr(cut, f"{name}_high") - getattr(cut, f"{name}_low"))
    line: dict[str, Any] = {"corpus": sort, "planted": ", ".join(f"{rate:.0%}" for rate in rates)}
    for name in PROMISES:
        line |= {name: float(np.mean(held[name])), f"{name} width": float(np.mean(width[name]))}
    return line


def shown(line: dict[str, Any]) -> dict[str, Any]:
    held = partial("{:.0%} ({:.1%})".format)
    figures = {name: held(line[name], line[f"{name} width"]) for name in PROMISES}
    return {"corpus": line["corpus"], "planted": line["planted"], **figures}


def main() -> None:
    corpora = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    word = sys.argv[2] if len(sys.argv) > 2 else ""
    kinds = [(sort, (rate,)) for sort in SORTS for rate in RATES] + [
        (sort, RATES) for sort in PHOTOS if SHARED.exists()
    ]
    lines = []
    for sort, rates in kinds:
        if word in sort:
            lines.append(coverage(sort, rates, corpora))
            print(json.dumps(lines[-1]), flush=True)
    print_table([shown(line) for line in lines])
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "threshold_coverage.json").write_text(json.dumps(lines, indent=1))


if __name__ == "__main__":
    main()

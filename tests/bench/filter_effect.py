"""Measure what filters do for training: one pool, one small model, one budget, the same kept share, a clean test set.

    python -m tests.bench.filter_effect [--pools demo swapped related drawings] [--rates 0.2 0.4 0.6] [--seeds 3]

Each corpus (tests/bench/filter_pools.py) is audited by the product with its default settings. Each filter then keeps
as many pairs as are clean (of `drawings`, in which nothing is planted, 1 - rate), and projections of frozen trunk
features are trained on them (auditor/research/evaluate/projection_training.py), always with the same number of samples
seen. `recommended` keeps what `auditor filter --recommended` keeps. The table shows RSum on the test set, mean and
deviation over seeds (of the planted pairs, the filters and the training), and the share of the way from no filter to
the oracle. Writes bench-results/filter_effect-PART.json. Finished audits stay in bench-results/filter-audits and are
used again: remove them after a change of the scoring.
"""

import argparse
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from scipy.stats import rankdata

from auditor.console import print_table
from auditor.python_api import Audit
from auditor.research.evaluate.projection_training import ProjectionTraining, train_projections
from auditor.research.evaluate.studies import BASELINE
from auditor.research.retrieval.recall import compute_recall
from auditor.run.run_audit import run_audit
from auditor.score.statistics.rivals import ReferenceSample
from auditor.vectors import Bools, Floats, Ints, MediaVectors
from tests.bench.filter_pools import Cell, Part, Pool, load_pool
from tests.bench.mismatch_flickr8k import lemon
from tests.bench.peer_scores import compute_neg_clip_loss
from tests.conftest import SHARED

POOLS, RATES, SEEDS = ("demo", "swapped", "related", "drawings"), (0.2, 0.4, 0.6), 3
TRAINING = ProjectionTraining(dim=128, epochs=1, **BASELINE)
BUDGET = 25_600  # samples seen
RESULTS = Path(__file__).resolve().parents[2] / "bench-results"
COLUMNS = ("p_mismatch", "mismatch_score", "similarity_normalised", "uncertainty_text", "uncertainty_visual")
Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Candidates:
    """The pairs of a corpus with what its audit says about them."""

    pool: Pool
    cell: Cell
    columns: dict[str, Doubles]  # NaN if there is no value
    weights: Doubles  # of `auditor weigh`
    recommended: Ints  # rows
    seed: int

    def __len__(self) -> int:
        return len(self.cell.media)

    @cached_property
    def vectors(self) -> tuple[Floats, Floats]:
        return self.pool.encoded.visual[self.cell.media], self.pool.encoded.text[self.cell.captions]

    @cached_property
    def words(self) -> Doubles:
        return np.array([len(self.pool.encoded.captions[row].split()) for row in self.cell.captions], np.float64)

    @property
    def reference(self) -> ReferenceSample:
        visual, text = self.vectors
        return ReferenceSample(MediaVectors(visual), text, self.cell.media, scale=self.pool.scale)

    @property
    def is_mismatched(self) -> Bools:
        return self.columns["p_mismatch"] >= 0.5

    def rank(self, name: str) -> Doubles:
        """The rank of each pair by a column, from 0 to 1; the highest value is 1."""
        return np.asarray(rankdata(fill_missing(self.columns[name])) / len(self), np.float64)

    def good(self, *names: str) -> Doubles:
        """The product of 1 - value of some columns, as in `auditor weigh`; no value counts as their mean."""
        return np.asarray(np.prod([1 - fill_missing(self.columns[name]) for name in names], axis=0), np.float64)


def fill_missing(values: Doubles) -> Doubles:
    return np.where(np.isnan(values), 0.0 if np.isnan(values).all() else np.nanmean(values), values)


U = ("uncertainty_text", "uncertainty_visual")
FILTERS: dict[str, Callable[[Candidates], Doubles]] = {  # the higher, the better
    "random": lambda pairs: np.random.default_rng(pairs.seed).random(len(pairs)),
    "caption length": lambda pairs: pairs.words,
    "CLIP score": lambda pairs: np.einsum("nd,nd->n", *pairs.vectors).astype(np.float64),
    "negCLIPLoss": lambda pairs: compute_neg_clip_loss(*pairs.vectors, pairs.pool.scale),
    "LEMoN": lambda pairs: lemon(pairs.reference),
    "p_mismatch": lambda pairs: pairs.good("p_mismatch") + 1e-6 * pairs.rank("mismatch_score"),  # as --keep-top does
    "u": lambda pairs: pairs.good(*U),
    "p_mismatch + u": lambda pairs: pairs.good("p_mismatch", *U),
    "p_mismatch, similarity, u": lambda pairs: (
        pairs.rank("similarity_normalised") - 0.75 * pairs.rank("uncertainty_text") - 2 * pairs.is_mismatched
    ),
    "oracle": lambda pairs: (~pairs.cell.planted).astype(np.float64),
}
ALL = ("none", *FILTERS, "weigh", "recommended")


def audit_cell(pool: Pool, cell: Cell, seed: int, folder: Path) -> Candidates:
    """Audit a corpus, or open its finished audit."""
    finished = folder / "audit/faults.parquet"  # the last file that an audit writes
    if not finished.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        run_audit(pool.write(cell, folder))
    with Audit(folder / "audit") as audit:
        table = audit.sql(f"SELECT key, {', '.join(COLUMNS)} FROM samples ORDER BY key")
        audit.keep().weigh(folder / "weights.parquet", force=True)
        keys = audit.keep(**audit.recommend_rules()).keys.to_pylist()
    weights = pq.read_table(folder / "weights.parquet", columns=["key", "weight"]).sort_by("key")["weight"].to_numpy()
    assert table.num_rows == len(weights) == len(cell.media)
    columns = {name: table[name].to_numpy().astype(np.float64) for name in COLUMNS}
    return Candidates(pool, cell, columns, weights.astype(np.float64), np.array([*map(int, keys)]), seed)


def keep_best(score: Doubles, count: int, seed: int) -> Ints:
    """The rows with the highest scores; ties are broken at random."""
    order = np.random.default_rng(seed).permutation(len(score))
    return np.sort(order[np.argsort(-score[order], kind="stable")[:count]])


def choose_rows(name: str, pairs: Candidates, count: int) -> Ints:
    """The rows that a filter keeps; `weigh` repeats rows."""
    if name == "none":
        return np.arange(len(pairs))
    if name == "recommended":
        return pairs.recommended
    if name == "weigh":
        copies = pairs.weights * 10 * len(pairs) / pairs.weights.sum()
        return np.repeat(np.arange(len(pairs)), np.round(copies).astype(int))
    return keep_best(FILTERS[name](pairs), count, pairs.seed)


def train_on_rows(pairs: Candidates, rows: Ints) -> float:
    """RSum on the test set after training on these rows, in turn, until the budget is spent."""
    order = np.resize(np.random.default_rng(pairs.seed).permutation(rows), BUDGET)
    cell = pairs.cell
    features = pairs.pool.encoded.take_pairs(cell.media[order], cell.captions[order])
    model = train_projections(features, replace(TRAINING, seed=pairs.seed))
    return compute_recall(model.embed(pairs.pool.test)).rsum


def measure_cell(pool: Pool, rate: float, seed: int, filters: Sequence[str], audits: Path) -> list[dict[str, Any]]:
    cell = pool.plant(rate, seed)
    name = f"{pool.name}-{rate:g}-{seed}" if cell.planted.any() else pool.name
    pairs = audit_cell(pool, cell, seed, audits / name)
    count = round((1 - (cell.planted.mean() or rate)) * len(pairs))
    results = []
    for name in filters:
        if name == "oracle" and not cell.planted.any():
            continue
        rows = choose_rows(name, pairs, count)
        facts = {"kept": len(np.unique(rows)) / len(pairs), "clean": 1 - float(cell.planted[rows].mean())}
        results.append({"pool": pool.name, "rate": rate, "seed": seed, "filter": name, **facts})
        results[-1]["rsum"] = train_on_rows(pairs, rows)
    return results


def summarize(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line per filter, one column per cell: RSum, and how much of the way to the oracle."""
    cells = list(dict.fromkeys((row["pool"], row["rate"]) for row in results))
    values: dict[tuple[str, float, str], list[dict[str, Any]]] = {}
    for row in results:
        values.setdefault((row["pool"], row["rate"], row["filter"]), []).append(row)
    lines = []
    for name in dict.fromkeys(row["filter"] for row in results):
        line = {"filter": name}
        for pool, rate in cells:
            if rows := values.get((pool, rate, name)):
                line[f"{pool} {rate:.0%}"] = describe(
                    [row["rsum"] for row in rows],
                    [
                        float(np.mean([row["rsum"] for row in values.get((pool, rate, end), [{"rsum": np.nan}])]))
                        for end in ("none", "oracle")
                    ],
                )
        lines.append(line)
    return lines


def describe(sums: Sequence[float], ends: Sequence[float]) -> str:
    none, oracle = ends
    way = (np.mean(sums) - none) / (oracle - none) if oracle != none else np.nan
    text = f"{np.mean(sums):.1f} ± {np.std(sums, ddof=1) if len(sums) > 1 else 0:.1f}"
    return text if np.isnan(way) else f"{text} ({way:.0%})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pools", nargs="+", choices=POOLS, default=POOLS)
    parser.add_argument("--rates", nargs="+", type=float, default=RATES, help="shares of planted pairs")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="number of seeds")
    parser.add_argument("--filters", nargs="+", choices=ALL, default=ALL)
    parser.add_argument("--part", choices=get_args(Part), default="report", help="part of the data and of the test set")
    options = parser.parse_args()
    results: list[dict[str, Any]] = []
    first = 100 if options.part == "tune" else 0
    RESULTS.mkdir(exist_ok=True)
    for name in options.pools:
        pool = load_pool(name, options.part, SHARED)
        for rate in options.rates:
            for seed in range(first, first + options.seeds):
                results += measure_cell(pool, rate, seed, options.filters, RESULTS / "filter-audits" / options.part)
            print_table(summarize([row for row in results if (row["pool"], row["rate"]) == (name, rate)]))
            (RESULTS / f"filter_effect-{options.part}.json").write_text(json.dumps(results, indent=1))
    print_table(summarize(results), "RSum, and how much of the way from no filter to the oracle")


if __name__ == "__main__":
    main()

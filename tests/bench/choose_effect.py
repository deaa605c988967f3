"""Measure what a target and balance do for training: one skewed pool of photos, one small model, the same number kept.

    python -m tests.bench.choose_effect [--part report] [--seeds 10] [--shards 3] [--choices ...]

The pool holds Flickr8k's photos with one of their captions, or all five; a topic of rank r keeps the share r^-SKEW of
its photos, and SWAPPED of the captions belong to another photo. Topics are a k-means of the captions, which no choice
sees. The target are other photos of ten topics. Each choice leaves out pairs with a p_mismatch above 0.5 and keeps the
same number of pairs of the audited pool with `Audit.keep`; projections of frozen trunk features are trained on them, as
in tests/bench/filter_effect.py. RSum (recall at 1, 5 and 10 in both directions) is shown for the test photos of the
target's topics among each other, and among all test photos as the mean over topics, and weighted like the pool, with
the paired difference to --base and its standard error. `tune` uses other seeds, and exchanges the photos of the target
and of the test. Results that bench-results already holds are not computed again.
"""

import argparse
import json
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from auditor.choose.target_similarity import Norm
from auditor.console import print_table
from auditor.keep import ranked_rows
from auditor.keep.ranked_rows import SET_ORDER
from auditor.python_api import Audit
from auditor.research.evaluate.projection_training import train_projections
from auditor.research.retrieval.recall import EmbeddingSet, compute_recall
from auditor.run.run_audit import run_audit
from auditor.score.statistics.topics import cluster_vectors
from auditor.vectors import Floats, Ints
from tests.bench.filter_effect import BUDGET, RESULTS, TRAINING
from tests.bench.filter_pools import Cell, Encoded, Part, encode_tars, reduce_features, take_half, write_vectors
from tests.conftest import SHARED

TOPICS, TARGET_TOPICS, CAPTIONS, SKEW, SWAPPED, KEPT = 40, 10, 5, 0.4, 0.3, 0.3
# Rules of Audit.keep besides p_mismatch and the number to keep. `weight` is that of the target in the rank; balance is
# among the best `candidates` times as many pairs as are kept.
CHOICES: dict[str, dict[str, Any]] = {
    "random": {"by": "random"},
    "p_mismatch": {"by": "p_mismatch"},
    "CLIP score": {"by": "similarity"},
    "negCLIPLoss": {"by": SET_ORDER},
    "towards": {"towards": "towards_inf"},
    **{f"towards, weight {weight}": {"towards": "towards_inf", "weight": weight} for weight in (0.1, 0.2, 0.4, 0.8)},
    "towards, norm 2": {"towards": "towards_two"},
    "towards alone": {"by": "towards_inf"},
    "balance": {"balance": "topic:40"},
    **{f"balance among {n} times as many": {"balance": "topic:40", "candidates": n} for n in (1.2, 1.5, 10)},
    "diverse": {"diverse": True},
}
NORMS: dict[str, Norm] = {"inf": "inf", "two": "2"}
MEASURES = ("target", "mean over topics", "like the pool")
Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SkewedPool:
    """Photos of a skewed pool, the vectors of the target, and the test with the topic of each photo."""

    encoded: Encoded
    scale: float
    cell: Cell
    target: Floats  # (T, D)
    test: Encoded
    test_topics: Ints  # (M,)
    target_topics: Ints
    shares: Doubles  # (TOPICS,) of the pool


def load_skewed_pool(part: Part, seed: int, captions_per_photo: int, shards: int) -> SkewedPool:
    model, folder = f"local-dir:{SHARED / 'models/flickr8k-lite'}", SHARED / "data/flickr8k"
    encoded, scale = encode_tars(model, f"{folder}/train-{{00000..0000{shards - 1}}}.tar")
    held_out, _ = encode_tars(model, f"{folder}/val-00000.tar")
    encoded, held_out = reduce_features(encoded, held_out)
    texts = np.concatenate([average_captions(encoded), average_captions(held_out)])
    centroids = cluster_vectors(texts, TOPICS, rounds=20, seed=0)
    topics = (texts @ centroids.T).argmax(axis=1)
    pool_topics, held_out_topics = topics[: len(encoded.keys)], topics[len(encoded.keys) :]
    generator = np.random.default_rng(seed)
    rank = generator.permutation(TOPICS) + 1
    kept = generator.random(len(pool_topics)) < rank[pool_topics] ** -SKEW
    target_topics = generator.choice(TOPICS, TARGET_TOPICS, replace=False)
    turns = generator.permuted(np.tile(np.arange(CAPTIONS), (len(encoded.keys), 1)), axis=1).ravel()
    captions = np.flatnonzero(kept[encoded.owners] & (turns < captions_per_photo))
    cell = swap_captions(encoded.owners[captions], captions, generator)
    test_rows = take_half(len(held_out.keys), part)
    others = np.setdiff1d(np.arange(len(held_out.keys)), test_rows)
    target = held_out.visual[others[np.isin(held_out_topics[others], target_topics)]]
    shares = np.bincount(pool_topics[kept], minlength=TOPICS) / kept.sum()
    test = take_media(held_out, test_rows)
    return SkewedPool(encoded, scale, cell, target, test, held_out_topics[test_rows], target_topics, shares)


def average_captions(encoded: Encoded) -> Floats:
    means = np.zeros((len(encoded.keys), encoded.text.shape[1]), np.float32)
    np.add.at(means, encoded.owners, encoded.text)
    return np.asarray(means / np.linalg.norm(means, axis=1, keepdims=True), np.float32)


def swap_captions(media: Ints, captions: Ints, generator: np.random.Generator) -> Cell:
    rows = generator.permutation(len(captions))[: round(SWAPPED * len(captions))]
    swapped = captions.copy()
    swapped[rows] = np.roll(captions[rows], 1)
    return Cell(media, swapped, swapped != captions)


def take_media(encoded: Encoded, rows: Ints) -> Encoded:
    place = np.full(len(encoded.keys), -1)
    place[rows] = np.arange(len(rows))
    captions = np.flatnonzero(place[encoded.owners] >= 0)
    return Encoded(
        [encoded.captions[row] for row in captions],
        place[encoded.owners[captions]],
        [encoded.keys[row] for row in rows],
        encoded.visual[rows],
        encoded.text[captions],
        encoded.visual_features[rows],
        encoded.text_features[captions],
    )


def open_audit(pool: SkewedPool, folder: Path, seed: int) -> Audit:
    """Audit the pool, or finish its audit, and store the columns that the choices rank by."""
    if not (folder / "pairs.parquet").exists():
        folder.mkdir(parents=True)
        np.save(folder / "target.npy", pool.target)
        config = write_vectors(pool.encoded, pool.scale, pool.cell, folder)
        (folder / "config.pickle").write_bytes(pickle.dumps(config))
    if not (folder / "audit/faults.parquet").exists():  # the last file that an audit writes
        run_audit(pickle.loads((folder / "config.pickle").read_bytes()))
    audit = Audit(folder / "audit")
    if "random" not in audit.columns:
        audit.apply(RandomOrder(seed), ["key"], name="random")
    for name, norm in NORMS.items():
        if f"towards_{name}" not in audit.columns:
            audit.towards(folder / "target.npy", name=name, norm=norm)
    return audit


def choose_rows(pool: SkewedPool, audit: Audit, choice: str) -> Ints:
    """The rows that a choice keeps."""
    rules: dict[str, Any] = {"max_p_mismatch": 0.5, **CHOICES[choice]}
    weight = patch.object(ranked_rows, "TARGET_WEIGHT", rules.pop("weight", ranked_rows.TARGET_WEIGHT))
    candidates = patch.object(ranked_rows, "CANDIDATES", rules.pop("candidates", ranked_rows.CANDIDATES))
    with weight, candidates:
        keys = audit.keep(**rules, count=round(KEPT * len(pool.cell.media))).keys.to_pylist()
    return np.sort(np.array([*map(int, keys)]))


@dataclass(frozen=True)
class RandomOrder:
    seed: int

    def __call__(self, key: list[str]) -> list[float]:
        return [float(np.random.default_rng([self.seed, int(name)]).random()) for name in key]


def measure_recalls(embedded: EmbeddingSet, pool: SkewedPool) -> dict[str, float]:
    target = embedded.take_groups(np.flatnonzero(np.isin(pool.test_topics, pool.target_topics)))
    topics = np.unique(pool.test_topics)
    values, weights = sum_recalls(embedded, pool.test_topics, topics), pool.shares[topics]
    means = float(values.mean()), float(values @ weights / weights.sum())
    return dict(zip(MEASURES, (compute_recall(target).rsum, *means), strict=True))


def sum_recalls(embedded: EmbeddingSet, topic_of_photo: Ints, topics: Ints) -> Doubles:
    """RSum of the queries of each topic among all test photos and captions."""
    scores, owners = embedded.scores(), embedded.text_groups
    is_own = owners[None, :] == np.arange(len(topic_of_photo))[:, None]
    best = np.where(is_own, scores, -np.inf).max(axis=1)
    media_ranks = ((scores > best[:, None]) & ~is_own).sum(axis=1)
    caption_ranks = (scores > scores[owners, np.arange(len(owners))]).sum(axis=0)
    ranks = (topic_of_photo, media_ranks), (topic_of_photo[owners], caption_ranks)
    hits = [[(rank[of == topic] < k).mean() for of, rank in ranks for k in (1, 5, 10)] for topic in topics]
    return np.asarray(100 * np.array(hits).sum(axis=1), np.float64)


def train_on_rows(pool: SkewedPool, rows: Ints, seed: int) -> dict[str, float]:
    order = np.resize(np.random.default_rng(seed).permutation(rows), BUDGET)
    features = pool.encoded.take_pairs(pool.cell.media[order], pool.cell.captions[order])
    model = train_projections(features, replace(TRAINING, seed=seed))
    return measure_recalls(model.embed(pool.test.take_media(np.arange(len(pool.test.keys)))), pool)


def summarize(results: Sequence[dict[str, Any]], base: str) -> list[dict[str, str]]:
    """Means with deviations, and paired differences to the choice `base` with standard errors."""
    lines = []
    bases = {row["seed"]: row for row in results if row["choice"] == base}
    for name in dict.fromkeys(row["choice"] for row in results):
        rows = [row for row in results if row["choice"] == name]
        line = {"choice": name, "seeds": str(len(rows))}
        for measure in (*MEASURES, "clean", "photos"):
            values = [row[measure] for row in rows]
            line[measure] = f"{np.mean(values):.1f} ± {np.std(values, ddof=min(1, len(values) - 1)):.1f}"
            gains = [row[measure] - bases[row["seed"]][measure] for row in rows if row["seed"] in bases]
            if measure in MEASURES and name != base and len(gains) > 1:
                line[measure] += f" ({np.mean(gains):+.1f} ± {np.std(gains, ddof=1) / len(gains) ** 0.5:.1f})"
        lines.append(line)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=get_args(Part), default="report")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--choices", nargs="+", choices=CHOICES, default=[*CHOICES])
    parser.add_argument("--shards", type=int, choices=(1, 2, 3), default=3, help="shards of the pool's photos")
    parser.add_argument("--base", choices=CHOICES, default="negCLIPLoss", help="what the others are compared with")
    parser.add_argument("--captions", type=int, choices=(1, CAPTIONS), default=1, help="captions of each photo")
    options = parser.parse_args()
    name = f"{options.part}-{options.captions}-{options.shards}"
    path = RESULTS / f"choose_effect-{name}.json"
    results: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    first = 100 if options.part == "tune" else 0
    for seed in range(first, first + options.seeds):
        finished = {row["choice"] for row in results if row["seed"] == seed}
        if finished >= {*options.choices}:
            continue
        pool = load_skewed_pool(options.part, seed, options.captions, options.shards)
        with open_audit(pool, RESULTS / "choose-audits" / f"{name}-{seed}", seed) as audit:
            for choice in [choice for choice in options.choices if choice not in finished]:
                rows = choose_rows(pool, audit, choice)
                clean = 100 * (1 - float(pool.cell.planted[rows].mean()))
                photos = len(np.unique(pool.cell.media[rows]))
                results.append(
                    {
                        "choice": choice,
                        "photos": photos,
                        "seed": seed,
                        "clean": clean,
                        **train_on_rows(pool, rows, seed),
                    }
                )
                path.write_text(json.dumps(results, indent=1))
    print_table(
        summarize(results, options.base),
        f"{KEPT:.0%} of the pairs kept; differences to {options.base} with standard errors",
    )


if __name__ == "__main__":
    main()

"""Test whether u follows h on real photos, and whether removing uncertain queries helps retrieval.

    python -m tests.bench.fit_flickr8k

Prototypes are fitted on the train photos of Flickr8k and evaluated on `val`: recipe "corpus" and recipe "paper",
removal by u, h, entropy and chance. h is computed over the train embeddings of the other modality, and over those of
val. R@1 after removal keeps the whole gallery and removes only queries. Embeddings are cached in bench-results/cache;
the figures go to bench-results/fit_flickr8k.json.
"""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from auditor.console import print_table
from auditor.research.evaluate.benchmark_splits import SplitSweeper, find_split_shards, join_shards, make_audit_config
from auditor.research.retrieval.recall import EmbeddingSet, rank_queries
from auditor.vectors import MediaVectors
from model.backbone import Backbone, load_backbone
from model.fit_prototypes import fit_prototypes, measure_uncertainty_fit
from model.prototypes import HeadConfig, PrototypeHead, compute_prototype_overlap
from model.retrieval_target import FitPairs, measure_corpus_similarity
from tests.conftest import SHARED

RESULTS = Path(__file__).resolve().parents[2] / "bench-results"
REMOVED = (0.0, 0.1, 0.2, 0.3, 0.5)
RECIPES = ("corpus", "paper")
Floats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Split:
    """Unit embeddings of the photos and captions of a split."""

    visual: Tensor  # (N, D)
    text: Tensor  # (M, D)
    owner: npt.NDArray[np.int64]  # (M,) photo of each caption


def encoded(backbone: Backbone, split: str) -> Split:
    """Encode a split as `auditor evaluate` does, with its cache."""
    sweep_split = SplitSweeper(backbone, make_audit_config("", str(RESULTS / "cache"), "", frames=12, decoders=2))
    shards = list(sweep_split(split, find_split_shards(str(SHARED / "data" / "flickr8k"), split)))
    data = join_shards(split, shards, None).data
    return Split(torch.from_numpy(data.visual), torch.from_numpy(data.text), data.text_groups)


def followed(head: PrototypeHead, train: Split, val: Split, recipe: str) -> list[dict[str, Any]]:
    """Per modality: correlation of u with both h, percentiles of u, overlap of the prototypes."""
    sides = [
        ("images", head.uncertainty_visual(val.visual), val.visual, train.text, val.text, head.text),
        ("captions", head.uncertainty_text(val.text), val.text, train.visual, val.visual, head.visual),
    ]
    rows = []
    for name, u, own, train_others, val_others, bank in sides:
        found = asdict(measure_uncertainty_fit(u, measure_corpus_similarity(own, train_others)))
        rows.append(
            {
                "recipe": recipe,
                "of": name,
                "Pearson u, h (train)": found["pearson"],
                "Pearson u, h (val)": measure_uncertainty_fit(u, measure_corpus_similarity(own, val_others)).pearson,
                **{f"u {percent}": found[key] for percent, key in (("5%", "low"), ("50%", "median"), ("95%", "high"))},
                "mean |cos|": compute_prototype_overlap(bank),
                "scale": head.config.scale,
            }
        )
    return rows


def entropy(similarity: Floats, scale: float) -> Floats:
    """Entropy (Q,) of the retrieval distribution of each query (row)."""
    logits = scale * (similarity - similarity.max(axis=1, keepdims=True))
    p = np.exp(logits)
    total = p.sum(axis=1)
    return np.asarray(np.log(total) - (p * logits).sum(axis=1) / total)


def removal(name: str, hits: Floats, order: Floats) -> dict[str, Any]:
    """R@1 in percent of the queries that remain after removing those with the highest values."""
    ranked = np.argsort(order, kind="stable")
    kept = {f"-{share:.0%}": ranked[: round(len(hits) * (1 - share))] for share in REMOVED}
    return {"by": name, **{label: 100 * float(hits[rows].mean()) for label, rows in kept.items()}}


def removals(
    heads: dict[str, PrototypeHead], train: Split, val: Split, scale: float
) -> dict[str, list[dict[str, Any]]]:
    """R@1 after removal, for captions that retrieve images and images that retrieve captions."""
    visual, text = val.visual.numpy(), val.text.numpy()
    data = EmbeddingSet(MediaVectors(visual), text, np.arange(len(visual)), val.owner)
    similarity = visual @ text.T
    sides = {
        "captions": (rank_queries(data, "text_to_visual").hit(1), val.text, train.visual, similarity.T),
        "images": (rank_queries(data, "visual_to_text").hit(1), val.visual, train.text, similarity),
    }
    found = {}
    for side, (hits, own, others, scores) in sides.items():
        rows = [{"by": "chance", **{f"-{share:.0%}": 100 * float(hits.mean()) for share in REMOVED}}]
        for recipe, head in heads.items():
            u = head.uncertainty_text(own) if side == "captions" else head.uncertainty_visual(own)
            rows.append(removal(f"u, recipe {recipe}", hits, u.numpy()))
        rows.append(removal("h (train)", hits, measure_corpus_similarity(own, others).numpy()))
        rows.append(removal("entropy of retrieval", hits, entropy(scores, scale)))
        found[side] = rows
    return found


def main() -> None:
    backbone = load_backbone(f"local-dir:{SHARED / 'models' / 'flickr8k-lite'}")
    train, val = encoded(backbone, "train"), encoded(backbone, "val")
    heads, rows, seconds = {}, [], {}
    for recipe in RECIPES:
        started = time.perf_counter()
        heads[recipe] = fit_prototypes(FitPairs(train.visual, train.text), HeadConfig(backbone.dim), recipe=recipe)  # type: ignore[arg-type]
        seconds[recipe] = round(time.perf_counter() - started, 1)
        rows += followed(heads[recipe], train, val, recipe)
    found = removals(heads, train, val, backbone.logit_scale)
    counts = f"{len(train.visual):,} train photos, {len(val.visual):,} val photos, {len(val.text):,} val captions"
    print_table(rows, f"u and h: {counts}; fitted in {seconds} s")
    print_table(found["captions"], "t2i R@1 (%) of the captions that remain after removal")
    print_table(found["images"], "i2t R@1 (%) of the images that remain after removal")
    RESULTS.mkdir(exist_ok=True)
    report = {"data": counts, "seconds": seconds, "follows": rows, "removal": found}
    (RESULTS / "fit_flickr8k.json").write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()

"""Write a results file like `auditor evaluate` does, from random embeddings."""

import json
from pathlib import Path

import numpy as np

from tests.support.pairs import normalize_rows


def write_results(path: Path, media: int = 60, captions: int = 2, seed: int = 0) -> Path:
    """Captions are close to their media, with more noise if their uncertainty is high."""
    from auditor.research.evaluate.benchmark_evaluation import analyze_uncertainty
    from auditor.research.retrieval.analyses import ItemScores
    from auditor.research.retrieval.recall import EmbeddingSet
    from auditor.vectors import MediaVectors

    random = np.random.default_rng(seed)
    visual = normalize_rows(random.normal(size=(media, 16)))
    owners = np.repeat(np.arange(media), captions)
    hard = random.random(len(owners))
    text = normalize_rows(visual[owners] + 0.5 * hard[:, None] * random.normal(size=(len(owners), 16)))
    data = EmbeddingSet(MediaVectors(visual), text, np.arange(media), owners)
    u = ItemScores(np.bincount(owners, hard) / captions, hard)
    recall = {"R@1": 51.2, "R@5": 80.1, "R@10": 90.0, "MdR": 1.0, "MnR": 4.2}
    row = {"gallery": "all", "visual_to_text": recall, "text_to_visual": recall, "RSum": 442.6}
    content = {
        "format": 1,
        "benchmark": "flickr8k",
        "created": "2026-11-16T00:00:00+00:00",
        "model": {"spec": "ViT-B-32@openai", "fingerprint": "0" * 32, "head": "fitted on val without labels"},
        "data": {"split": "test", "media": media, "captions": len(owners), "complete": False, "failed": []},
        "tables": [{**row, "reranked": False}, {**row, "reranked": True}],
        "rerank": {"beta_visual": 0.5, "beta_text": 0.25, "fitted_on": "val", "media": 40},
        **analyze_uncertainty(data, u),
        "eccv_caption": None,
        "paper": [],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path

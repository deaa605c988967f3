"""Compare two targets of PAU's u by how well u finds failing queries: the paper's h and retrieval perplexity.

    python -m tests.bench.target_flickr8k

Three folds of 500 Flickr8k photos that the encoder has not seen (val and ../shared/data/human): prototypes are fitted
on the embeddings of two, and the third is reported: the gain in R@1, in points, if the half with the highest u is
removed. The gallery stays whole. For comparison: the gain by the perplexity itself, among the fitted photos and among
the reported ones. Writes bench-results/target_flickr8k.json.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from auditor.console import print_table
from model.fit_prototypes import fit_prototypes
from model.prototypes import HeadConfig
from model.retrieval_target import FitPairs, measure_corpus_similarity
from tests.bench.flickr8k import load_photos
from tests.support.perplexity import compute_log_perplexity

RESULTS = Path(__file__).resolve().parents[2] / "bench-results"
FOLD, FOLDS = 500, 3
PROTOTYPES = (8, 64)


@dataclass(frozen=True)
class Fold:
    """Unit vectors to fit on, and unit vectors to report, with the photo of each caption."""

    fit_visual: Tensor
    fit_text: Tensor
    fit_owner: Tensor
    visual: Tensor
    text: Tensor
    owner: Tensor
    scale: float

    def gains(self, of_visual: Tensor, of_text: Tensor) -> tuple[float, float]:
        """Points of R@1 gained by removing the half with the highest values: captions, photos."""
        similarity = self.visual @ self.text.T
        captions = similarity.argmax(dim=0) == self.owner
        photos = self.owner[similarity.argmax(dim=1)] == torch.arange(len(self.visual))
        return gain(captions.float(), of_text), gain(photos.float(), of_visual)


def gain(hit: Tensor, uncertain: Tensor) -> float:
    kept = torch.argsort(uncertain, stable=True)[: len(hit) // 2]
    return 100 * float(hit[kept].mean() - hit.mean())


def folds(shared: Path) -> Iterator[Fold]:
    parts = [load_photos(shared), load_photos(shared, FOLD, "human/photos-00000.tar")]
    visual = torch.from_numpy(np.concatenate([part.visual for part in parts]))
    text = torch.from_numpy(np.concatenate([part.text for part in parts]))
    owner = torch.from_numpy(np.concatenate([parts[0].media, parts[1].media + len(parts[0].keys)]))
    for start in range(0, FOLDS * FOLD, FOLD):
        photos = (torch.arange(len(visual)) >= start) & (torch.arange(len(visual)) < start + FOLD)
        captions = photos[owner]
        photo_numbers = torch.cumsum(~photos, dim=0) - 1  # among those fitted on
        yield Fold(
            visual[~photos],
            text[~captions],
            photo_numbers[owner[~captions]],
            visual[photos],
            text[captions],
            owner[captions] - start,
            parts[0].scale,
        )


def rankings(fold: Fold, seed: int) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Name and values of photos and captions."""
    for target in ("h", "retrieval"):
        for count in PROTOTYPES:
            head = fit_prototypes(
                FitPairs(fold.fit_visual[fold.fit_owner], fold.fit_text, groups=fold.fit_owner),
                HeadConfig(dim=fold.visual.shape[1], prototypes=count),
                target=target,  # type: ignore[arg-type]
                logit_scale=fold.scale,
                seed=seed,
            )
            yield f"u, {target}, K = {count}", head.uncertainty_visual(fold.visual), head.uncertainty_text(fold.text)
    yield (
        "h",
        measure_corpus_similarity(fold.visual, fold.fit_text),
        measure_corpus_similarity(fold.text, fold.fit_visual),
    )
    for name, text, visual in (
        ("perplexity among those fitted on", fold.fit_text, fold.fit_visual),
        ("perplexity among those reported", fold.text, fold.visual),
    ):
        yield (
            name,
            compute_log_perplexity(fold.visual, text, fold.scale),
            compute_log_perplexity(fold.text, visual, fold.scale),
        )


def main() -> None:
    from tests.conftest import SHARED

    found: dict[str, list[tuple[float, float]]] = {}
    for seed, fold in enumerate(folds(SHARED)):
        for name, of_visual, of_text in rankings(fold, seed):
            found.setdefault(name, []).append(fold.gains(of_visual, of_text))
    rows: list[dict[str, Any]] = []
    for name, gains in found.items():
        mean = np.mean(gains, axis=0)
        each = [f"{captions:+.1f} / {photos:+.1f}" for captions, photos in gains]
        rows.append(
            {"removed by": name, "captions": float(mean[0]), "photos": float(mean[1]), "folds": ", ".join(each)}
        )
    print_table(rows, "points of R@1 gained by removing the most uncertain half")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "target_flickr8k.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()

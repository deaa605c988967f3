"""ECCV Caption: mAP@R and R-Precision with the missing positives of COCO filled in, where its package is installed.

`pip install eccv_caption` brings the annotations. It wants the COCO ids of images and captions, which packed shards
keep, and ranked lists of ids; 5,000 x 25,000 scores are ranked block by block, fifty deep. Where there are no figures,
`EccvError` says why.
"""

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from auditor.errors import AuditorError
from auditor.research.retrieval.recall import Array, EmbeddingSet

DEPTH = 50  # as the package's own example: the longest list of positives is shorter
METRICS = {"eccv_map_at_r": "mAP@R", "eccv_rprecision": "R-Precision", "eccv_r1": "R@1"}


class EccvError(AuditorError):
    """Why a split has no figures of ECCV Caption."""


def top(data: EmbeddingSet, *, texts: bool, depth: int = DEPTH, step: int = 256) -> Array:  # (Q, depth)
    """Positions of the best gallery items of each query, best first."""
    queries = len(data.visual if texts else data.text)
    parts = []
    for start in range(0, queries, step):
        rows = slice(start, start + step)
        scores = data.scores(rows, slice(None)) if texts else data.scores(slice(None), rows).T
        keep = min(depth, scores.shape[1])
        chosen = np.argpartition(-scores, keep - 1, axis=1)[:, :keep]
        order = np.argsort(-np.take_along_axis(scores, chosen, axis=1), axis=1, kind="stable")
        parts.append(np.take_along_axis(chosen, order, axis=1))
    return np.concatenate(parts)


def evaluate(data: EmbeddingSet, image_ids: Sequence[int], caption_ids: Sequence[int]) -> dict[str, Any]:
    """The package's metrics, as shares of one."""
    if len(image_ids) != len(data.visual) or len(caption_ids) != len(data.text):
        images, captions = f"{len(data.visual):,} images", f"{len(data.text):,} captions"
        raise EccvError(f"{images} have {len(image_ids):,} ids, {captions} have {len(caption_ids):,}")
    try:
        package = importlib.import_module("eccv_caption")
    except ImportError:
        raise EccvError("its package is not installed (pip install eccv_caption)") from None
    visual, text = np.asarray(image_ids), np.asarray(caption_ids)
    i2t = dict(zip(visual.tolist(), text[top(data, texts=True)].tolist(), strict=True))
    t2i = dict(zip(text.tolist(), visual[top(data, texts=False)].tolist(), strict=True))
    try:
        found: dict[str, Any] = package.Metrics().compute_all_metrics(i2t, t2i, target_metrics=tuple(METRICS), Ks=(1,))
    except LookupError as error:  # it asks for each of its queries, and for as many answers as a query has positives
        raise EccvError(f"not all of its images and captions are in this split (first {error})") from None
    return found

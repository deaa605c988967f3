"""ECCV Caption: mAP@R and R-Precision on COCO with its missing positives, if the package is installed.

`pip install eccv_caption` installs the annotations. The package needs the COCO ids of images and captions, which packed
shards store, and ranked lists of ids; 5,000 x 25,000 scores are ranked block by block, fifty deep. If the metrics
cannot be computed, `EccvError` says why.
"""

import importlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from auditor.corpus.corpus_files import is_url
from auditor.corpus.open_corpus import CorpusError, CorpusOptions, Shard
from auditor.errors import AuditorError
from auditor.research.retrieval.recall import Array, EmbeddingSet

DEPTH = 50  # as in the package's own example; the longest list of positives is shorter
METRICS = {"eccv_map_at_r": "mAP@R", "eccv_rprecision": "R-Precision", "eccv_r1": "R@1"}


class EccvError(AuditorError):
    """The reason why a split has no figures of ECCV Caption."""


def rank_top(data: EmbeddingSet, *, texts: bool, depth: int = DEPTH, step: int = 256) -> Array:  # (Q, depth)
    """Indices of the best gallery items of each query, best first."""
    queries = len(data.visual if texts else data.text)
    parts = []
    for start in range(0, queries, step):
        rows = slice(start, start + step)
        scores = data.scores(visual=rows) if texts else data.scores(text=rows).T
        keep = min(depth, scores.shape[1])
        chosen = np.argpartition(-scores, keep - 1, axis=1)[:, :keep]
        order = np.argsort(-np.take_along_axis(scores, chosen, axis=1), axis=1, kind="stable")
        parts.append(np.take_along_axis(chosen, order, axis=1))
    return np.concatenate(parts)


def compute_eccv_metrics(data: EmbeddingSet, image_ids: Sequence[int], caption_ids: Sequence[int]) -> dict[str, Any]:
    """The metrics of the package, as fractions of 1."""
    if len(image_ids) != len(data.visual) or len(caption_ids) != len(data.text):
        images, captions = f"{len(data.visual):,} images", f"{len(data.text):,} captions"
        raise EccvError(f"{images} have {len(image_ids):,} ids, {captions} have {len(caption_ids):,}")
    try:
        package = importlib.import_module("eccv_caption")
    except ImportError:
        raise EccvError("its package is not installed (pip install eccv_caption)") from None
    visual, text = np.asarray(image_ids), np.asarray(caption_ids)
    i2t = dict(zip(visual.tolist(), text[rank_top(data, texts=True)].tolist(), strict=True))
    t2i = dict(zip(text.tolist(), visual[rank_top(data, texts=False)].tolist(), strict=True))
    try:
        return dict(package.Metrics().compute_all_metrics(i2t, t2i, target_metrics=tuple(METRICS), Ks=(1,)))
    except LookupError as error:  # it looks up each of its queries, with as many answers as positives
        raise EccvError(f"not all of its images and captions are in this split (first {error})") from None


def find_coco_ids(
    keys: Sequence[str], owners: Array, shards: Sequence[Shard], captions: int | None
) -> tuple[list[int], list[int]]:
    """COCO's ids of the images and captions of a split, in its order; an image has at most `captions` captions."""
    stored = {key: ids[:captions] for shard in shards for key, ids in read_caption_ids(shard).items()}
    for key, expected in zip(keys, np.bincount(owners, minlength=len(keys)), strict=True):
        if len(stored.get(key, ())) != expected:
            raise EccvError(f"image {key} has {expected} captions and {len(stored.get(key, ()))} caption ids")
    try:
        return [int(key) for key in keys], [int(number) for key in keys for number in stored[key]]
    except (ValueError, TypeError) as error:
        raise EccvError(f"the shards hold other ids than COCO's ({error}); pack them again") from None


def read_caption_ids(shard: Shard) -> dict[str, list[Any]]:
    """Key of each image -> the caption ids that `auditor pack` stored beside it."""
    path = str(getattr(shard, "path", ""))
    if is_url(path):
        raise EccvError("caption ids are read from shards on this machine, and these are remote")
    with_ids: Any = replace(shard, options=CorpusOptions(carry=("caption_ids",)))  # type: ignore[type-var]
    try:
        with with_ids.open() as opened:
            records = {sample.key: json.loads(sample.carried[0]) for sample in opened.samples}
    except CorpusError as error:
        raise EccvError(f"caption ids of {path} cannot be read: {error}") from None
    return {key: ids if isinstance(ids := record["caption_ids"], list) else [] for key, record in records.items()}

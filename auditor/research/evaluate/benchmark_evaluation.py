"""Measures retrieval on a benchmark, from shards to the JSON that the dashboard's Benchmarks page shows.

Score the test split by the benchmark's protocol, plain and re-ranked with betas fitted on a validation split. Then
measure what the uncertainty is worth: its correlation with h, recall without the most uncertain items, recall by
tenths, and calibration. The caller gives the engine that sweeps the shards: this machine, or Ray in jobs/evaluate.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from auditor.audit_folder.folder import split_target
from auditor.audit_folder.manifest import format_current_time
from auditor.corpus.open_corpus import Shard
from auditor.research.evaluate.benchmark_splits import (
    BenchmarkSplit,
    EvaluationError,
    ShardEmbeddings,
    SweepSplit,
    check_failed_share,
    find_split_shards,
    join_shards,
)
from auditor.research.retrieval import analyses, eccv
from auditor.research.retrieval.analyses import ItemScores
from auditor.research.retrieval.protocols import PROTOCOLS, Protocol, read_paper_figures, score_split
from auditor.research.retrieval.recall import DIRECTIONS, Array, EmbeddingSet
from auditor.research.retrieval.rerank import Rerank, fit_beta
from auditor.score.fit_audit import FIT_CLIPS, compute_uncertainty_of_media
from auditor.score.score_config import HeadFitConfig
from auditor.score.statistics.ambiguity import measure_vagueness
from auditor.terminal import to_json
from auditor.vectors import MediaVectors
from model.backbone import Backbone
from model.fit_prototypes import fit_prototypes
from model.prototypes import HeadConfig, PrototypeHead
from model.retrieval_target import FitPairs

FORMAT = 1
VALIDATION_MEDIA = 1000  # more data would only cost time: only two betas are fitted


@dataclass(frozen=True)
class EvaluateConfig:
    benchmark: str
    data: str
    split: str | None = None  # None: the protocol's own
    validation: str | None = None  # None: val, or train if there is no val
    seed: int = 0
    max_failed: float = 0.01  # share of the media that may fail to decode


def evaluate_benchmark(
    config: EvaluateConfig, backbone: Backbone, head: PrototypeHead | None, sweep_split: SweepSplit
) -> dict[str, Any]:
    protocol = PROTOCOLS.get(config.benchmark)
    if protocol is None:
        raise EvaluationError(f"unknown benchmark {config.benchmark!r}; one of {', '.join(PROTOCOLS)}")
    name = config.split or protocol.split
    shards = find_split_shards(config.data, name)
    test = join_shards(name, list(sweep_split(name, shards)), protocol.captions)
    check_failed_share(test, config.max_failed)
    validation = sweep_validation(config, name, protocol, sweep_split)
    source = "of the checkpoint" if head else f"fitted on {(validation or test).name} without labels"
    head = head or fit_head((validation or test).data, config.seed)
    u = compute_item_uncertainty(head, test.data)
    rerank, betas = None, None
    if validation:
        of_validation = compute_item_uncertainty(head, validation.data)
        # With the protocol's own count, which decides how ties of equal sentences score (MSVD has many).
        keys, collapse = validation.keys.tolist(), protocol.collapse_texts
        rerank = fit_beta(keys, validation.data, of_validation, collapse_texts=collapse)
        fitted_on: dict[str, Any] = {"fitted_on": validation.name, "media": len(validation.keys)}
        betas = {"beta_visual": rerank.beta_visual, "beta_text": rerank.beta_text, **fitted_on}
    return {
        "format": FORMAT,
        "benchmark": config.benchmark,
        "created": format_current_time(),
        "model": {
            "spec": backbone.spec,
            "fingerprint": backbone.fingerprint,
            "head": source,
            "prototypes": head.config.prototypes,
        },
        "data": {
            "source": config.data,
            "split": test.name,
            "media": len(test.keys),
            "captions": len(test.captions),
            "expected_media": protocol.media,
            "complete": is_published_split(protocol, test),
            "video": protocol.video,
            "failed": test.failed,
        },
        "tables": compute_recall_tables(protocol, test, u, rerank),
        "rerank": betas,
        **analyze_uncertainty(test.data, u),
        **compute_eccv_figures(config.benchmark, test, shards),
        "paper": read_paper_figures("retrieval").get(config.benchmark, []),
    }


def sweep_validation(config: EvaluateConfig, test: str, protocol: Protocol, sweep: SweepSplit) -> BenchmarkSplit | None:
    """The split that the betas are fitted on; never the one that is reported."""
    names = [config.validation] if config.validation else [split for split in ("val", "train") if split != test]
    for name in names:
        if name == test:
            raise EvaluationError(f"betas fitted on {test} may not be reported on {test}; choose another --validation")
        try:
            shards = find_split_shards(config.data, name)
        except EvaluationError:
            if config.validation:
                raise
            continue
        swept: list[ShardEmbeddings] = []
        for shard in sweep(name, shards):  # lazily: no more shards than needed
            swept.append(shard)
            if sum(len(part.keys) for part in swept) >= VALIDATION_MEDIA:
                break
        return join_shards(name, swept, protocol.captions, VALIDATION_MEDIA)
    return None


def fit_head(data: EmbeddingSet, seed: int) -> PrototypeHead:
    """Prototypes for encoders without a head, fitted on the embeddings alone, without their pairing."""
    return fit_prototypes(make_fit_pairs(data.media, data.text), seed=seed)


def fit_audit_head(data: EmbeddingSet, captions: Sequence[str], logit_scale: float) -> PrototypeHead:
    """Prototypes as `auditor score` fits them on a corpus: u of these items knows their own partners."""
    limit = len(data.text) if data.media.frames is None else FIT_CLIPS
    rows = np.sort(np.random.default_rng(0).permutation(len(data.text))[:limit])
    owners = data.text_groups[rows]
    vagueness = measure_vagueness([captions[row] for row in rows], owners)
    pairs = make_fit_pairs(data.media.take(owners), data.text[rows])
    pairs = replace(pairs, groups=torch.from_numpy(owners), vagueness=torch.from_numpy(vagueness))
    config = HeadConfig(data.text.shape[1], HeadFitConfig().prototypes, clip_evidence="frames")
    return fit_prototypes(pairs, config, target="retrieval", logit_scale=logit_scale)


def make_fit_pairs(media: MediaVectors, text: Array) -> FitPairs:
    clips = (None if array is None else torch.from_numpy(array) for array in (media.frames, media.mask))
    return FitPairs(torch.from_numpy(media.visual), torch.from_numpy(text), *clips)


@torch.no_grad()
def compute_item_uncertainty(head: PrototypeHead, data: EmbeddingSet) -> ItemScores:
    device = head.visual.device
    visual = compute_uncertainty_of_media(head, data.media)
    text = head.uncertainty_text(torch.from_numpy(data.text).to(device))
    return ItemScores(visual.double().cpu().numpy(), text.double().cpu().numpy())


def compute_recall_tables(
    protocol: Protocol, test: BenchmarkSplit, u: ItemScores, rerank: Rerank | None
) -> list[dict[str, Any]]:
    whole = is_published_split(protocol, test)
    return [
        {"gallery": gallery, "reranked": data is not test.data, **result.to_dict()}
        for data in (test.data, *([rerank.apply(test.keys.tolist(), test.data, u)] if rerank else []))
        for gallery, result in score_split(protocol, data, test.name, complete=whole).items()
    ]


def is_published_split(protocol: Protocol, test: BenchmarkSplit) -> bool:
    """Whether this is the complete split that the benchmark's figures are published for."""
    return protocol.media is None or (len(test.keys) == protocol.media and test.name == protocol.split)


def analyze_uncertainty(data: EmbeddingSet, u: ItemScores) -> dict[str, Any]:
    """The curves of the dashboard, each for u and for h."""
    h = analyses.compute_mean_similarity(data)
    orders = {"uncertainty": u, "mean_similarity": h}
    removal = {direction: analyses.compute_removal_curve(data, orders, direction) for direction in DIRECTIONS}
    prediction = analyses.measure_failure_prediction(data, orders)
    return {"pearson": analyses.correlate_scores(u, h), "removal": removal, **prediction}


def compute_eccv_figures(benchmark: str, test: BenchmarkSplit, shards: Sequence[Shard]) -> dict[str, Any]:
    """mAP@R and R-Precision on COCO with its missing positives, or the reason why they are missing."""
    if benchmark != "coco":
        return {"eccv_caption": None, "eccv_skipped": None}
    try:
        ids = eccv.find_coco_ids(test.keys.tolist(), test.data.text_groups, shards, PROTOCOLS["coco"].captions)
        return {"eccv_caption": eccv.compute_eccv_metrics(test.data, *ids), "eccv_skipped": None}
    except eccv.EccvError as reason:
        return {"eccv_caption": None, "eccv_skipped": str(reason)}


def save_results(results: dict[str, Any], out: str | Path) -> None:
    folder, name = split_target(str(out))
    with folder.writing(name) as partial:
        partial.write_text(to_json(results) + "\n", encoding="utf-8")

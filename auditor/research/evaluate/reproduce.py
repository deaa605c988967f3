"""Reproduces tables of the paper: encode a corpus (or read the cache), train, analyze, write JSON and SVG."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from auditor.audit_folder.manifest import format_current_time
from auditor.report.charts import draw_bar_figure, draw_line_figure
from auditor.research.evaluate.benchmark_evaluation import VALIDATION_MEDIA, save_results
from auditor.research.evaluate.benchmark_splits import (
    BenchmarkSplit,
    EvaluationError,
    check_failed_share,
    find_split_shards,
    join_shards,
)
from auditor.research.evaluate.complexity import study_complexity
from auditor.research.evaluate.projection_training import FeaturePairs, ProjectionTraining
from auditor.research.evaluate.studies import (
    Study,
    StudyFindings,
    study_ablation,
    study_correlation,
    study_deciles,
    study_evidence,
    study_init,
    study_noise,
    study_prototypes,
    study_removal,
    study_trust,
)
from auditor.research.evaluate.trunk_features import EncodeShards
from auditor.research.retrieval.protocols import PROTOCOLS, Protocol, mask_first_captions, read_paper_figures
from auditor.vectors import average_frames, pad_frames
from model.backbone import Backbone

STUDIES: dict[str, Callable[[Study], StudyFindings]] = {
    "pearson": study_correlation,
    "removal": study_removal,
    "trust": study_trust,
    "deciles": study_deciles,
    "ablation": study_ablation,
    "prototypes": study_prototypes,
    "evidence": study_evidence,
    "init": study_init,
    "noise": study_noise,
}
# The data of each of the paper's tables: its figures are shown only next to figures from the same data.
PAPER_DATA = {
    **dict.fromkeys(("removal", "trust", "ablation", "prototypes", "evidence", "init"), ("msrvtt",)),
    "pearson": ("coco", "msrvtt"),
    "noise": ("coco",),
}

TRAINED = {
    "projections": "projections from scratch, temperature and prototypes, on frozen trunks",
    "text": "text tower and image projection from the weights of the model, temperature and prototypes",
}
LEARNING_RATES = {"projections": 1e-3, "text": 1e-4}
VIDEO_SIMILARITY = "mean of the whole clip and its best frame"  # as in the paper's appendix A


@dataclass(frozen=True)
class ReproduceConfig:
    tables: tuple[str, ...]
    benchmark: str = "shards"
    data: str | None = None
    train_split: str = "train"
    test_split: str = "test"
    held_out: float = 1 / 6  # share of the training media for fitting betas, at most VALIDATION_MEDIA media
    seeds: int = 3
    epochs: int = 8
    train: Literal["projections", "text"] = "projections"
    max_failed: float = 0.01  # share of the media of a split that may fail to decode


def reproduce(
    config: ReproduceConfig, encode: EncodeShards | None, backbone: Backbone | None = None
) -> Iterator[dict[str, Any]]:
    """The findings of each table as JSON, with the paper's own figures if the data is the paper's.

    The tables share their models. `backbone` is the model that `encode` uses.
    """
    study = None
    for table in config.tables:
        if table not in ("complexity", *STUDIES):
            raise EvaluationError(f"unknown table {table!r}; one of {', '.join([*STUDIES, 'complexity'])}")
        if table == "complexity":
            yield build_results(config, table, study_complexity(), read_paper_figures(table), None)
            continue
        if config.data is None or encode is None:
            raise EvaluationError(f"the table {table} needs --data and --model")
        study = study or prepare_study(config, encode, backbone)
        paper = read_paper_figures(table) if config.benchmark in PAPER_DATA.get(table, ()) else None
        yield build_results(config, table, STUDIES[table](study), paper, study)


def prepare_study(config: ReproduceConfig, encode: EncodeShards, backbone: Backbone | None = None) -> Study:
    """Encode the training, validation and test part; the last media of the training split are the validation part."""
    captions = PROTOCOLS[config.benchmark].captions
    tower = backbone if config.train == "text" else None
    if tower and not tower.trims:
        raise EvaluationError(f"--train text needs a causal text tower that pads with zeros, unlike {tower.spec}")
    train, train_pairs = encode_split(config, config.train_split, None, encode, tower)
    test, test_pairs = encode_split(config, config.test_split, captions, encode, tower)
    shared = set(train.keys) & set(test.keys)
    if shared:
        raise EvaluationError(f"{len(shared)} media are in both {train.name} and {test.name}, such as {min(shared)}")
    cut = len(train.keys) - min(round(len(train.keys) * config.held_out), VALIDATION_MEDIA)
    return Study(
        train=train_pairs.take_media(0, cut),
        validation=train_pairs.take_media(cut, len(train.keys)),
        test=test_pairs,
        frozen=test.data,
        frozen_train=train.data,
        captions=test.captions.tolist(),
        logit_scale=backbone.logit_scale if backbone else Study.logit_scale,
        similarity="cosine" if test.data.media.frames is None else VIDEO_SIMILARITY,
        failed={split.name: split.failed for split in (train, test)},
        seeds=config.seeds,
        settings=ProjectionTraining(epochs=config.epochs, rate=LEARNING_RATES[config.train]),
    )


def encode_split(
    config: ReproduceConfig, name: str, captions: int | None, encode: EncodeShards, tower: Backbone | None
) -> tuple[BenchmarkSplit, FeaturePairs]:
    shards = list(encode(find_split_shards(str(config.data), name)))
    split = join_shards(name, [shard.to_embeddings() for shard in shards], captions)
    check_failed_share(split, config.max_failed)
    counts = np.concatenate([shard.counts for shard in shards])
    visual = np.concatenate([shard.visual_features for shard in shards])
    media, owners = split.data.media, split.data.text_groups
    frames = None if media.frames is None else pad_frames(visual, counts)[0]
    if tower:
        text = tower.tokens(split.captions.tolist()).numpy()
    else:
        parts = [shard.text_features[mask_first_captions(shard.owners, captions)] for shard in shards]
        text = np.ascontiguousarray(np.concatenate(parts), np.float32)
    return split, FeaturePairs(average_frames(visual, counts), text, owners, frames, media.mask, tower)


def build_results(
    config: ReproduceConfig, table: str, findings: StudyFindings, paper: Any, study: Study | None
) -> dict[str, Any]:
    parts = study and {
        **{
            name: [len(pairs.visual), len(pairs.text)]
            for name, pairs in (("train", study.train), ("validation", study.validation), ("test", study.test))
        },
        "trained": TRAINED[config.train],
        "similarity": study.similarity,
        "failed": study.failed,
        "seeds": study.seeds,
    }
    return {
        "format": 1,
        "table": table,
        "benchmark": config.benchmark,
        "created": format_current_time(),
        "data": {"source": config.data, "test_split": config.test_split, "media_and_captions": parts},
        **vars(findings),
        "paper": paper,
        "incomparable": explain_incomparable(PROTOCOLS[config.benchmark], study) if study else None,
    }


def explain_incomparable(protocol: Protocol, study: Study) -> str | None:
    """Why figures of this test split cannot be compared with a paper's; None if it is the complete split."""
    media = len(study.test.visual)
    if protocol.media is None or media == protocol.media:
        return None
    return f"this test split has {media:,} media, that of {protocol.benchmark} {protocol.media:,}"


def write_results(results: dict[str, Any], out: Path) -> list[Path]:
    """Write `TABLE.json`, and `TABLE.svg` if the table has a plot; returns their paths."""
    table, lines, bars = results["table"], results["series"], results["bars"]
    paths = [out / f"{table}.json"]
    save_results(results, paths[0])
    if lines or bars:
        x_label, y_label = results["axes"]
        paths.append(out / f"{table}.svg")
        chart = draw_line_figure(table, x_label, y_label, lines) if lines else draw_bar_figure(table, y_label, bars)
        paths[1].write_text(chart, encoding="utf-8")
    return paths

"""From a corpus to one of the paper's tables: encode (or take from the cache), train, analyse, write JSON and SVG."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from auditor.benchmark_encoding import Encode, EvaluationError, split_shards
from auditor.evaluate import EncodedSplit, join, save_results
from auditor.line_chart import line_chart
from auditor.studies import STUDIES, Findings, Study, complexity
from model.benchmarks import paper
from model.benchmarks.heads import FeaturePairs, HeadTraining
from model.benchmarks.protocols import PROTOCOLS
from model.retrieval import EmbeddingSet

# Which data each of the paper's tables is about: only there its figures stand beside ours.
PAPER_DATA = {
    "pearson": ("coco", "msrvtt"),
    "removal": ("msrvtt",),
    "trust": ("msrvtt",),
    "ablation": ("msrvtt",),
    "prototypes": ("msrvtt",),
    "evidence": ("msrvtt",),
    "init": ("msrvtt",),
    "noise": ("coco",),
}


@dataclass(frozen=True)
class ReproduceConfig:
    table: str
    benchmark: str = "shards"
    data: str | None = None
    train_split: str = "train"
    test_split: str = "test"
    held_out: float = 1 / 6  # of the training media, for fitting betas
    seeds: int = 3
    epochs: int = 8


def reproduce(config: ReproduceConfig, encode: Encode | None) -> dict[str, Any]:
    """The findings of one table as JSON; the paper's own figures beside them where the data is the paper's."""
    if config.table == "complexity":
        return described(config, complexity(), paper.of("complexity"), None)
    if config.table not in STUDIES:
        raise EvaluationError(f"unknown table {config.table!r}; one of {', '.join([*STUDIES, 'complexity'])}")
    if config.data is None or encode is None:
        raise EvaluationError(f"the table {config.table} needs --data and --model")
    study = prepare(config, encode)
    findings = STUDIES[config.table](study)
    same_data = config.benchmark in PAPER_DATA.get(config.table, ())
    return described(config, findings, paper.of(config.table) if same_data else None, study)


def prepare(config: ReproduceConfig, encode: Encode) -> Study:
    """Training, validation and test part; the last media of the training split are held out for validation."""
    captions = PROTOCOLS[config.benchmark].captions
    train = encode_split(str(config.data), config.train_split, None, encode)
    test = encode_split(str(config.data), config.test_split, captions, encode)
    shared = set(train.keys) & set(test.keys)
    if shared:
        raise EvaluationError(f"{len(shared)} media are in both {train.name} and {test.name}, such as {min(shared)}")
    cut = round(len(train.keys) * (1 - config.held_out))
    pairs = features(train)
    return Study(
        train=pairs.take_media(0, cut),
        validation=pairs.take_media(cut, len(train.keys)),
        test=features(test),
        frozen=without_frames(test.data),
        frozen_train=without_frames(train.data),
        seeds=config.seeds,
        settings=HeadTraining(epochs=config.epochs),
    )


def encode_split(data: str, name: str, captions: int | None, encode: Encode) -> EncodedSplit:
    return join(name, list(encode(split_shards(data, name))), captions)


def features(split: EncodedSplit) -> FeaturePairs:
    visual, text = (np.ascontiguousarray(f, np.float32) for f in (split.visual_features, split.text_features))
    return FeaturePairs(visual, text, split.data.text_groups)


def without_frames(data: EmbeddingSet) -> EmbeddingSet:
    return EmbeddingSet(data.visual, data.text, data.visual_groups, data.text_groups)


def described(config: ReproduceConfig, findings: Findings, printed: Any, study: Study | None) -> dict[str, Any]:
    parts = study and {
        "train": [len(study.train.visual), len(study.train.text)],
        "validation": [len(study.validation.visual), len(study.validation.text)],
        "test": [len(study.test.visual), len(study.test.text)],
        "trained": "projections, temperature and prototypes on frozen trunks",
        "seeds": study.seeds,
    }
    return {
        "format": 1,
        "table": config.table,
        "benchmark": config.benchmark,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "data": {"source": config.data, "test_split": config.test_split, "media_and_captions": parts},
        "rows": findings.rows,
        "series": findings.series,
        "axes": findings.axes,
        "details": findings.details,
        "paper": printed,
    }


def write(results: dict[str, Any], out: Path) -> list[Path]:
    """`TABLE.json`, and `TABLE.svg` where there is something to draw."""
    paths = [out / f"{results['table']}.json"]
    out.mkdir(parents=True, exist_ok=True)
    save_results(results, paths[0])
    if results["series"]:
        x_label, y_label = results["axes"]
        paths.append(out / f"{results['table']}.svg")
        paths[1].write_text(line_chart(results["table"], x_label, y_label, results["series"]), encoding="utf-8")
    return paths

"""From a corpus to one of the paper's tables: encode (or take from the cache), train, analyse, write JSON and SVG."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from auditor.report.svg_charts import bar_chart, line_chart
from auditor.research.evaluate.benchmark_encoding import Encode, EvaluationError, split_shards
from auditor.research.evaluate.evaluate import VALIDATION_MEDIA, EncodedSplit, check_failed, join, save_results
from auditor.research.evaluate.projection_training import FeaturePairs, ProjectionTraining
from auditor.research.evaluate.studies import STUDIES, Findings, Study, complexity
from auditor.research.retrieval import paper_figures
from auditor.research.retrieval.protocols import PROTOCOLS, Protocol

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

TRAINED = "projections from scratch, temperature and prototypes, on frozen trunks"
BOTH = "mean of the whole clip and its best frame"  # as the paper's appendix A


@dataclass(frozen=True)
class ReproduceConfig:
    table: str
    benchmark: str = "shards"
    data: str | None = None
    train_split: str = "train"
    test_split: str = "test"
    held_out: float = 1 / 6  # of the training media, for fitting betas; no more than VALIDATION_MEDIA
    seeds: int = 3
    epochs: int = 8
    max_failed: float = 0.01  # share of the media of a split that may fail to decode


def reproduce(config: ReproduceConfig, encode: Encode | None) -> dict[str, Any]:
    """The findings of one table as JSON; the paper's own figures beside them where the data is the paper's."""
    if config.table == "complexity":
        return described(config, complexity(), paper_figures.read_table_figures("complexity"), None)
    if config.table not in STUDIES:
        raise EvaluationError(f"unknown table {config.table!r}; one of {', '.join([*STUDIES, 'complexity'])}")
    if config.data is None or encode is None:
        raise EvaluationError(f"the table {config.table} needs --data and --model")
    study = prepare(config, encode)
    findings = STUDIES[config.table](study)
    same_data = config.benchmark in PAPER_DATA.get(config.table, ())
    return described(config, findings, paper_figures.read_table_figures(config.table) if same_data else None, study)


def prepare(config: ReproduceConfig, encode: Encode) -> Study:
    """Training, validation and test part; the last media of the training split are held out for validation."""
    captions = PROTOCOLS[config.benchmark].captions
    train = encode_split(config, config.train_split, None, encode)
    test = encode_split(config, config.test_split, captions, encode)
    shared = set(train.keys) & set(test.keys)
    if shared:
        raise EvaluationError(f"{len(shared)} media are in both {train.name} and {test.name}, such as {min(shared)}")
    cut = len(train.keys) - min(round(len(train.keys) * config.held_out), VALIDATION_MEDIA)
    pairs = features(train)
    return Study(
        train=pairs.take_media(0, cut),
        validation=pairs.take_media(cut, len(train.keys)),
        test=features(test),
        frozen=test.data,
        frozen_train=train.data,
        similarity="cosine" if test.data.media.frames is None else BOTH,
        failed={split.name: split.failed for split in (train, test)},
        seeds=config.seeds,
        settings=ProjectionTraining(epochs=config.epochs),
    )


def encode_split(config: ReproduceConfig, name: str, captions: int | None, encode: Encode) -> EncodedSplit:
    split = join(name, list(encode(split_shards(str(config.data), name))), captions)
    check_failed(split, config.max_failed)
    return split


def features(split: EncodedSplit) -> FeaturePairs:
    visual, text = (np.ascontiguousarray(f, np.float32) for f in (split.visual_features, split.text_features))
    frames = None if split.frame_features is None else np.ascontiguousarray(split.frame_features, np.float32)
    return FeaturePairs(visual, text, split.data.text_groups, frames, split.data.media.mask)


def described(config: ReproduceConfig, findings: Findings, printed: Any, study: Study | None) -> dict[str, Any]:
    parts = study and {
        "train": [len(study.train.visual), len(study.train.text)],
        "validation": [len(study.validation.visual), len(study.validation.text)],
        "test": [len(study.test.visual), len(study.test.text)],
        "trained": TRAINED,
        "similarity": study.similarity,
        "failed": study.failed,
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
        "bars": findings.bars,
        "axes": findings.axes,
        "details": findings.details,
        "paper": printed,
        "incomparable": incomparable(PROTOCOLS[config.benchmark], study) if study else None,
    }


def incomparable(protocol: Protocol, study: Study) -> str | None:
    """Why figures of this test split cannot stand beside those of a paper; None where it is the whole split."""
    media = len(study.test.visual)
    if protocol.media is None or media == protocol.media:
        return None
    return f"this test split has {media:,} media, that of {protocol.benchmark} {protocol.media:,}"


def write(results: dict[str, Any], out: Path) -> list[Path]:
    """`TABLE.json`, and `TABLE.svg` where there is something to draw."""
    paths = [out / f"{results['table']}.json"]
    out.mkdir(parents=True, exist_ok=True)
    save_results(results, paths[0])
    if results["series"] or results["bars"]:
        x_label, y_label = results["axes"]
        paths.append(out / f"{results['table']}.svg")
        lines, bars = results["series"], results["bars"]
        title = results["table"]
        chart = line_chart(title, x_label, y_label, lines) if lines else bar_chart(title, y_label, bars)
        paths[1].write_text(chart, encoding="utf-8")
    return paths

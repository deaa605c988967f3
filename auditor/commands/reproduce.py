"""`auditor reproduce`: one of the paper's analyses, from data to table."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from auditor.commands.evaluate import MAX_FAILED
from auditor.console import table
from auditor.say import say, say_json

TABLES = {
    "pearson": "correlation of u and h",
    "removal": "recall without the most uncertain (figure 3)",
    "trust": "PAU against the baseline on the most uncertain (figure 4)",
    "deciles": "recall by tenths of uncertainty, and its calibration",
    "ablation": "L_uct, L_div, re-ranking (table 5)",
    "prototypes": "K = 1, 4, 8, 12, 16",
    "evidence": "evidence functions",
    "init": "initialisations of the prototypes",
    "noise": "training with 0, 20 and 50% shuffled captions, and weighting by p_mismatch",
    "complexity": "parameters and FLOPs of ViT-B/32 with 12 frames",
}


@click.command(epilog="Tables: " + "; ".join(f"{name}: {what}" for name, what in TABLES.items()) + ".")
@click.argument("name", metavar="TABLE", type=click.Choice(list(TABLES)))
@click.option("--data", help="Folder or URL of shards, as for auditor evaluate.")
@click.option("--model", help="An open_clip model or a checkpoint folder; its trunks stay as they are.")
@click.option("--benchmark", default="shards", show_default=True, help="What the data is, for the paper's figures.")
@click.option("--train-split", default="train", show_default=True, help="Split to train on.")
@click.option("--test-split", default="test", show_default=True, help="Split to report on.")
@click.option("--seeds", type=click.IntRange(1), default=3, show_default=True, help="Runs that are averaged.")
@click.option("--epochs", type=click.IntRange(1), default=8, show_default=True, help="Epochs of each training.")
@MAX_FAILED
@click.option(
    "--out", type=click.Path(path_type=Path), help="Folder for TABLE.json and TABLE.svg; by default neither is written."
)
@click.option("--cache", type=click.Path(path_type=Path), help="Folder of encoded shards, used again next time.")
@click.option("--json", "json_", is_flag=True, help="The findings as JSON.")
def command(
    name: str,
    data: str | None,
    model: str | None,
    benchmark: str,
    train_split: str,
    test_split: str,
    seeds: int,
    epochs: int,
    max_failed: float,
    out: Path | None,
    cache: Path | None,
    json_: bool,
) -> None:
    """Run an analysis of the paper from data to table.

    Projections and prototypes are trained from scratch on the train split with frozen trunks, re-ranking is fitted on
    a held-out part of it, and the test split is reported.

    Rows compare with one another, not with auditor evaluate: projections that start at random may end below those the
    model came with. The similarity of a video is the paper's, as in auditor evaluate: the mean of those of its frames
    together and of its best frame.

    \b
    Example:
      auditor reproduce complexity
      auditor reproduce ablation --data msrvtt-shards --benchmark msrvtt --model ViT-B-32@openai --out tables
    """
    from auditor.research.evaluate.benchmark_encoding import EvaluationError
    from auditor.research.evaluate.reproduce import ReproduceConfig, reproduce, write
    from auditor.research.retrieval.protocols import PROTOCOLS

    if benchmark not in PROTOCOLS:
        raise EvaluationError(f"unknown benchmark {benchmark!r}; one of {', '.join(PROTOCOLS)}")
    config = ReproduceConfig(
        name, benchmark, data, train_split, test_split, seeds=seeds, epochs=epochs, max_failed=max_failed
    )
    if name == "complexity" or data is None or model is None:
        results = reproduce(config, None)
    else:
        from auditor.research.evaluate.benchmark_encoding import Encoder
        from model.backbone import device_named
        from model.checkpoint import load_model

        with Encoder(load_model(model, device_named("auto")).backbone, cache=cache) as encoder:
            results = reproduce(config, encoder)
    paths = write(results, out) if out else []
    show(name, results, paths, json_)


def show(name: str, results: dict[str, Any], paths: list[Path], json_: bool) -> None:
    if json_:
        say_json(results)
        return
    table([rounded(row) for row in results["rows"]], title=f"{name}: {TABLES[name]}")
    show_paper(results["paper"], results["incomparable"])
    for note in notes(results["data"]["media_and_captions"] or {}):
        say(note)
    if paths:
        say("written: " + ", ".join(str(path) for path in paths))


def show_paper(printed: Any, incomparable: str | None) -> None:
    """The paper's figures, and why ours are not to be compared with them, where that is so."""
    if isinstance(printed, list) and printed:
        apart = " (not to be compared with those above)" if incomparable else ""
        table([rounded(row) for row in printed], title=f"the paper's figures{apart}")
    elif isinstance(printed, dict):
        say(f"the paper, {printed['data']}: {printed['text']}")
    if printed and incomparable:
        say(f"not to be compared with the paper: {incomparable}")


def notes(parts: dict[str, Any]) -> Iterator[str]:
    """What a reader of the table must know about its data and training."""
    if parts:
        yield f"trained: {parts['trained']}"
    if parts.get("similarity", "cosine") != "cosine":
        yield f"similarity of videos: {parts['similarity']}"
    for split, failed in parts.get("failed", {}).items():
        if failed:
            yield f"left out of {split}: {len(failed)} media that cannot be used, such as {failed[0]}"


def rounded(row: dict[str, Any]) -> dict[str, Any]:
    """As many digits as a table needs; what is not known (NaN) stays empty."""
    return {k: short(v) if isinstance(v, float) else v for k, v in row.items()}


def short(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 3 if abs(value) < 2 else 1)

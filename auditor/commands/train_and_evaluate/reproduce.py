"""`auditor reproduce`: analyses of the paper, from data to table."""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from auditor.commands.options import POSITIVE, json_option, option
from auditor.commands.train_and_evaluate.evaluate import MAX_FAILED
from auditor.console import print_table
from auditor.research.retrieval.protocols import PROTOCOLS
from auditor.terminal import print_json, print_line

PATH = click.Path(path_type=Path)
TABLES = {
    "pearson": "correlation of u and h",
    "removal": "recall without the most uncertain (figure 3)",
    "trust": "PAU against the baseline on the most uncertain (figure 4)",
    "deciles": "recall by tenths of uncertainty, and its calibration",
    "ablation": "L_uct, L_div, re-ranking (table 5)",
    "prototypes": "K = 1, 4, 8, 12, 16",
    "evidence": "evidence functions",
    "init": "initializations of the prototypes",
    "noise": "training with 0, 20 and 50% shuffled captions, and weighting by p_mismatch",
    "complexity": "parameters and FLOPs of ViT-B/32 with 12 frames",
}


@click.command(epilog="Tables: " + "; ".join(f"{name}: {title}" for name, title in TABLES.items()) + ".")
@click.argument("tables", metavar="TABLE...", type=click.Choice(list(TABLES)), nargs=-1, required=True)
@option("--data", help="Folder or URL of shards, as for auditor evaluate.")
@option("--model", help="An open_clip model or a checkpoint folder; it stays as it is.")
@option(
    "--benchmark",
    type=click.Choice(list(PROTOCOLS)),
    default="shards",
    help="Show the paper's figures for this benchmark.",
)
@option("--train-split", default="train", help="Split to train on.")
@option("--test-split", default="test", help="Split to report on.")
@option("--seeds", type=POSITIVE, default=3, help="Number of runs to average.")
@option("--epochs", type=POSITIVE, default=8, help="Epochs of each training.")
@option(
    "--train",
    type=click.Choice(["projections", "text"]),
    default="projections",
    help="Train new projections, or the text tower and the image projection that the model has.",
)
@MAX_FAILED
@option("--out", type=PATH, help="Folder for TABLE.json and TABLE.svg; by default neither is written.")
@option("--cache", type=PATH, help="Folder of encoded shards, used again next time.")
@json_option("Print the results as JSON.")
def command(model: str | None, out: Path | None, cache: Path | None, as_json: bool, **options: Any) -> None:
    """Run analyses of the paper from data to table. Several tables share the models that they train.

    Projections and prototypes are trained from scratch on the train split with frozen trunks, re-ranking is fitted on
    a held-out part of it, and the test split is reported. With --train text, only the image trunk is frozen.

    Compare the rows with one another, not with `auditor evaluate`: projections trained from scratch may end below those
    of the pretrained model. As in `auditor evaluate`, the similarity of a video is the paper's: the average of the
    similarity of the whole clip and that of its best frame.

    \b
    Example:
      auditor reproduce complexity
      auditor reproduce removal trust --data msrvtt-shards --benchmark msrvtt --model ViT-B-32@openai --out tables
    """
    from auditor.research.evaluate.reproduce import ReproduceConfig, reproduce

    config = ReproduceConfig(**options)
    if set(config.tables) == {"complexity"} or config.data is None or model is None:
        show_tables(reproduce(config, None), out, as_json)
        return
    from auditor.research.evaluate.trunk_features import FeatureEncoder
    from model.backbone import resolve_device
    from model.checkpoint import load_model

    backbone = load_model(model, resolve_device("auto")).backbone
    with FeatureEncoder(backbone, cache=cache) as encoder:
        show_tables(reproduce(config, encoder, backbone), out, as_json)


def show_tables(tables: Iterable[dict[str, Any]], out: Path | None, as_json: bool) -> None:
    """Write and show each table as soon as it is ready; several tables are one list of JSON."""
    from auditor.research.evaluate.reproduce import write_results

    documents = []
    for results in tables:
        paths = write_results(results, out) if out else []
        if not as_json:
            show_analysis(results, paths)
        documents.append(results)
    if as_json:
        print_json(documents if len(documents) > 1 else documents[0])


def show_analysis(results: dict[str, Any], paths: list[Path]) -> None:
    name = results["table"]
    print_table([round_row(row) for row in results["rows"]], title=f"{name}: {TABLES[name]}")
    show_paper_figures(results["paper"], results["incomparable"])
    for note in describe_data(results["data"]["media_and_captions"] or {}):
        print_line(note)
    if paths:
        print_line("written: " + ", ".join(str(path) for path in paths))


def show_paper_figures(printed: Any, incomparable: str | None) -> None:
    """Print the paper's figures and, if ours cannot be compared with them, the reason."""
    if isinstance(printed, list) and printed:
        apart = " (not comparable with those above)" if incomparable else ""
        print_table([round_row(row) for row in printed], title=f"the paper's figures{apart}")
    elif isinstance(printed, dict):
        print_line(f"the paper, {printed['data']}: {printed['text']}")
    if printed and incomparable:
        print_line(f"not comparable with the paper: {incomparable}")


def describe_data(parts: dict[str, Any]) -> Iterator[str]:
    if parts:
        yield f"trained: {parts['trained']}"
    if parts.get("similarity", "cosine") != "cosine":
        yield f"similarity of videos: {parts['similarity']}"
    for split, failed in parts.get("failed", {}).items():
        if failed:
            yield f"left out of {split}: {len(failed)} media that cannot be used, such as {failed[0]}"


def round_row(row: dict[str, Any]) -> dict[str, Any]:
    """Round to the digits that a table needs; NaN becomes empty."""

    def round_value(value: Any) -> Any:
        if not isinstance(value, float):
            return value
        return None if math.isnan(value) else round(value, 3 if abs(value) < 2 else 1)

    return {name: round_value(value) for name, value in row.items()}

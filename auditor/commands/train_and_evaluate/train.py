"""`auditor train`: train PAU on a corpus, or continue an interrupted run."""

from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from auditor.commands.options import GroupedCommand, add_options, json_option, option, options_from
from auditor.console import print_table
from auditor.terminal import print_json, print_line
from model.model_names import check_model_name
from model.training.training_config import TrainConfig, list_presets, load_config

if TYPE_CHECKING:
    from auditor.research.train.train_model import TrainResult


train_options = add_options(  # those that are not given are None
    [
        click.argument("corpus", required=False),
        option("--config", "config_file", metavar="FILE.toml", help="Settings that override the preset."),
        option("--preset", type=click.Choice(list_presets()), help="Start from these settings."),
        *options_from(TrainConfig, optional=True, skip=("corpus",)),
    ]
)


def build_train_config(options: dict[str, Any]) -> TrainConfig:
    flags = dict(options)
    return load_config(flags, preset=flags.pop("preset"), file=flags.pop("config_file"))


def show_training_result(result: "TrainResult", as_json: bool) -> None:
    if as_json:
        print_json(result.to_dict())
        return
    if result.validation:
        from auditor.research.retrieval.recall import DIRECTIONS, METRICS

        rows = [
            {"direction": direction.replace("_", " ")}
            | {name: result.validation[direction][name] for name in METRICS[:5]}
            for direction in DIRECTIONS
        ]
        print_table(rows, "best/")
    print_line(f"{result.steps:,} steps, {result.pairs_per_second:,.1f} pairs/s; best in {result.best}")
    for problem in result.problems:
        print_line(f"shard problem: {problem}")
    if result.failures:
        counts = ", ".join(f"{count:,} {reason}" for reason, count in sorted(result.failures.items()))
        for line in (f"left out: {counts}; for example", *(f"  {example}" for example in result.examples)):
            print_line(line)


@click.command(cls=GroupedCommand)
@train_options
@json_option("Print the result as JSON.")
@option("--quiet", is_flag=True, help="Show no progress.")
def command(as_json: bool, quiet: bool, **options: Any) -> None:
    """Train PAU on CORPUS: shards, a folder, a table or COCO captions, whatever `auditor audit` reads.

    Settings come from a preset, then a TOML file, then options. An interrupted run continues if it is started again
    with the same settings.

    \b
    auditor train shards/train --val shards/val --out run --preset coco
    auditor train 'shards/train-{000..099}.tar::more/*.tar' --val shards/val.tar --out run --config run.toml
    """
    config = build_train_config(options)
    check_model_name(config.model)
    from auditor.research.train.train_model import TrainProgress, train

    with closing(TrainProgress(quiet)) as progress:
        result = train(config, progress)
    show_training_result(result, as_json)

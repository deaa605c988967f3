"""`auditor train`: train PAU on a corpus, or go on with a run that was stopped."""

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

import click

from auditor.console import table
from auditor.say import say, say_json
from model.training.training_config import TrainConfig, load_config, preset_names

if TYPE_CHECKING:
    from auditor.research.train.train import TrainResult

Command = Callable[..., None]


def click_type(hint: Any) -> Any:
    """The click type of a setting; `X | None` counts as X."""
    if get_origin(hint) is Literal:
        return click.Choice(get_args(hint))
    return next((kind for kind in get_args(hint) if kind is not type(None)), hint)


def train_options(command: Command) -> Command:
    """Give a command the corpus as its argument and every setting of a run as a flag, unset where not given."""
    hints = get_type_hints(TrainConfig)
    for f in reversed(fields(TrainConfig)):
        flag = f"--{f.name.replace('_', '-')}"
        if f.name == "corpus":
            continue
        if hints[f.name] is bool:
            option = click.option(f"{flag}/--no-{flag[2:]}", f.name, default=None, help=f.metadata["help"])
        else:
            option = click.option(flag, f.name, type=click_type(hints[f.name]), help=f.metadata["help"])
        command = option(command)
    command = click.option("--preset", type=click.Choice(preset_names()), help="start from these settings")(command)
    command = click.option("--config", "config_file", metavar="FILE.toml", help="settings, above the preset")(command)
    return click.argument("corpus", required=False)(command)


def settings_from(options: dict[str, Any]) -> TrainConfig:
    """The settings of a run from what the command line gave."""
    flags = dict(options)
    return load_config(flags, preset=flags.pop("preset"), file=flags.pop("config_file"))


def show(result: "TrainResult", as_machine: bool) -> None:
    """What a run has given, failures included."""
    if as_machine:
        say_json(result.to_dict())
        return
    if result.validation:
        ways = [(way, result.validation[way]) for way in ("visual_to_text", "text_to_visual")]
        columns = ("R@1", "R@5", "R@10", "MdR", "MnR")
        table([{"direction": way.replace("_", " ")} | {c: found[c] for c in columns} for way, found in ways], "best/")
    say(f"{result.steps:,} steps, {result.pairs_per_second:,.1f} pairs/s; best in {result.best}")
    for problem in result.problems:
        say(f"shard problem: {problem}")
    if result.failures:
        counted = ", ".join(f"{count:,} {reason}" for reason, count in sorted(result.failures.items()))
        say(f"left out: {counted}; for example")
        for example in result.examples:
            say(f"  {example}")


@click.command()
@train_options
@click.option("--json", "as_machine", is_flag=True, help="print the result as JSON")
@click.option("--quiet", is_flag=True, help="no progress")
def command(as_machine: bool, quiet: bool, **options: Any) -> None:
    """Train PAU on CORPUS: shards, a folder, a table or COCO captions, whatever `auditor audit` reads.

    Settings come from a preset, then a TOML file, then flags. A run that was stopped goes on when it is started again
    with the same settings.

    \b
    auditor train shards/train --val shards/val --out run --preset coco
    auditor train 'shards/train-{000..099}.tar::more/*.tar' --val shards/val.tar --out run --config run.toml
    """
    config = settings_from(options)
    from auditor.research.train.train import train
    from auditor.research.train.training_progress import TrainProgress

    progress = TrainProgress(quiet)
    try:
        result = train(config, progress)
    finally:
        progress.close()
    show(result, as_machine)

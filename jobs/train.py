"""Train PAU on a Ray cluster: Ray Train places and connects the processes, `auditor.research.train.train` does the rest.

    python jobs/train.py shards/train --val shards/val --out run --preset coco --workers 2
    ray job submit --working-dir . -- python jobs/train.py s3://bucket/train --out /shared/run --workers 8
    ray submit jobs/cluster.yaml jobs/train.py -- s3://bucket/train --out /shared/run --workers 8 --gpus-per-worker 1

Without a cluster Ray is started on this machine. `--out` must be a path that all nodes see. When a worker dies, all are
started again and go on from the last checkpoint; when that does not help, or could not, the job exits with 1.
"""

import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import ray
import ray.train
import torch
from ray.train.torch import TorchTrainer, get_device

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a checkout works without being installed

from auditor.cli import run
from auditor.commands.train import settings_from, show, train_options
from auditor.corpus.corpus_spec import absolute_spec
from auditor.corpus.open_corpus import CorpusError, open_corpus
from auditor.errors import AuditorError
from auditor.research.train.train import StepReport, TrainResult, train
from auditor.research.train.training_progress import TrainProgress
from auditor.research.train.training_run import check_settings
from auditor.run.ray_engine import Placement
from auditor.say import say
from jobs.cluster import ADDRESS, await_room, check_out, connect, full_path, visible
from model.backbone import BackboneError
from model.model_errors import ModelError
from model.training.training_config import TrainConfig, from_saved
from model.training.training_processes import current_processes
from model.training.training_state import check_folder

COMPLAINTS = (AuditorError, ModelError)
# Complaints that another try may not repeat: storage that did not answer, a download that broke off. All others of a
# worker are about settings or data and would be the same again.
PASSING = (CorpusError, BackboneError)


def worker(values: dict[str, Any]) -> TrainResult:
    """What every process runs. Ray has connected it to the others and given it its device."""
    processes = current_processes()
    context = ray.train.get_context()
    say(f"rank {processes.rank} of {processes.size}: pid {os.getpid()} on node {context.get_node_rank()}")
    shown = TrainProgress(quiet=not processes.first)

    def progress(report: StepReport) -> None:
        shown(report)
        if report.validation or report.step == report.steps:  # a barrier of all processes: once an epoch at most
            ray.train.report({"step": report.step, **report.terms, "validation": report.validation})

    config = from_saved(values)
    device = get_device()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    result = train(
        replace(config, device=str(device) if config.device == "auto" else config.device), progress, processes
    )
    shown.close()
    return result


def settled(config: TrainConfig, workers: int) -> TrainConfig:
    """The settings with local paths in full: Ray Train gives each process a folder of its own to run in.

    Complaints that need no cluster come from here, before one is asked for.
    """
    check_settings(config, workers)
    check_out(config.out)
    for spec in filter(None, (config.corpus, config.val)):
        open_corpus(spec)
    config = replace(
        config,
        out=full_path(config.out),
        corpus=absolute_spec(config.corpus),
        val=absolute_spec(config.val) if config.val else None,
        model=visible(config.model) or config.model,
        head=full_path(config.head) if config.head else None,
        weights=full_path(config.weights) if config.weights else None,
    )
    if Path(config.out).exists():
        check_folder(Path(config.out))
    return config


def fit(config: TrainConfig, placement: Placement, retries: int) -> TrainResult:
    """Train, and start all processes again when one has died: Ray's own retries would repeat every complaint too."""
    while True:
        try:
            return attempt(config, placement)
        except ray.train.WorkerGroupError as error:
            if not retries or is_final(error):
                raise
            retries -= 1
            say(f"{reason(error)}; starting again, with {retries} retries left", err=True)


def attempt(config: TrainConfig, placement: Placement) -> TrainResult:
    """Run the training function in all processes and return what the first of them returned."""
    resources = {"CPU": placement.cpus, **({"GPU": placement.gpus} if placement.gpus else {})}
    with tempfile.TemporaryDirectory(prefix="pau-train-") as notes:  # Ray's own; our checkpoints are in config.out
        trainer = TorchTrainer(
            worker,
            train_loop_config=config.to_dict(),
            scaling_config=ray.train.ScalingConfig(
                num_workers=placement.workers, use_gpu=placement.gpus > 0, resources_per_worker=resources
            ),
            run_config=ray.train.RunConfig(name="train", storage_path=notes),
        )
        result: TrainResult = trainer.fit().return_value
    return result


def causes(error: BaseException) -> list[BaseException]:
    """What the workers raised, or else the error itself."""
    failures = list(getattr(error, "worker_failures", {}).values()) or [error]
    return [getattr(failure, "_base_exc", failure) for failure in failures]


def is_final(error: BaseException) -> bool:
    return any(isinstance(cause, COMPLAINTS) and not isinstance(cause, PASSING) for cause in causes(error))


def reason(error: BaseException) -> str:
    """One line on why training failed: the complaint of a worker where there is one."""
    raised = causes(error)
    chosen = next((cause for cause in raised if isinstance(cause, COMPLAINTS)), raised[0])
    lines = str(chosen).strip().splitlines() or [type(chosen).__name__]
    return lines[0] if isinstance(chosen, COMPLAINTS) else f"training failed: {lines[-1]}"


@click.command()
@train_options
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="training processes")
@click.option(
    "--cpus-per-worker",
    "cpus",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="CPUs reserved for each",
)
@click.option(
    "--gpus-per-worker", "gpus", type=click.FloatRange(0), default=0.0, show_default=True, help="GPUs reserved for each"
)
@ADDRESS
@click.option("--retries", type=click.IntRange(0), default=3, show_default=True, help="restarts after a worker's death")
@click.option("--json", "as_machine", is_flag=True, help="print the result as JSON")
def main(
    workers: int, cpus: float, gpus: float, address: str | None, retries: int, as_machine: bool, **options: Any
) -> None:
    """Train PAU on CORPUS with several processes.

    \b
    python jobs/train.py shards/train --val shards/val --out run --preset coco --workers 2
    """
    config = settled(settings_from(options), workers)
    # A small machine may claim CPUs that it has not, its processes then take turns; nothing stands in for a GPU.
    enough = max(os.cpu_count() or 1, int(workers * cpus) + 1)
    started = connect(address, Path(__file__).resolve().parents[1], cpus=enough)
    placement = Placement(workers, cpus, gpus)
    await_room(placement, started=started, together=workers)
    try:
        show(fit(config, placement, retries), as_machine)
    except ray.train.TrainingFailedError as error:
        raise ModelError(reason(error)) from error


if __name__ == "__main__":
    sys.exit(run(command=main))

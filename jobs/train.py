"""Train PAU on a Ray cluster: Ray Train places and connects processes that run `auditor.research.train.train_model`.

    python jobs/train.py shards/train --val shards/val --out run --preset coco --workers 2
    ray job submit --working-dir . -- python jobs/train.py s3://bucket/train --out /shared/run --workers 8
    ray submit jobs/cluster.yaml jobs/train.py -- s3://bucket/train --out /shared/run --workers 8 --gpus-per-worker 1

Without a cluster, Ray is started on this machine. `--out` must be a path that all nodes can access. If a worker dies,
all are started again and resume from the last checkpoint. If that does not help, or cannot help, the job exits with 1.
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

from auditor.cli import run_command_line
from auditor.commands.train_and_evaluate.train import build_train_config, show_training_result, train_options
from auditor.corpus.corpus_spec import make_corpus_absolute
from auditor.corpus.open_corpus import CorpusError, open_corpus
from auditor.errors import AuditorError
from auditor.research.train.train_model import StepReport, TrainProgress, TrainResult, train
from auditor.research.train.training_run import check_settings
from auditor.run.ray_engine import Placement
from auditor.terminal import print_line
from jobs.cluster import check_cluster_room, connect
from jobs.worker_options import ADDRESS, make_absolute, make_model_absolute, refuse_lost_output
from model.model_errors import ModelError
from model.model_names import BackboneError
from model.training.training_config import TrainConfig, load_saved_config
from model.training.training_processes import current_processes
from model.training.training_state import check_folder

REPORTED_ERRORS = (AuditorError, ModelError)
# Errors that a retry may resolve: storage that did not answer, an interrupted download. All other reported errors
# concern settings or data and would occur again.
TRANSIENT_ERRORS = (CorpusError, BackboneError)


def train_in_worker(values: dict[str, Any]) -> TrainResult:
    """The function of every process. Ray has connected it to the others and assigned its device."""
    processes = current_processes()
    context = ray.train.get_context()
    print_line(f"rank {processes.rank} of {processes.size}: pid {os.getpid()} on node {context.get_node_rank()}")
    progress_bar = TrainProgress(quiet=not processes.first)

    def progress(report: StepReport) -> None:
        progress_bar(report)
        if report.validation or report.step == report.steps:  # a barrier of all processes: once an epoch at most
            ray.train.report({"step": report.step, **report.terms, "validation": report.validation})

    config = load_saved_config(values)
    device = get_device()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    result = train(
        replace(config, device=str(device) if config.device == "auto" else config.device), progress, processes
    )
    progress_bar.close()
    return result


def make_paths_absolute(config: TrainConfig, workers: int) -> TrainConfig:
    """The settings with absolute local paths: Ray Train gives each process a working directory of its own.

    Reports every error that can be found without a cluster before connecting to one.
    """
    check_settings(config, workers)
    refuse_lost_output(config.out)
    for spec in filter(None, (config.corpus, config.val)):
        open_corpus(spec)
    config = replace(
        config,
        out=make_absolute(config.out),
        corpus=make_corpus_absolute(config.corpus),
        val=make_corpus_absolute(config.val) if config.val else None,
        model=make_model_absolute(config.model) or config.model,
        head=make_absolute(config.head) if config.head else None,
        weights=make_absolute(config.weights) if config.weights else None,
    )
    if Path(config.out).exists():
        check_folder(Path(config.out))
    return config


def train_with_retries(config: TrainConfig, placement: Placement, retries: int) -> TrainResult:
    """Train, and restart all processes if one died; Ray's own retries would also repeat errors in settings or data."""
    while True:
        try:
            return run_attempt(config, placement)
        except ray.train.WorkerGroupError as error:
            if not retries or is_permanent(error):
                raise
            retries -= 1
            print_line(f"{explain_failure(error)}; starting again, with {retries} retries left", err=True)


def run_attempt(config: TrainConfig, placement: Placement) -> TrainResult:
    resources = {"CPU": placement.cpus, **({"GPU": placement.gpus} if placement.gpus else {})}
    scaling = ray.train.ScalingConfig(
        num_workers=placement.workers, use_gpu=placement.gpus > 0, resources_per_worker=resources
    )
    with tempfile.TemporaryDirectory(prefix="pau-train-") as notes:  # Ray's own; our checkpoints are in config.out
        run = ray.train.RunConfig(name="train", storage_path=notes)
        values = config.to_dict()
        trainer = TorchTrainer(train_in_worker, train_loop_config=values, scaling_config=scaling, run_config=run)
        result: TrainResult = trainer.fit().return_value
    return result


def find_causes(error: BaseException) -> list[BaseException]:
    """The exceptions that the workers raised, or the error itself."""
    failures = list(getattr(error, "worker_failures", {}).values()) or [error]
    return [getattr(failure, "_base_exc", failure) for failure in failures]


def is_permanent(error: BaseException) -> bool:
    reported = [cause for cause in find_causes(error) if isinstance(cause, REPORTED_ERRORS)]
    return not all(isinstance(cause, TRANSIENT_ERRORS) for cause in reported)


def explain_failure(error: BaseException) -> str:
    """One line on why training failed: the message of a reported error if a worker raised one."""
    raised = find_causes(error)
    chosen = next((cause for cause in raised if isinstance(cause, REPORTED_ERRORS)), raised[0])
    lines = str(chosen).strip().splitlines() or [type(chosen).__name__]
    return lines[0] if isinstance(chosen, REPORTED_ERRORS) else f"training failed: {lines[-1]}"


@click.command()
@train_options
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="number of training processes")
@click.option(
    "--cpus-per-worker",
    "cpus",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="CPUs reserved for each process",
)
@click.option(
    "--gpus-per-worker",
    "gpus",
    type=click.FloatRange(0),
    default=0.0,
    show_default=True,
    help="GPUs reserved for each process",
)
@ADDRESS
@click.option(
    "--retries", type=click.IntRange(0), default=3, show_default=True, help="restarts after a worker has died"
)
@click.option("--json", "as_machine", is_flag=True, help="print the result as JSON")
def main(
    workers: int, cpus: float, gpus: float, address: str | None, retries: int, as_machine: bool, **options: Any
) -> None:
    """Train PAU on CORPUS with several processes.

    \b
    python jobs/train.py shards/train --val shards/val --out run --preset coco --workers 2
    """
    config = make_paths_absolute(build_train_config(options), workers)
    # A small machine may declare more CPUs than it has; its processes then share them. A GPU cannot be replaced.
    enough = max(os.cpu_count() or 1, int(workers * cpus) + 1)
    started = connect(address, cpus=enough)
    placement = Placement(workers, cpus, gpus)
    check_cluster_room(placement, started=started, count=workers)
    try:
        show_training_result(train_with_retries(config, placement, retries), as_machine)
    except ray.train.TrainingFailedError as error:
        raise ModelError(explain_failure(error)) from error


if __name__ == "__main__":
    sys.exit(run_command_line(command=main))

"""Train PAU on a Ray cluster: Ray Train places, connects and restarts the processes, `model.train` does the rest.

    python jobs/train.py shards/train --val shards/val --out /shared/run --preset coco --workers 4 --gpus-per-worker 1
    ray job submit --working-dir . -- python jobs/train.py s3://bucket/train --out /shared/run --workers 8

Without a cluster Ray is started on this machine. `--out` must be a path that all nodes see. When a worker dies, all are
started again and go on from the last checkpoint; when that does not help, the job exits with 1.
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
from auditor.commands.train import TrainProgress, settings_from, show, train_options
from model.errors import ModelError
from model.tarshards import list_shards
from model.train import StepReport, TrainResult, train
from model.train_config import TrainConfig, from_saved
from model.trainer_state import check_folder
from model.world import current_world


def worker(values: dict[str, Any]) -> TrainResult:
    """What every process runs. Ray has connected it to the others and given it its device."""
    world = current_world()
    context = ray.train.get_context()
    print(f"rank {world.rank} of {world.size}: pid {os.getpid()} on node {context.get_node_rank()}", flush=True)
    shown = TrainProgress(quiet=not world.first)

    def progress(report: StepReport) -> None:
        shown(report)
        if report.validation or report.step == report.steps:  # a barrier of all processes: once an epoch at most
            ray.train.report({"step": report.step, **report.terms, "validation": report.validation})

    config = from_saved(values)
    device = get_device()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    result = train(replace(config, device=str(device) if config.device == "auto" else config.device), progress, world)
    shown.close()
    return result


def start_ray(workers: int, cpus: float, gpus: float) -> None:
    """Join the cluster that RAY_ADDRESS names (`ray job submit` sets it), else start Ray here."""
    if ray.is_initialized():
        return
    if os.environ.get("RAY_ADDRESS"):
        ray.init()
        return
    enough = max(os.cpu_count() or 1, int(workers * cpus) + 1)
    ray.init(address="local", num_cpus=enough, num_gpus=int(workers * gpus) or None)


def fit(config: TrainConfig, workers: int, cpus: float, gpus: float, retries: int) -> TrainResult:
    """Run the training function in `workers` processes and return what the first of them returned."""
    resources = {"CPU": cpus, **({"GPU": gpus} if gpus else {})}
    with tempfile.TemporaryDirectory(prefix="pau-train-") as notes:  # Ray's own; our checkpoints are in config.out
        trainer = TorchTrainer(
            worker,
            train_loop_config=config.to_dict(),
            scaling_config=ray.train.ScalingConfig(
                num_workers=workers, use_gpu=gpus > 0, resources_per_worker=resources
            ),
            run_config=ray.train.RunConfig(
                name="train", storage_path=notes, failure_config=ray.train.FailureConfig(max_failures=retries)
            ),
        )
        result: TrainResult = trainer.fit().return_value
    return result


def reason(error: BaseException) -> str:
    """One line on why training failed: the complaint of a worker where there is one."""
    failures = list(getattr(error, "worker_failures", {}).values()) or [error]
    causes = [getattr(failure, "_base_exc", failure) for failure in failures]
    chosen = next((cause for cause in causes if isinstance(cause, ModelError)), causes[0])
    lines = str(chosen).strip().splitlines() or [type(chosen).__name__]
    return lines[0] if isinstance(chosen, ModelError) else f"training failed: {lines[-1]}"


@click.command()
@train_options
@click.option("--workers", default=1, show_default=True, help="training processes")
@click.option("--cpus-per-worker", default=1.0, show_default=True, help="CPUs reserved for each")
@click.option("--gpus-per-worker", default=0.0, show_default=True, help="GPUs reserved for each")
@click.option("--retries", default=3, show_default=True, help="restarts after the death of a worker")
@click.option("--json", "as_machine", is_flag=True, help="print the result as JSON")
def main(
    workers: int, cpus_per_worker: float, gpus_per_worker: float, retries: int, as_machine: bool, **options: Any
) -> None:
    """Train PAU on the tar shards of CORPUS with several processes."""
    try:
        config = settings_from(options)
        # Complaints that need no cluster come before one is asked for.
        for spec in filter(None, (config.corpus, config.val)):
            list_shards(spec)
        config = replace(config, out=str(Path(config.out).absolute()))
        if Path(config.out).exists():
            check_folder(Path(config.out))
        start_ray(workers, cpus_per_worker, gpus_per_worker)
        show(fit(config, workers, cpus_per_worker, gpus_per_worker, retries), as_machine)
    except ray.train.TrainingFailedError as error:
        raise ModelError(reason(error)) from error


if __name__ == "__main__":
    sys.exit(run(command=main))

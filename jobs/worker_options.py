"""Options of jobs with workers, and paths that are valid for every process; imports neither Ray nor torch."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from auditor.errors import AuditError

ADDRESS = click.option(
    "--address", help="Address of a running cluster [default: RAY_ADDRESS, a cluster on this machine, or a new one]."
)
WORKERS = (
    click.option(
        "--workers", type=click.IntRange(1), help="Most workers [default: as many as the cluster has room for]."
    ),
    click.option(
        "--cpus-per-worker",
        "cpus",
        type=click.FloatRange(0, min_open=True),
        help="CPUs, and so decoder processes, of a worker [default: its share of a running node, or 4 if no node that "
        "fits is running yet; set it if the cluster starts without worker nodes].",
    ),
    click.option(
        "--gpus-per-worker",
        "gpus",
        type=click.FloatRange(0),
        default=0.0,
        show_default=True,
        help="GPUs of a worker: 1, a fraction, or 0 to encode on the CPU.",
    ),
    ADDRESS,
)


@dataclass(frozen=True, slots=True)
class WorkerRequest:
    """The values of WORKERS."""

    workers: int | None
    cpus: float | None
    gpus: float
    address: str | None


def worker_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a job with workers; the command gets them together as `request`."""

    @wraps(command)
    def run(workers: int | None, cpus: float | None, gpus: float, address: str | None, **values: Any) -> Any:
        return command(request=WorkerRequest(workers, cpus, gpus, address), **values)

    for option in reversed(WORKERS):
        run = option(run)
    return run


def is_submitted_job() -> bool:
    """Whether this is the driver of `ray job submit`, in a copy of the checkout that Ray deletes in the end."""
    return "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ


def refuse_lost_output(out: str) -> None:
    """Refuse an output path that would be deleted with the job."""
    if is_submitted_job() and not os.path.isabs(out) and "://" not in out:
        raise AuditError(f"--out {out} would be lost with the job: pass a full path or a URL")


def make_absolute(path: str) -> str:
    """An absolute path, for processes with another working directory; URLs and commands are not changed."""
    return path if "://" in path or path.startswith("pipe:") else str(Path(path).absolute())


def make_model_absolute(model: str | None) -> str | None:
    """The absolute path of a model's folder or .json file; names of models are not changed."""
    prefix, path = ("local-dir:", model[10:]) if model and model.startswith("local-dir:") else ("", model or "")
    is_local = Path(path).is_dir() or (path.endswith(".json") and Path(path).is_file())
    return f"{prefix}{make_absolute(path)}" if path and is_local else model

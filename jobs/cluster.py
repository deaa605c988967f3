"""Connects a job to its Ray cluster, chooses the resources of a worker, and makes paths valid for every process."""

import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import ray
from ray.exceptions import AuthenticationError

from auditor.run.ray_engine import Placement, WorkerError, summarize_error
from auditor.run.ray_tokens import find_token
from auditor.terminal import print_line

CHECKOUT = Path(__file__).resolve().parents[1]
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


def worker_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a job with workers: their number, their resources, and the cluster."""
    for option in reversed(WORKERS):
        command = option(command)
    return command


def is_submitted_job() -> bool:
    """Whether this is the driver of `ray job submit`, in a copy of the checkout that Ray deletes in the end."""
    return "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ


def refuse_lost_output(out: str) -> None:
    """Refuse an output path that would be deleted with the job."""
    if is_submitted_job() and not os.path.isabs(out) and "://" not in out:
        raise WorkerError(f"--out {out} would be lost with the job: pass a full path or a URL")


def connect_workers(
    workers: int | None, cpus: float | None, gpus: float, address: str | None, *, quiet: bool
) -> Placement:
    """Connect to a cluster with room for workers; the arguments are those of `worker_options`."""
    started = connect(address, quiet=quiet)
    placement = Placement(workers, cpus or choose_worker_cpus(gpus), gpus)
    check_cluster_room(placement, started=started)
    return placement


def connect(address: str | None, *, quiet: bool = False, cpus: int | None = None) -> bool:
    """Connect to the cluster at `address`, at RAY_ADDRESS or on this machine; else start Ray here and return True.

    A new Ray declares `cpus` CPUs. Workers on machines that share the checkout import the package from it, installed or
    not; a submitted job brings its own copy.
    """
    if ray.is_initialized():
        return False
    paths = os.pathsep.join(filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")]))
    environment = None if is_submitted_job() else {"env_vars": {"PYTHONPATH": paths}}
    settings = {"runtime_env": environment, "log_to_driver": not quiet, "logging_level": "warning"}
    cluster = address or os.environ.get("RAY_ADDRESS")
    started = False
    try:
        if address == "local" or not cluster:
            with contextlib.suppress(ValueError):  # for an existing cluster: Ray then accepts no resources, even empty
                ray.init(address, num_cpus=cpus, resources={}, **settings)
                started = True
        if not started:
            ray.init(address, **settings)
    except (ConnectionError, RuntimeError, ValueError, AuthenticationError) as error:
        raise WorkerError(explain_connection_failure(cluster or "this machine", error)) from error
    logging.getLogger("ray.data").setLevel(logging.WARNING)
    return started


def explain_connection_failure(cluster: str, error: Exception) -> str:
    """One line on why the connection failed; Ray reports a wrong or missing token like a cluster that is down."""
    state = find_token()
    if isinstance(error, AuthenticationError):
        return f"the Ray cluster at {cluster} requires a token: {state.hint} (docs/ray.md)"
    tokens = f"; if it is running, it may require a token: {state.hint} (docs/ray.md)"
    hint = tokens if isinstance(error, ConnectionError) else ""
    return f"no Ray cluster at {cluster}: {summarize_error(error)}{hint}"


def check_cluster_room(placement: Placement, *, started: bool, count: int = 1) -> None:
    """Say that the job waits for nodes; fail if Ray was started here, because it would wait forever."""
    if placement.room() >= count:
        return
    resources = f"{placement.cpus:g} CPUs and {placement.gpus:g} GPUs"
    workers = f"a worker with {resources}" if count == 1 else f"{count} workers with {resources} each"
    if started:
        raise WorkerError(f"this machine has no room for {workers}: request less, or a cluster with --address")
    print_line(f"waiting for nodes with room for {workers}", err=True)


def choose_worker_cpus(gpus: float) -> float:
    """Default CPUs of a worker: those of a node per GPU, or four, and never more than a node has.

    Only running nodes count: a cluster that has not started a worker node yet gives four.
    """
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if gpus:
        shares = [node["CPU"] * gpus / node["GPU"] for node in nodes if node.get("GPU", 0) >= gpus and "CPU" in node]
    else:
        shares = [min(4.0, node["CPU"]) for node in nodes if node.get("CPU", 0) > 0]
    return float(max(1, int(min(shares, default=4.0))))


def make_absolute(path: str) -> str:
    """An absolute path, for processes with another working directory; URLs and commands are not changed."""
    return path if "://" in path or path.startswith("pipe:") else str(Path(path).absolute())


def make_model_absolute(model: str | None) -> str | None:
    """The absolute path of a model's folder or .json file; names of models are not changed."""
    prefix, path = ("local-dir:", model[10:]) if model and model.startswith("local-dir:") else ("", model or "")
    is_local = Path(path).is_dir() or (path.endswith(".json") and Path(path).is_file())
    return f"{prefix}{make_absolute(path)}" if path and is_local else model

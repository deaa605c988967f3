"""Connects a job to its Ray cluster and chooses the resources of a worker."""

import contextlib
import logging
import os
from pathlib import Path

import ray
from ray.exceptions import AuthenticationError

from auditor.run.ray_engine import Placement, WorkerError, summarize_error
from auditor.run.ray_tokens import find_token
from auditor.terminal import print_line
from jobs.worker_options import WorkerRequest, is_submitted_job

CHECKOUT = Path(__file__).resolve().parents[1]


def connect_workers(request: WorkerRequest, *, quiet: bool = True) -> Placement:
    """Connect to a cluster with room for workers."""
    started = connect(request.address, quiet=quiet)
    placement = Placement(request.workers, request.cpus or choose_worker_cpus(request.gpus), request.gpus)
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

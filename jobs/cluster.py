"""How a job finds its cluster, what a worker gets of a node where nobody said, and paths that mean the same to all."""

import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import ray
from ray.exceptions import AuthenticationError

from auditor.run.ray_engine import Placement, WorkerError, one_line
from auditor.run.ray_tokens import token_state
from auditor.say import say

ADDRESS = click.option(
    "--address", help="Of a running cluster; RAY_ADDRESS, one on this machine, or a new one by default."
)
WORKERS = (
    click.option(
        "--workers", type=click.IntRange(1), help="Workers at most; as many as the cluster can hold by default."
    ),
    click.option(
        "--cpus-per-worker",
        "cpus",
        type=click.FloatRange(0, min_open=True),
        help="CPUs of a worker, and so its decoder processes; by default its share of the nodes that are up, and 4 "
        "where none that fits is: say it where the cluster starts without workers.",
    ),
    click.option(
        "--gpus-per-worker",
        "gpus",
        type=click.FloatRange(0),
        default=0.0,
        show_default=True,
        help="GPUs of a worker: 1, a fraction, or 0 to encode on CPUs.",
    ),
    ADDRESS,
)


def worker_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a job that encodes: how many workers, what each gets, and on which cluster."""
    for option in reversed(WORKERS):
        command = option(command)
    return command


def submitted() -> bool:
    """Whether this is the driver of `ray job submit`, in a copy of the checkout that is thrown away in the end."""
    return "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ


def check_out(out: str) -> None:
    """Refuse results that nobody would find."""
    if submitted() and not os.path.isabs(out) and "://" not in out:
        raise WorkerError(f"--out {out} would be lost with the job: give a full path or a URL")


def connect(address: str | None, checkout: Path, *, quiet: bool = False, cpus: int | None = None) -> bool:
    """Join the cluster at `address`, else that of RAY_ADDRESS or of this machine, else start Ray here: then True.

    A Ray that is started here says it has `cpus`. Workers on machines that share the checkout import the package from
    it, installed or not; a submitted job brings its own.
    """
    if ray.is_initialized():
        return False
    paths = [] if submitted() else [str(checkout), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {"env_vars": {"PYTHONPATH": os.pathsep.join(paths)}} if paths else None
    settings = {"runtime_env": environment, "log_to_driver": not quiet, "logging_level": "warning"}
    try:
        started = _start(address, cpus, settings)
        if not started:
            ray.init(address, **settings)
    except (ConnectionError, RuntimeError, ValueError, AuthenticationError) as error:
        raise WorkerError(why_not(address or os.environ.get("RAY_ADDRESS") or "this machine", error)) from error
    logging.getLogger("ray.data").setLevel(logging.WARNING)
    return started


def why_not(cluster: str, error: Exception) -> str:
    """One line on a cluster that cannot be joined; a wrong or missing token looks to Ray like a dead cluster."""
    state = token_state()
    if isinstance(error, AuthenticationError):
        return f"the Ray cluster at {cluster} asks for a token: {state.hint} (docs/ray.md)"
    tokens = f"; if it is up, it may ask for a token: {state.hint} (docs/ray.md)"
    return f"no Ray cluster at {cluster}: {one_line(error)}{tokens if isinstance(error, ConnectionError) else ''}"


def _start(address: str | None, cpus: int | None, settings: dict[str, Any]) -> bool:
    """Start Ray here, unless there is a cluster to join: only a new one lets us name its resources, even none."""
    if address == "local" or not (address or os.environ.get("RAY_ADDRESS")):
        with contextlib.suppress(ValueError):
            ray.init(address, num_cpus=cpus, resources={}, **settings)
            return True
    return False


def await_room(placement: Placement, *, started: bool, together: int = 1) -> None:
    """Say that nodes must come first; a Ray that was started here never gets any, and would wait for ever."""
    if placement.room() >= together:
        return
    each = f"{placement.cpus:g} CPUs and {placement.gpus:g} GPUs"
    wanted = f"a worker with {each}" if together == 1 else f"{together} workers with {each} each"
    if started:
        raise WorkerError(f"this machine has no room for {wanted}: ask for less, or for a cluster with --address")
    say(f"waiting for nodes with room for {wanted}", err=True)


def share_of_node(gpus: float) -> float:
    """CPUs for a worker where nobody said: what a node has per GPU, or four, and never more than a node has.

    Only nodes that are up can be asked: a cluster that has yet to start its first worker node gives four.
    """
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if gpus:
        shares = [node["CPU"] * gpus / node["GPU"] for node in nodes if node.get("GPU", 0) >= gpus and "CPU" in node]
    else:
        shares = [min(4.0, node["CPU"]) for node in nodes if node.get("CPU", 0) > 0]
    return float(max(1, int(min(shares, default=4.0))))


def full_path(place: str) -> str:
    """A local path in full, for processes whose current folder is another one; URLs and commands as they are."""
    return place if "://" in place or place.startswith("pipe:") else str(Path(place).absolute())


def visible(model: str | None) -> str | None:
    """A model's folder or .json by its full path; names of models as they are."""
    prefix, place = ("local-dir:", model[10:]) if model and model.startswith("local-dir:") else ("", model or "")
    there = Path(place).is_dir() or (place.endswith(".json") and Path(place).is_file())
    return f"{prefix}{full_path(place)}" if place and there else model

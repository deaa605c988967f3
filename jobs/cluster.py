"""How a job finds its cluster, and what a worker gets of a node where nobody said."""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import ray

from auditor.distribute import WorkerError, one_line

WORKERS = (
    click.option(
        "--workers", type=click.IntRange(1), help="Workers at most; as many as the cluster can hold by default."
    ),
    click.option(
        "--cpus-per-worker",
        "cpus",
        type=click.FloatRange(0, min_open=True),
        help="CPUs of a worker, and so its decoder processes; its share of a node by default.",
    ),
    click.option(
        "--gpus-per-worker",
        "gpus",
        type=click.FloatRange(0),
        default=0.0,
        show_default=True,
        help="GPUs of a worker: 1, a fraction, or 0 to encode on CPUs.",
    ),
    click.option("--address", help="Of a running cluster; RAY_ADDRESS, one on this machine, or a new one by default."),
)


def worker_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a job that encodes: how many workers, what each gets, and on which cluster."""
    for option in reversed(WORKERS):
        command = option(command)
    return command


def connect(address: str | None, checkout: Path | None, *, quiet: bool = False) -> None:
    """Join the cluster at `address`, else that of RAY_ADDRESS or of this machine, else start Ray here.

    Workers on machines that share the checkout import the package from it, installed or not.
    """
    if ray.is_initialized():
        return
    paths = [str(checkout), *filter(None, [os.environ.get("PYTHONPATH")])] if checkout else []
    environment = {"env_vars": {"PYTHONPATH": os.pathsep.join(paths)}} if paths else None
    try:
        ray.init(address, runtime_env=environment, log_to_driver=not quiet, logging_level="warning")
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise WorkerError(f"no Ray cluster at {address or 'this machine'}: {one_line(error)}") from error
    logging.getLogger("ray.data").setLevel(logging.WARNING)


def share_of_node(gpus: float) -> float:
    """CPUs for a worker where nobody said: what a node has per GPU, or four, and never more than a node has."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if gpus:
        shares = [node["CPU"] * gpus / node["GPU"] for node in nodes if node.get("GPU", 0) >= gpus and "CPU" in node]
    else:
        shares = [min(4.0, node["CPU"]) for node in nodes if node.get("CPU", 0) > 0]
    return float(max(1, int(min(shares, default=4.0))))


def visible(model: str | None) -> str | None:
    """A model's folder by its full path: a worker's current folder is another one."""
    prefix, place = ("local-dir:", model[10:]) if model and model.startswith("local-dir:") else ("", model or "")
    return f"{prefix}{Path(place).absolute()}" if place and Path(place).is_dir() else model

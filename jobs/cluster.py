"""How a job finds its cluster, and what a worker gets of a node where nobody said."""

import logging
import os
from pathlib import Path

import ray

from auditor.distribute import WorkerError, one_line


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

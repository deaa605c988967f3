"""The number of processor cores that this process may use."""

import os


def count_cores() -> int:
    """The cores that `taskset` or a container allows; all of the machine if the system cannot tell."""
    if hasattr(os, "sched_getaffinity"):  # Linux only
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

"""Limits NumPy's and SciPy's matrix products to one thread of this process.

    with use_one_blas_thread():
        score(corpus)

OpenBLAS's other threads wait for the next product at full load. Between the products of an audit there is other work,
so a second thread doubles the processor time and hardly saves any. Several cores are used by processes instead
(auditor/workers/process_pool.py). NumPy has no function for this, so OpenBLAS's own is called.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MAPS = Path("/proc/self/maps")  # the files that this process has loaded; there are none but on Linux
NAMES = ("scipy_openblas_{}_num_threads64_", "scipy_openblas_{}_num_threads", "openblas_{}_num_threads")
VARIABLE = "OPENBLAS_NUM_THREADS"  # for libraries that are loaded later


@contextmanager
def use_one_blas_thread() -> Iterator[None]:
    """Limit OpenBLAS to one thread in this block; no effect without OpenBLAS."""
    names = [(library, name) for library in list_libraries() for name in NAMES]
    libraries = [(library, name) for library, name in names if hasattr(library, name.format("set"))]
    counts = [int(library[name.format("get")]()) for library, name in libraries]
    variable = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = "1"
    try:
        for library, name in libraries:
            library[name.format("set")](1)
        yield
    finally:
        for (library, name), count in zip(libraries, counts, strict=True):
            library[name.format("set")](count)
        os.environ.pop(VARIABLE)
        if variable is not None:
            os.environ[VARIABLE] = variable


def list_libraries() -> list[ctypes.CDLL]:
    """The OpenBLAS libraries that are loaded."""
    if not MAPS.is_file():
        return []
    files = {line.split(maxsplit=5)[-1] for line in MAPS.read_text().splitlines() if "openblas" in line}
    return [ctypes.CDLL(file) for file in sorted(files)]

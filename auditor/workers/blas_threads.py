"""Limits NumPy's, SciPy's and faiss's matrix products to one thread of this process, with kernels for its processor.

    with use_one_blas_thread():
        score(corpus)

OpenBLAS's other threads wait for the next product at full load. Between the products of an audit there is other work,
so a second thread doubles the processor time and hardly saves any. Several cores are used by processes instead
(auditor/workers/process_pool.py). NumPy has no function for this, so OpenBLAS's own is called.

faiss brings an older OpenBLAS. On a processor that it does not know, this takes kernels without AVX, which need three
times as long. Therefore it gets the kernels that NumPy's OpenBLAS has chosen.
"""

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MAPS = Path("/proc/self/maps")  # the files that this process has loaded; there are none but on Linux
NAMES = ("scipy_openblas_{}_num_threads64_", "scipy_openblas_{}_num_threads", "openblas_{}_num_threads")
VARIABLE = "OPENBLAS_NUM_THREADS"  # for libraries that are loaded later
KERNELS = "OPENBLAS_CORETYPE"  # likewise; read only when a library is loaded
KERNEL_NAMES = ("scipy_openblas_get_corename64_", "scipy_openblas_get_corename")  # of NumPy's and SciPy's
# What NumPy's OpenBLAS may have chosen, and the same or the nearest kernels that an older OpenBLAS has.
OLDER_KERNELS = {
    "SkylakeX": "SkylakeX",
    "Cooperlake": "SkylakeX",
    "SapphireRapids": "SkylakeX",
    "Haswell": "Haswell",
    "Zen": "Zen",
}


class ThreadLimit:
    """One thread while at least one block is open, in any thread of this process; then as many as before."""

    def __init__(self) -> None:
        self.lock, self.blocks = threading.Lock(), 0
        self.counts: dict[str, int] = {}  # by file, of the libraries that were loaded before the first block
        self.variables: dict[str, str | None] = {}  # of the environment, as they were

    def begin(self) -> None:
        with self.lock:
            if not self.blocks:
                self.counts = {file: get_count() for file, (get_count, _) in find_functions().items()}
                changes = {VARIABLE: "1"} | choose_kernels()
                self.variables = {name: os.environ.get(name) for name in changes}
                os.environ.update(changes)
            self.blocks += 1
            for _, set_count in find_functions().values():
                set_count(1)

    def end(self) -> None:
        with self.lock:
            self.blocks -= 1
            if self.blocks:
                return
            usual = max(self.counts.values(), default=1)  # what a library would have that was loaded in a block
            for file, (_, set_count) in find_functions().items():
                set_count(self.counts.get(file, usual))
            for name, value in self.variables.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


LIMIT = ThreadLimit()


@contextmanager
def use_one_blas_thread() -> Iterator[None]:
    """Limit OpenBLAS to one thread in this block; no effect without OpenBLAS. Blocks of several threads can overlap."""
    LIMIT.begin()
    try:
        yield
    finally:
        LIMIT.end()


def find_functions() -> dict[str, tuple[Callable[[], int], Callable[[int], object]]]:
    """By file, the functions of the loaded OpenBLAS libraries that return and set the number of threads."""
    pairs = [(library, name) for library in list_libraries() for name in NAMES]
    return {
        library._name: (library[name.format("get")], library[name.format("set")])
        for library, name in pairs
        if hasattr(library, name.format("set"))
    }


def choose_kernels() -> dict[str, str]:
    """The variable that gives libraries that are loaded later the kernels of NumPy's; none if the user has set it."""
    if KERNELS in os.environ:
        return {}
    names = (name for library in list_libraries() for name in read_kernels(library))
    kernels = OLDER_KERNELS.get(next(names, ""))
    return {} if kernels is None else {KERNELS: kernels}


def read_kernels(library: ctypes.CDLL) -> Iterator[str]:
    """The kernels that a library of NumPy's or SciPy's has chosen."""
    for name in KERNEL_NAMES:
        if hasattr(library, name):
            read_name = library[name]
            read_name.restype = ctypes.c_char_p
            yield read_name().decode()


def list_libraries() -> list[ctypes.CDLL]:
    """The OpenBLAS libraries that are loaded. A file of this name that is only mapped, such as data, is not loaded."""
    if not MAPS.is_file():
        return []
    files = {line.split(maxsplit=5)[-1] for line in MAPS.read_text().splitlines() if "openblas" in line}
    libraries = []
    for file in sorted(files):
        with suppress(OSError):
            libraries.append(ctypes.CDLL(file, os.RTLD_NOLOAD))
    return libraries

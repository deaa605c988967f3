import mmap
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from auditor.workers.blas_threads import (
    KERNELS,
    NAMES,
    OLDER_KERNELS,
    VARIABLE,
    list_libraries,
    use_one_blas_thread,
)


def count_threads() -> list[int]:
    pairs = [(library, name.format("get")) for library in list_libraries() for name in NAMES]
    return [int(library[name]()) for library, name in pairs if hasattr(library, name)]


def test_openblas_has_one_thread_in_the_block_and_as_many_as_before_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    np.ones((2, 2)) @ np.ones((2, 2))
    monkeypatch.setenv(VARIABLE, "7")
    before = count_threads()
    if not before:
        pytest.skip("NumPy multiplies without OpenBLAS here")
    with use_one_blas_thread():
        assert set(count_threads()) == {1} and os.environ[VARIABLE] == "1"
    assert count_threads() == before and os.environ[VARIABLE] == "7"


def test_blocks_of_threads_can_overlap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    before = count_threads()
    first, second = use_one_blas_thread(), use_one_blas_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert set(count_threads()) <= {1} and os.environ[VARIABLE] == "1"
    second.__exit__(None, None, None)
    assert count_threads() == before and VARIABLE not in os.environ


def test_a_library_that_is_loaded_in_the_block_has_all_threads_after_it() -> None:
    script = (
        "import numpy, sys\n"
        "from auditor.workers.blas_threads import find_functions, use_one_blas_thread\n"
        "with use_one_blas_thread():\n"
        "    import scipy.linalg\n"
        "print(*(get() for get, _ in find_functions().values()))\n"
    )
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    command = [sys.executable, "-c", script]
    output = subprocess.run(command, env=environment | {VARIABLE: "2"}, capture_output=True, text=True, check=True)
    assert len(set(output.stdout.split())) <= 1


def test_a_mapped_file_whose_name_looks_like_the_library_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "openblas.npy"
    path.write_bytes(b"no library" * 1000)
    before = count_threads()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), use_one_blas_thread():
        assert set(count_threads()) <= {1}
    assert count_threads() == before


def load_faiss_in_block(variables: dict[str, str]) -> dict[str, str]:
    """The kernels of NumPy's and of faiss's OpenBLAS in a new process, by library, and the variable after the block."""
    script = (
        "import ctypes, numpy, os\n"
        "from auditor.workers.blas_threads import KERNELS, list_libraries, use_one_blas_thread\n"
        "with use_one_blas_thread():\n"
        "    import faiss\n"
        "    for library in list_libraries():\n"
        "        for name in ('scipy_openblas_get_corename64_', 'openblas_get_corename'):\n"
        "            if hasattr(library, name):\n"
        "                read_name = library[name]\n"
        "                read_name.restype = ctypes.c_char_p\n"
        "                print('numpy' if 'scipy' in name else 'faiss', read_name().decode())\n"
        "print('variable', os.environ.get(KERNELS, 'none'))\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != KERNELS} | variables
    command = [sys.executable, "-c", script]
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    return dict(line.split(maxsplit=1) for line in output.stdout.splitlines())


def test_faiss_takes_the_kernels_of_numpy_even_if_its_older_openblas_does_not_know_the_processor() -> None:
    kernels = load_faiss_in_block({})
    if kernels.get("numpy") not in OLDER_KERNELS or "faiss" not in kernels:
        pytest.skip(f"these libraries have other kernels: {kernels}")
    assert kernels["faiss"] == OLDER_KERNELS[kernels["numpy"]] and kernels["variable"] == "none"


def test_kernels_that_the_user_has_chosen_stay() -> None:
    kernels = load_faiss_in_block({KERNELS: "Prescott"})
    if "numpy" not in kernels:
        pytest.skip("NumPy multiplies without OpenBLAS here")
    assert kernels["variable"] == "Prescott" and kernels.get("faiss", "Prescott") == "Prescott"

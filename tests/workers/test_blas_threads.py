import os

import numpy as np
import pytest

from auditor.workers.blas_threads import NAMES, VARIABLE, list_libraries, use_one_blas_thread


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

"""Build an artifact once for all workers of a test run: a corpus, a model, an audit.

    @pytest.fixture(scope="session")
    def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
        return build_once(tmp_path_factory, "dashboard-audit", write_audit)

`write_audit(folder)` fills an empty folder in the first worker that asks for it; the others wait and read the same
folder. A session fixture alone is built again by every worker of pytest-xdist. Treat the folder as read-only; a test
that changes files copies it (`shutil.copytree`).
"""

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SECONDS = 500  # to wait for another worker's build; a test ends after 600


def build_once(factory: pytest.TempPathFactory, name: str, build: Callable[[Path], object]) -> Path:
    """The folder `name` of this test run after `build(folder)`. A build that fails or dies is started again."""
    root = find_run_folder(factory) / "built"
    root.mkdir(exist_ok=True)
    folder, finished = root / name, root / f"{name}.finished"
    with hold_lock(root / f"{name}.lock"):
        if not finished.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            build(folder)
            finished.touch()
    return folder


def find_run_folder(factory: pytest.TempPathFactory) -> Path:
    """The temporary folder of this test run, which all its workers share."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold a lock between processes, which ends with its process."""
    with path.open("w") as file:
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"another worker holds {path} for more than {SECONDS} s") from None
                time.sleep(0.1)
        yield

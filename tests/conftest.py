"""Fixtures for all tests. Tests with `shared`, the development data next to the checkout, skip if it is missing."""

import os
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

from tests.support.build_once import build_once, find_run_folder
from tests.support.slow_files import read_slow_files

# Set before torch is imported anywhere: the suite must never wait for a hub.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny tensors: a second thread only waits for the first
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
if "PYTEST_XDIST_WORKER" not in os.environ:  # workers inherit it: what the user has confirmed about audits
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="auditor-tests-")

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # started in a script's background: child processes would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

SHARED = Path(os.environ.get("PAU_SHARED", Path(__file__).resolve().parents[2] / "shared"))


TOGETHER = {
    "dashboard/test_browser_explore.py": "dashboard/test_browser.py",
    "dashboard/test_command.py": "dashboard/test_pages.py",
    "dashboard/test_media_preview.py": "dashboard/test_pages.py",
    "demo/test_demo_corpus.py": "demo/test_check_truth.py",
    "demo/test_run_demo.py": "demo/test_check_truth.py",
    "score/statistics/test_ambiguity.py": "score/statistics/test_mismatch.py",
}


HERE, SLOW_FILES = Path(__file__).parent, read_slow_files()
FAST = "not (cluster or browser or slow)"  # of `make test-fast`


def is_slow(path: Path) -> bool:
    name = path.relative_to(HERE).as_posix()
    return name in SLOW_FILES or name in TOGETHER


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`make test-fast` does not even import the slow files and what they test."""
    return True if config.option.markexpr == FAST and is_slow(collection_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark slow tests, and start the slowest groups first, so that no core waits for one of them at the end."""
    seconds: Counter[str] = Counter()
    for name, duration in SLOW_FILES.items():
        seconds[find_group(name)] += duration  # type: ignore[assignment]
    for item in items:
        if is_slow(item.path):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: -seconds[find_group(item.path.relative_to(HERE).as_posix())])


def find_group(name: str) -> str:
    """The group of a test file: the files of a group run in one worker, which builds their fixtures once."""
    return TOGETHER.get(name, name)


class FileGroupScheduling(LoadFileScheduling):
    """Gives a worker a whole group of files. xdist's `loadgroup` has no effect with pytest 9.2: it edits node ids."""

    def _split_scope(self, nodeid: str) -> str:
        return find_group(nodeid.partition("::")[0].removeprefix("tests/"))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileGroupScheduling:
    return FileGroupScheduling(config, log)


@pytest.fixture(scope="module", autouse=True)
def own_group(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Fail if two workers run the tests of one group: each would build its fixtures, and nothing else would tell."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    claims = find_run_folder(tmp_path_factory) / "groups"
    claims.mkdir(exist_ok=True)
    claim = claims / find_group(request.path.relative_to(HERE).as_posix()).replace("/", ".")
    with suppress(FileExistsError), claim.open("x") as file:
        file.write(worker)
    assert claim.read_text() in (worker, ""), f"{request.path} runs in {worker} and in {claim.read_text()}"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real photos, clips and hostile media."""
    if not (SHARED / "data").is_dir():
        pytest.skip(f"no development data at {SHARED} (set PAU_SHARED to where it is)")
    return SHARED


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Sums must not depend on the number of threads of the machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def flickr_model(shared: Path) -> str:
    """The spec of the small real open_clip model."""
    return f"local-dir:{shared / 'models' / 'flickr8k-lite'}"


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The spec of a tiny open_clip model with random but fixed weights."""
    from tests.support.corpora import write_random_model

    return f"local-dir:{build_once(tmp_path_factory, 'random-model', write_random_model)}"

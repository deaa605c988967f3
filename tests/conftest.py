"""Fixtures for all tests. Tests with `shared`, the development data next to the checkout, skip if it is missing."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.build_once import build_once
from tests.support.slow_files import read_slow_files

# Set before torch is imported anywhere: the suite must never wait for a hub.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny tensors: a second thread only waits for the first
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

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


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With several workers, each file runs in one worker, together with the files that share its fixtures."""
    groups: dict[pytest.Item, str] = {}
    for item in items:
        name = item.path.relative_to(HERE).as_posix()
        groups[item] = TOGETHER.get(name, name)
        item.add_marker(pytest.mark.xdist_group(groups[item]))
        if is_slow(item.path):
            item.add_marker(pytest.mark.slow)
    seconds: Counter[str] = Counter()
    for name, duration in SLOW_FILES.items():
        seconds[TOGETHER.get(name, name)] += duration  # type: ignore[assignment]
    # The slowest groups start first, so that no core waits for one of them at the end.
    items.sort(key=lambda item: -seconds[groups[item]])


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

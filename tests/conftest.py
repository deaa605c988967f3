"""Fixtures for all tests. `shared` is the development data beside the checkout; its tests skip where it is not."""

import os
from pathlib import Path

import pytest

# Before torch is imported anywhere: the suite must never wait for a hub.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny tensors: a second thread only waits for the first
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

SHARED = Path(os.environ.get("PAU_SHARED", Path(__file__).resolve().parents[2] / "shared"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real photos, clips and hostile media."""
    if not (SHARED / "data").is_dir():
        pytest.skip(f"no development data at {SHARED} (set PAU_SHARED to where it is)")
    return SHARED


@pytest.fixture(scope="session")
def flickr_model(shared: Path) -> str:
    """The spec of the small real open_clip model."""
    return f"local-dir:{shared / 'models' / 'flickr8k-lite'}"


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The spec of a tiny open_clip model with random but fixed weights."""
    from tests.support.corpora import write_random_model

    return write_random_model(tmp_path_factory.mktemp("random-model"))

"""The number of cores is known on every platform, and no module asks for it in a way that only Linux has."""

import os
from pathlib import Path

import pytest

from auditor.cores import count_cores

ROOT = Path(__file__).resolve().parents[1]


def test_cores_are_those_of_the_process_or_else_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 5, 7}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    assert count_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    assert count_cores() == 16
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert count_cores() == 1


def test_the_settings_of_a_sweep_need_no_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    from auditor.sweep.sweep_config import SweepConfig
    from auditor.workers.process_pool import default_size

    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert SweepConfig().decoders == 3
    assert 1 <= default_size() <= 3


def test_only_one_module_asks_for_the_cores_of_the_process() -> None:
    folders = [ROOT / name for name in ("auditor", "model", "dashboard", "jobs")]
    users = {
        path.name for folder in folders for path in folder.rglob("*.py") if "sched_getaffinity" in path.read_text()
    }
    assert users == {"cores.py"}

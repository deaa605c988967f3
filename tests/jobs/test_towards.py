"""jobs/towards.py stores the column of `auditor towards` with the workers of a cluster."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from auditor.python_api import Audit
from auditor.run.audit_config import AuditConfig
from auditor.run.run_audit import run_audit
from tests.support.stored import make_pairs, write_datacomp

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.cluster
def test_the_column_is_that_of_one_machine(tmp_path: Path) -> None:
    run_audit(AuditConfig(f"datacomp:{write_datacomp(tmp_path / 'corpus')}", str(tmp_path / "audit"), quiet=True))
    np.save(tmp_path / "target.npy", make_pairs(40, seed=5)[0])
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("RAY_ADDRESS", None)
    command = [sys.executable, str(ROOT / "jobs" / "towards.py"), "audit", "target.npy", "--name", "far"]
    arguments = ["--workers", "2", "--cpus-per-worker", "1", "--address", "local"]
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=300
    )
    assert done.returncode == 0, done.stderr
    with Audit(tmp_path / "audit") as audit:
        audit.towards(tmp_path / "target.npy", name="near")
        assert audit.count("towards_far = towards_near") == 600

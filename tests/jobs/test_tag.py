"""jobs/tag.py writes the same columns as `auditor tag`, on Ray."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from auditor.python_api import Audit
from tests.support.vector_audit import plant_media, write_vector_audit

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.cluster
def test_the_command_on_a_ray_of_this_machine(tmp_path: Path) -> None:
    media = [plant_media(40, 0.2, seed=seed) for seed in range(66)]  # more shards than are worth a cluster
    audit = write_vector_audit(tmp_path / "audit", [vectors for vectors, _ in media], captions=1)
    planted = media[0][1]
    rows = [row for row in range(40) if row != 3]
    lines = ["key,label", *(f"s0-{row:05d},{int(planted[row])}" for row in rows)]
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    arguments = ["--by", "labels.csv", "--workers", "2", "--cpus-per-worker", "1", "--address", "local"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("RAY_ADDRESS", None)
    command = [sys.executable, str(ROOT / "jobs" / "tag.py"), "audit", *arguments, "--name", "by_ray"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert "by_ray: " in done.stdout
    with Audit(audit) as opened:
        opened.tag(by=tmp_path / "labels.csv", name="alone")
        rows_of_both = opened.sql("SELECT by_ray, alone, by_ray_margin, alone_margin FROM samples").to_pydict()
    np.testing.assert_array_equal(rows_of_both["by_ray_margin"], rows_of_both["alone_margin"])
    np.testing.assert_array_equal(rows_of_both["by_ray"], rows_of_both["alone"])

"""Models tried on a real Ray on this machine: the same numbers as `auditor encoders`, and failures in one line."""

import json
from pathlib import Path

import pytest
import ray

from auditor.cli import run_command_line
from jobs.encoders import command as job
from tests.support.corpora import make_sample, write_tar
from tests.support.tiny_clip import write_model


@pytest.mark.filterwarnings("default")  # Ray Data's own
def test_ray_measures_what_one_machine_measures(
    tmp_path: Path, random_model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tar(tmp_path / "corpus/0.tar", [(f"{i}", make_sample(i)) for i in range(60)])
    write_model(tmp_path / "other")
    monkeypatch.chdir(tmp_path)
    given = ["corpus", "--try", random_model, "--try", "local-dir:other", "--sample", "50", "--decoders", "1", "--json"]
    assert run_command_line(["encoders", *given, "--quiet"]) == 0
    here = json.loads(capsys.readouterr().out)
    cluster = ["--workers", "2", "--cpus-per-worker", "1", "--address", "local"]
    try:
        assert run_command_line([*given, "--try", "local-dir:gone", *cluster], job) == 1
    finally:
        ray.shutdown()
    out, err = capsys.readouterr()
    assert "local-dir:gone could not be tried" in err.strip().splitlines()[-1]
    there = json.loads(out)
    assert there["use"] is here["use"] is None and set(there["failures"]) == {"local-dir:gone"}
    rows = [
        {row["model"].rpartition("/")[2].rpartition(":")[2]: row for row in all_["encoders"]} for all_ in (here, there)
    ]
    assert len(rows[0]) == 2 and rows[0].keys() == rows[1].keys()
    for name, row in rows[0].items():
        for measure in ("relatedness", "separation"):
            assert rows[1][name][measure]["value"] == pytest.approx(row[measure]["value"], abs=1e-3)
        assert rows[1][name]["parameters"] == row["parameters"]

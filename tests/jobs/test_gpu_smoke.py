"""The script for a machine with a GPU runs its whole path on a CPU with a tiny model, and says if there is no GPU."""

import pytest
import torch
from click.testing import CliRunner

from jobs.gpu_smoke import command, run_smoke_test


def test_the_path_runs_on_a_cpu() -> None:
    result = CliRunner().invoke(command, ["--device", "cpu", "--photos", "40", "--batch-size", "16", "--decoders", "1"])
    assert result.exit_code == 0, result.output
    facts = dict(line.split(": ", 1) for line in result.output.splitlines())
    assert facts["device"] == "cpu" and facts["torch"] == torch.__version__ and facts["precision"] == "float32"
    assert facts["least cosine to float32"] == "exact"
    assert int(facts["samples/s from tar to Parquet"]) > 0 and facts["utilization of the encoder"].endswith("%")


def test_another_precision_is_checked() -> None:
    cosines = run_smoke_test("cpu", 20, 16, 1, "float16")["least cosine to float32"]
    assert isinstance(cosines, dict) and set(cosines) == {"images", "captions"}
    assert all(0.999 <= cosine <= 1 for cosine in cosines.values())


def test_a_machine_without_a_gpu_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = CliRunner().invoke(command, [])
    assert result.exit_code == 1 and "no GPU" in str(result.exception)

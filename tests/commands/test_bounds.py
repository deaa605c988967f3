"""Numbers that no command can work with are refused before any work, also those that would only fail or hang later."""

from pathlib import Path

import pytest

from auditor.cli import run_command_line
from auditor.errors import AuditorError
from auditor.sweep.sweep_config import SweepConfig


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["audit", "photos", "--out", "audit", "--batch-size", "0"], "--batch-size"),
        (["score", "audit", "--reference", "0"], "--reference"),
        (["score", "audit", "--prototypes", "-1"], "--prototypes"),
        (["fit", "audit", "--out", "head", "--seed", "-1"], "--seed"),
        (["certify", "audit", "--seed", "-1"], "--seed"),
        (["weigh", "audit", "--out", "weights.npy", "--seed", "-1"], "--seed"),
        (["verify", "audit", "-n", "0"], "-n"),
        (["pack", "coco", "--source", ".", "--out", "x", "--samples-per-shard", "0"], "--samples-per-shard"),
    ],
)
def test_numbers_out_of_bounds_are_refused(
    arguments: list[str], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(arguments) == 2
    assert f"Invalid value for '{option}'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["frames", "batch_size"])
def test_python_refuses_them_too(name: str) -> None:
    with pytest.raises(AuditorError, match="must be at least 1, not 0"):
        SweepConfig(**{name: 0})


def test_evaluate_refuses_a_wrong_target_before_the_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["evaluate", "coco", "--data", str(tmp_path), "--model", "ViT-B-32", "--out", f"{tmp_path}/results/"]
    assert run_command_line(arguments) == 1
    assert "results/ is not a file" in capsys.readouterr().err

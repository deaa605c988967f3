"""`auditor train` as users run it: one-line errors, settings from a file, JSON results."""

import json
from pathlib import Path

import pytest

from auditor.cli import run_command_line
from model.training.training_config import TrainConfig
from tests.support.corpora import write_members
from tests.support.training import make_tiny_config, write_model_config, write_shards


def arguments(folder: Path, *more: str) -> list[str]:
    config = make_tiny_config(folder, epochs=1)
    (folder / "run.toml").write_text(config.to_toml())
    return ["train", "--config", str(folder / "run.toml"), "--quiet", *more]


def test_a_run_from_a_file_with_flags_on_top(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    val = write_shards(tmp_path, count=1, size=8, name="val")
    write_members(Path(val) / "bad.tar", [("bad.png", b"junk"), ("bad.txt", b"x")])
    assert run_command_line([*arguments(tmp_path), "--val", val, "--batch-size", "32", "--cache", "--json"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found["steps"] == 2 and found["failures"] == {"corrupt": 1}
    assert found["best"] == str(tmp_path / "run" / "best") and Path(found["best"], "config.json").is_file()
    assert set(found["validation"]) >= {"visual_to_text", "text_to_visual"}
    assert captured.err == ""
    assert (
        run_command_line([*arguments(tmp_path), "--val", val, "--batch-size", "32", "--cache"]) == 0
    )  # what people see
    shown = capsys.readouterr().out
    assert "visual to text" in shown and "R@10" in shown


def test_failures_are_reported_at_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = Path(write_shards(tmp_path))
    write_members(home / "zz.tar", [("broken.png", b"junk"), ("broken.txt", b"x")])
    assert run_command_line(arguments(tmp_path)) == 0
    shown = capsys.readouterr().out
    assert "left out: 1 corrupt" in shown and "zz: broken: " in shown


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["nowhere"], "nowhere does not exist"),
        (["--val", "nowhere"], "nowhere does not exist"),
        (["--model", "ViT-Z-99"], "neither an open_clip model nor a folder"),
        (["--epochs", "0"], "epochs must be at least 1"),
        (["--weights", "nowhere.parquet"], "cannot read the weights"),
        (["--lr-encoders", "1e30", "--clip-norm", "0", "--warmup", "0"], "at step 2"),
    ],
)
def test_errors_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], message: str) -> None:
    assert run_command_line([*arguments(tmp_path), *more]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("auditor: ") and captured.err.count("\n") == 1
    assert message in captured.err
    assert not (tmp_path / "run").exists()


def test_unknown_settings_and_missing_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.toml").write_text("learning_rate = 1")
    assert run_command_line(["train", "x", "--out", "y", "--config", str(tmp_path / "bad.toml")]) == 1
    assert "unknown setting 'learning_rate'" in capsys.readouterr().err
    assert run_command_line(["train", "x"]) == 1
    assert "auditor: out is missing" in capsys.readouterr().err
    assert run_command_line(["train", "x", "--out", "y", "--preset", "imagenet"]) == 2


def test_every_setting_is_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["train", "--help"]) == 0
    shown = capsys.readouterr().out
    for name in TrainConfig.__slots__:
        assert name == "corpus" or f"--{name.replace('_', '-')}" in shown


def test_a_backbone_of_another_width(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(arguments(tmp_path)) == 0
    wide = write_model_config(tmp_path, {"embed_dim": 24}, "wide.json")
    capsys.readouterr()
    more = ["--model", wide, "--head", str(tmp_path / "run" / "best"), "--out", str(tmp_path / "other")]
    assert run_command_line([*arguments(tmp_path), *more]) == 1
    assert "are for embeddings of width 16, but" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()

"""A run resumed from a damaged state: one line that names the file, or it goes on; never a traceback."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from auditor.research.train.train_model import train
from model.model_errors import ModelError
from model.training.training_config import TrainConfig
from tests.support.damage import cut_in_half, empty_file, replace_by_folder, zero_bytes
from tests.support.training import make_tiny_config


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> TrainConfig:
    config = make_tiny_config(tmp_path_factory.mktemp("run"), epochs=1)
    train(config)
    return config


@pytest.fixture
def run(finished: TrainConfig, tmp_path: Path) -> Path:
    """A copy of a run, at the place of the run: its settings name the folder."""
    copy = tmp_path / "copy"
    shutil.copytree(finished.out, copy)
    yield Path(finished.out)
    shutil.rmtree(finished.out)
    shutil.copytree(copy, finished.out)


def change_tensors(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        tensors = load_file(path)
        change(tensors)
        save_file(tensors, path)

    return damage


def change_json(**fields: Any) -> Callable[[Path], None]:
    return lambda path: path.write_text(json.dumps({**json.loads(path.read_text()), **fields})) and None


def reshape_first(tensors: dict[str, Any]) -> None:
    name = next(name for name in tensors if name.endswith("exp_avg"))
    tensors[name] = torch.zeros(3)


DAMAGES: list[tuple[str, Callable[[Path], None]]] = [
    *((name, damage) for name in ("trainer.json", "trainer.safetensors") for damage in (cut_in_half, zero_bytes)),
    ("trainer.safetensors", empty_file),
    *(("open_clip_model.safetensors", damage) for damage in (cut_in_half, zero_bytes)),
    ("head.safetensors", cut_in_half),
    ("config.json", replace_by_folder),
    ("trainer.safetensors", change_tensors(reshape_first)),
    ("trainer.safetensors", change_tensors(lambda tensors: tensors.update({"optimizer": torch.zeros(1)}))),
    ("open_clip_model.safetensors", change_tensors(lambda tensors: tensors.popitem())),
    ("trainer.json", lambda path: path.write_text("[" * 100_000) and None),
    ("trainer.json", change_json(step="7")),
    ("trainer.json", change_json(step=-1)),
    ("trainer.json", change_json(loaders={"a": 1})),
    ("trainer.json", change_json(loaders=[7])),
    ("trainer.json", change_json(loaders=[{"position": "x"}])),
    ("trainer.json", change_json(config=[])),
    ("../metrics.jsonl", lambda path: path.write_bytes(b"\xff\xfe\n[]\n") and None),
]


@pytest.mark.parametrize(("name", "damage"), DAMAGES)
def test_one_line(finished: TrainConfig, run: Path, name: str, damage: Callable[[Path], None]) -> None:
    damage(run / "last" / name)
    with pytest.raises(ModelError) as raised:
        train(finished)
    assert len(str(raised.value).splitlines()) == 1 and str(run) in str(raised.value)

"""Model folders from strangers: no code runs, no memory for sizes that only the settings claim, one line each."""

import json
import pickle
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from model.backbone import TEMPORAL_SETTINGS, load_backbone
from model.checkpoint import load_model, save_checkpoint
from model.model_errors import ModelError
from model.prototypes import HeadConfig, PrototypeHead
from tests.support.tiny_clip import CONFIG, write_model

WEIGHTS = "open_clip_model.safetensors"
Change = Callable[[dict[str, Any]], object]


class RunsCode:
    """A pickle that makes a file when it is loaded."""

    def __init__(self, flag: Path) -> None:
        self.flag = flag

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return open, (str(self.flag), "w")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("good") / "model")


@pytest.fixture(scope="module")
def checkpoint(good: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    backbone = load_backbone(f"local-dir:{good}")
    folder = tmp_path_factory.mktemp("checkpoint") / "saved"
    return save_checkpoint(folder, PrototypeHead(HeadConfig(backbone.dim, 4)), backbone, with_backbone=True)


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "model"))


@pytest.mark.parametrize("name", ["open_clip_pytorch_model.bin", "open_clip_model.pth"])
@pytest.mark.parametrize("form", ["zip", "raw", "in a dict"])
def test_a_pickle_does_not_run(folder: Path, tmp_path: Path, name: str, form: str) -> None:
    (folder / WEIGHTS).unlink()
    evil = RunsCode(tmp_path / "ran")
    if form == "raw":
        (folder / name).write_bytes(pickle.dumps(evil, protocol=2))
    else:
        torch.save(evil if form == "zip" else {"state_dict": {"a": evil}}, folder / name)
    with pytest.raises(ModelError, match="cannot load"):
        load_model(f"local-dir:{folder}")
    assert not (tmp_path / "ran").exists()


def make_tensor(shape: list[int], stop: int) -> bytes:
    header = json.dumps({"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, stop]}}).encode()
    return struct.pack("<Q", len(header)) + header + b"x" * 100


@pytest.mark.parametrize(
    "data",
    [struct.pack("<Q", 2**60), make_tensor([2**40], 2**42), make_tensor([2**62, 8], 0), make_tensor([25], 100), b""],
)
def test_weights_that_lie(folder: Path, data: bytes) -> None:
    (folder / WEIGHTS).write_bytes(data)
    with pytest.raises(ModelError, match="cannot load"):
        load_model(f"local-dir:{folder}")


VISION = CONFIG["model_cfg"]["vision_cfg"]


@pytest.mark.parametrize(
    "config",
    [
        "[" * 100_000,
        {"model_cfg": ["embed_dim"]},
        {"model_cfg": {**CONFIG["model_cfg"], "vision_cfg": {**VISION, "layers": 10**7}}},
        {"model_cfg": {**CONFIG["model_cfg"], "vision_cfg": None}},
        {**CONFIG, "preprocess_cfg": {"mean": ["x"]}},
        {**CONFIG, "preprocess_cfg": {"std": [0, 0, 0]}},
        {**CONFIG, TEMPORAL_SETTINGS: {"heads": "x"}},
    ],
)
def test_settings_that_cannot_be(folder: Path, config: Any) -> None:
    (folder / "open_clip_config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    with pytest.raises(ModelError):
        load_model(f"local-dir:{folder}")


def test_a_temporal_transformer_of_many_layers(folder: Path) -> None:
    (folder / "open_clip_config.json").write_text(json.dumps({**CONFIG, TEMPORAL_SETTINGS: {"heads": 2}}))
    layers = {f"resblocks.{number}.x": torch.zeros(1) for number in range(2000)}
    save_file({"positions": torch.zeros(77, 24), **layers}, folder / "temporal.safetensors")
    with pytest.raises(ModelError, match="2000 layers"):
        load_model(f"local-dir:{folder}")


@pytest.mark.parametrize(
    "change",
    [
        lambda config: config["head"].update(dim=10**9),
        lambda config: config["head"].update(prototypes=10**12),
        lambda config: config["head"].update(dim=10**400),
        lambda config: config["head"].update(tau="x"),
        lambda config: config["head"].update(scale=None),
        lambda config: config["head"].update(init=["xavier"]),
        lambda config: config["head"].update(center_text=[1]),
        lambda config: config["backbone"].update(spec=7, stored=False),
        lambda config: config["backbone"].update(spec="\0", stored=False),
        lambda config: config["backbone"].update(spec="x" * 5000, stored=False),
        lambda config: config["backbone"].update(fingerprint=7),
    ],
)
def test_a_checkpoint_with_wrong_settings(checkpoint: Path, tmp_path: Path, change: Change) -> None:
    folder = Path(shutil.copytree(checkpoint, tmp_path / "checkpoint"))
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError):
        load_model(folder)


def test_checkpoints_that_name_each_other(checkpoint: Path, tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        folder = Path(shutil.copytree(checkpoint, tmp_path / name))
        config = json.loads((folder / "config.json").read_text())
        config["backbone"].update(spec=str(tmp_path / other), stored=False)
        (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="names itself"):
        load_model(tmp_path / "a")

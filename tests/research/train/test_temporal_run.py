"""Runs with a temporal transformer on generated clips: it learns, resumes and loads; its settings are checked."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from auditor.research.train.train_model import StepReport, TrainConfig, train
from auditor.research.train.training_run import build_learner
from model.checkpoint import load_checkpoint
from model.model_errors import ModelError
from tests.support.clips import encode_clip
from tests.support.corpora import make_caption, write_members
from tests.support.training import make_tiny_config

pytestmark = pytest.mark.usefixtures("one_thread")


def write_clips(folder: Path, name: str, count: int, start: int = 0) -> str:
    files = []
    for i in range(start, start + count):
        colors = np.random.default_rng(i).integers(0, 256, (1 + i % 5, 1, 1, 3)).astype(np.uint8)
        clip = encode_clip(np.broadcast_to(picture, (32, 32, 3)) for picture in colors)
        files += [(f"{i:03}.mp4", clip), (f"{i:03}.txt", make_caption(i).encode())]
    write_members(folder / f"{name}.tar", files)
    return str(folder / f"{name}.tar")


@pytest.fixture
def config(tmp_path: Path) -> TrainConfig:
    """The released recipe at the size of a test: three frames, padded if a clip has fewer."""
    corpora = {"corpus": write_clips(tmp_path, "train", 16), "val": write_clips(tmp_path, "val", 6, start=50)}
    recipe: dict[str, Any] = {"optimizer": "bertadam", "train": "layers", "target": "released", "temporal_layers": 2}
    sizes = {"frames": 3, "epochs": 2, "batch_size": 4, "chunk": 2, "save_every": 3}
    return make_tiny_config(tmp_path, **corpora, **recipe, **sizes, schedule="clip4clip")


def read_weights(folder: Path) -> dict[str, torch.Tensor]:
    names = ("open_clip_model", "temporal", "head")
    return {f"{name}/{key}": t for name in names for key, t in load_file(folder / f"{name}.safetensors").items()}


class StopError(Exception):
    pass


def stop_at(step: int) -> Any:
    def progress(report: StepReport) -> None:
        if report.step == step:
            raise StopError

    return progress


def test_a_stopped_run_resumes_with_its_transformer(config: TrainConfig, tmp_path: Path) -> None:
    start = build_learner(config).backbone.temporal
    with pytest.raises(StopError):
        train(config, stop_at(5))
    resumed = train(config)
    assert resumed.resumed_from == 4  # the end of the first epoch
    straight = train(replace(config, out=str(tmp_path / "straight")))
    found, expected = read_weights(resumed.last), read_weights(straight.last)
    assert found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in found)
    assert start is not None and resumed.validation == straight.validation
    moved = {n for n, t in start.state_dict().items() if not torch.equal(t, found[f"temporal/{n}"])}
    assert {"positions", "resblocks.0.attn.in_proj_weight", "resblocks.1.mlp.c_proj.weight"} <= moved
    loaded = load_checkpoint(resumed.best)
    assert loaded.head is not None and loaded.backbone.temporal is not None and loaded.backbone.temporal.layers == 2
    assert loaded.head.config.scale == pytest.approx(
        loaded.backbone.logit_scale
    )  # that of the loss, not evidence_scale


def test_a_run_starts_from_the_transformer_of_a_checkpoint(config: TrainConfig, tmp_path: Path) -> None:
    first = train(replace(config, epochs=1))
    more = replace(config, model=str(first.best), out=str(tmp_path / "more"), target="corpus", optimizer="adamw")
    kept = train(replace(more, train="prototypes", epochs=1))
    # Only the head learned: it names the encoders of the first run, with their transformer.
    assert not (kept.best / "temporal.safetensors").exists()
    loaded, before = load_checkpoint(kept.best).backbone, load_checkpoint(first.best).backbone
    assert loaded.temporal is not None and loaded.fingerprint == before.fingerprint
    learner = build_learner(more)
    assert learner.backbone.temporal is not None and before.temporal is not None
    assert torch.equal(learner.backbone.temporal.positions, before.temporal.positions)
    with pytest.raises(ModelError, match="temporal transformer of 2 layers: pass temporal_layers = 2, not 0"):
        build_learner(replace(more, temporal_layers=0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train": "prototypes"}, "a new temporal transformer has to learn"),
        ({"frames": 100}, "takes 16 frames, not 100"),
        ({"temporal_layers": -1}, "temporal_layers must not be negative"),
    ],
)
def test_settings_that_cannot_be_leave_nothing(config: TrainConfig, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        train(replace(config, **change))
    assert not Path(config.out).exists()

"""Checkpoints survive saving and loading, and each kind of wrong folder has a clear one-line error."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from model.backbone import Backbone, load_backbone
from model.checkpoint import (
    CheckpointError,
    load_checkpoint,
    load_model,
    load_prototype_head,
    read_checkpoint_config,
    save_checkpoint,
)
from model.prototypes import HeadConfig, PrototypeHead
from tests.support.tiny_clip import write_model


@pytest.fixture
def backbone(tmp_path: Path) -> Backbone:
    return load_backbone(f"local-dir:{write_model(tmp_path / 'clip')}")


@pytest.fixture
def head() -> PrototypeHead:
    return PrototypeHead(HeadConfig(dim=24, prototypes=4, tau=3.0), seed=5)


def edit(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


def test_a_head_comes_back_with_its_backbone(tmp_path: Path, head: PrototypeHead, backbone: Backbone) -> None:
    folder = save_checkpoint(tmp_path / "pau", head, backbone, extra={"recipe": "corpus"})
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "head.safetensors"]
    loaded = load_checkpoint(folder)
    assert loaded.head.config == head.config and loaded.head.fingerprint == head.fingerprint
    assert loaded.backbone.fingerprint == backbone.fingerprint
    assert read_checkpoint_config(folder)["extra"] == {"recipe": "corpus"}
    assert not any(path.name.startswith(".") for path in tmp_path.iterdir())


def test_trained_encoders_are_stored_as_open_clip_reads_them(
    tmp_path: Path, head: PrototypeHead, backbone: Backbone
) -> None:
    before = backbone.fingerprint
    with torch.no_grad():
        backbone.model.logit_scale.add_(0.5)
        backbone.model.text_projection.mul_(1.5)
    folder = save_checkpoint(tmp_path / "pau", head, backbone, with_backbone=True)
    loaded = load_checkpoint(folder)
    assert loaded.backbone.fingerprint != before
    assert loaded.backbone.logit_scale == pytest.approx(backbone.logit_scale)
    torch.testing.assert_close(loaded.backbone.encode_texts(["a dog"]), backbone.encode_texts(["a dog"]))
    assert load_backbone(f"local-dir:{folder}").fingerprint == loaded.backbone.fingerprint


def test_a_name_is_a_checkpoint_or_an_open_clip_model(tmp_path: Path, head: PrototypeHead, backbone: Backbone) -> None:
    folder = save_checkpoint(tmp_path / "pau", head, backbone)
    found = load_model(str(folder)).head
    assert found is not None and found.fingerprint == head.fingerprint
    assert load_model(backbone.spec).head is None
    with pytest.raises(CheckpointError, match=f"local-dir:{tmp_path / 'clip'}"):
        load_model(tmp_path / "clip")  # an open_clip folder without its prefix


def test_a_relative_backbone_is_found_from_any_folder(
    tmp_path: Path, head: PrototypeHead, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_model(tmp_path / "clip")
    monkeypatch.chdir(tmp_path)
    save_checkpoint("pau", head, load_backbone("local-dir:clip"))
    monkeypatch.chdir("/")
    assert load_checkpoint(tmp_path / "pau").backbone.dim == 24


def test_a_head_of_a_trained_checkpoint_finds_its_encoders(
    tmp_path: Path, head: PrototypeHead, backbone: Backbone
) -> None:
    trained = save_checkpoint(tmp_path / "trained", head, backbone, with_backbone=True)
    inner = load_checkpoint(trained).backbone
    other = PrototypeHead(head.config, seed=9)
    fitted = save_checkpoint(tmp_path / "fitted", other, backbone_spec=str(trained), backbone_print=inner.fingerprint)
    assert load_checkpoint(fitted).head.fingerprint == other.fingerprint


def test_a_checkpoint_written_over_its_own_encoders(tmp_path: Path, head: PrototypeHead, backbone: Backbone) -> None:
    trained = save_checkpoint(tmp_path / "trained", head, backbone, with_backbone=True)
    save_checkpoint(trained, head, backbone_spec=str(trained), backbone_print=backbone.fingerprint)
    with pytest.raises(CheckpointError, match="names itself"):
        load_checkpoint(trained)


def test_truncated_and_missing_files(tmp_path: Path, head: PrototypeHead, backbone: Backbone) -> None:
    folder = save_checkpoint(tmp_path / "pau", head, backbone, with_backbone=True)
    weights, encoders = folder / "head.safetensors", folder / "open_clip_model.safetensors"
    whole = weights.read_bytes()
    for size in (0, 7, 100, len(whole) - 1):
        weights.write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match=r"head.safetensors is damaged") as caught:
            load_checkpoint(folder)
        assert "\n" not in str(caught.value)
    weights.unlink()
    with pytest.raises(CheckpointError, match="is missing"):
        load_prototype_head(folder)
    weights.write_bytes(whole)
    encoders.write_bytes(encoders.read_bytes()[:-10])
    with pytest.raises(CheckpointError, match="encoders of checkpoint"):
        load_checkpoint(folder)


def test_weights_of_another_shape(tmp_path: Path, head: PrototypeHead, backbone: Backbone) -> None:
    folder = save_checkpoint(tmp_path / "pau", head, backbone)
    save_file({"visual": torch.zeros(6, 24), "text": torch.zeros(4, 24)}, folder / "head.safetensors")
    with pytest.raises(CheckpointError, match=r"has text 4x24, visual 6x24, but config\.json needs text 4x24"):
        load_checkpoint(folder)


def test_weights_of_another_checkpoint(tmp_path: Path, head: PrototypeHead, backbone: Backbone) -> None:
    folder = save_checkpoint(tmp_path / "pau", head, backbone)
    tensors = load_file(folder / "head.safetensors")
    save_file({name: tensor + 1 for name, tensor in tensors.items()}, folder / "head.safetensors")
    with pytest.raises(CheckpointError, match="not the file"):
        load_checkpoint(folder)


def test_another_backbone(tmp_path: Path, head: PrototypeHead, backbone: Backbone) -> None:
    folder = save_checkpoint(tmp_path / "pau", head, backbone)
    write_model(tmp_path / "clip", seed=3)
    with pytest.raises(CheckpointError, match="made for other weights"):
        load_checkpoint(folder)
    write_model(tmp_path / "clip", embed_dim=12)
    with pytest.raises(CheckpointError, match=r"width 24, but local-dir:.* gives 12"):
        load_checkpoint(folder)
    with pytest.raises(CheckpointError, match="head is for width 24, the backbone has 12"):
        save_checkpoint(tmp_path / "new", head, load_backbone(backbone.spec))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "format None"),
        ('{"format": 99}', "format 99"),
        ('{"format": 1}', "incomplete"),
    ],
)
def test_configurations_that_are_wrong(
    tmp_path: Path, head: PrototypeHead, backbone: Backbone, content: str, message: str
) -> None:
    folder = save_checkpoint(tmp_path / "pau", head, backbone)
    (folder / "config.json").write_text(content)
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(folder)


def test_an_unknown_setting_of_the_head(tmp_path: Path, head: PrototypeHead, backbone: Backbone) -> None:
    folder = save_checkpoint(tmp_path / "pau", head, backbone)
    edit(folder, head={**head.config.to_dict(), "colour": "red"})
    with pytest.raises(CheckpointError, match="unknown setting of a head: colour"):
        load_checkpoint(folder)


def test_a_pickle_in_the_place_of_the_head_is_not_run(tmp_path: Path, head: PrototypeHead, backbone: Backbone) -> None:
    mark = tmp_path / "ran"

    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (mark,))

    folder = save_checkpoint(tmp_path / "pau", head, backbone)
    (folder / "head.safetensors").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(CheckpointError, match="damaged"):
        load_prototype_head(folder)
    assert not mark.exists()


def test_a_failed_save_leaves_the_old_checkpoint(
    tmp_path: Path, head: PrototypeHead, backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_checkpoint(tmp_path / "pau", head, backbone)

    def full(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("model.checkpoint.save_backbone", full)
    with pytest.raises(OSError, match="No space"):
        save_checkpoint(folder, PrototypeHead(head.config, seed=6), backbone, with_backbone=True)
    assert load_checkpoint(folder).head.fingerprint == head.fingerprint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clip", "pau"]


def test_a_full_disk_names_the_file(
    tmp_path: Path, head: PrototypeHead, backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("model.checkpoint.save_file", full)
    with pytest.raises(CheckpointError, match=r"cannot write .*head\.safetensors: .*No space left"):
        save_checkpoint(tmp_path / "head", head, backbone)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clip"]


def test_other_folders_are_not_overwritten(tmp_path: Path, head: PrototypeHead, backbone: Backbone) -> None:
    with pytest.raises(CheckpointError, match="not a checkpoint"):
        save_checkpoint(tmp_path / "clip", head, backbone)
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="is a file"):
        save_checkpoint(tmp_path / "file", head, backbone)
    with pytest.raises(CheckpointError, match="needs its backbone"):
        save_checkpoint(tmp_path / "new", head)
    assert not (tmp_path / "new").exists()

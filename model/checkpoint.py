"""A checkpoint is a folder: `config.json`, `head.safetensors` and, after training end to end, the encoders as well.

The encoders are kept as `open_clip_config.json` and `open_clip_model.safetensors`, so that open_clip itself loads the
same folder as `local-dir:FOLDER`; a head fitted on frozen encoders only names its backbone and keeps the fingerprint
of it. Loading never unpickles, and a folder is written whole under another name and then renamed.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import open_clip
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from model.atomic_folder import written_whole
from model.backbone import LOCAL, Backbone, BackboneError, backbone_fingerprint, load_backbone, one_line
from model.model_errors import ModelError
from model.prototypes import HeadConfig, HeadError, PrototypeHead

FORMAT = 1
CONFIG = "config.json"
HEAD = "head.safetensors"
BACKBONE_CONFIG = "open_clip_config.json"
BACKBONE = "open_clip_model.safetensors"


class CheckpointError(ModelError):
    """A checkpoint that cannot be read, or that belongs to another model."""


@dataclass(frozen=True)
class Checkpoint:
    """A PAU: encoders, head, and the settings it was made with."""

    backbone: Backbone
    head: PrototypeHead
    config: dict[str, Any]


@dataclass(frozen=True)
class Loaded:
    """What a name on the command line stands for: encoders, and a head where it is a checkpoint."""

    backbone: Backbone
    head: PrototypeHead | None


def save_checkpoint(
    folder: str | Path,
    head: PrototypeHead,
    backbone: Backbone | None = None,
    *,
    with_backbone: bool = False,
    backbone_spec: str | None = None,
    backbone_print: str | None = None,
    extra: Mapping[str, Any] | None = None,
    beside: Callable[[Path], None] | None = None,
) -> Path:
    """Write a checkpoint and return its folder; an older one of that name is replaced.

    Either `backbone`, or its `backbone_spec` and fingerprint `backbone_print` where only embeddings are at hand.
    `with_backbone` stores the encoders too (they were trained). `extra` is kept in config.json as it is;
    `beside` writes further files into the folder before it takes its place.
    """
    if backbone is not None:
        backbone_spec = backbone.spec
        # Training changes weights after the fingerprint was first taken.
        backbone_print = backbone_fingerprint(backbone) if with_backbone else backbone.fingerprint
        if backbone.dim != head.config.dim:
            raise CheckpointError(f"the head is for width {head.config.dim}, the backbone has {backbone.dim}")
    if backbone_spec is None or backbone_print is None:
        raise CheckpointError("a checkpoint needs its backbone, or the name and the fingerprint of it")
    config = {
        "format": FORMAT,
        "head": head.config.to_dict(),
        "head_fingerprint": head.fingerprint,
        "backbone": {"spec": absolute(backbone_spec), "fingerprint": backbone_print, "stored": with_backbone},
        "extra": dict(extra or {}),
    }
    check_replaceable(Path(folder))
    with written_whole(Path(folder)) as draft:
        save_tensors(head.state_dict(), draft / HEAD)
        if with_backbone and backbone is not None:
            save_backbone(backbone, draft)
        if beside is not None:
            beside(draft)
        write_json(config, draft / CONFIG)
    return Path(folder)


def absolute(spec: str) -> str:
    """A model on disk by its full path: a checkpoint must work from any folder."""
    path = Path(spec.removeprefix(LOCAL))
    if not spec.startswith(LOCAL) and not (path / CONFIG).is_file():
        return spec
    return spec.removesuffix(str(path)) + str(path.resolve())


def save_backbone(backbone: Backbone, folder: Path) -> None:
    """The encoders as open_clip reads them from a folder, with the files of a tokenizer that has any."""
    save_tensors(backbone.model.state_dict(), folder / BACKBONE)
    if hasattr(backbone.tokenizer, "save_pretrained"):
        backbone.tokenizer.save_pretrained(str(folder))
    write_json(backbone.config, folder / BACKBONE_CONFIG)


def load_checkpoint(folder: str | Path, device: str = "cpu") -> Checkpoint:
    """Encoders and head of a checkpoint; refuses a backbone other than the one the head was made for."""
    folder = Path(folder)
    config = read_config(folder)
    head = load_head(folder, device)
    expected = config["backbone"]
    if not expected["stored"] and Path(expected["spec"]).resolve() == folder.resolve():
        raise CheckpointError(f"{folder} names itself as its backbone: it was written over the model it was made for")
    try:
        if expected["stored"]:
            backbone = load_backbone(f"{LOCAL}{folder}", device)
        else:
            backbone = load_model(expected["spec"], device).backbone
    except BackboneError as error:
        raise CheckpointError(f"the encoders of checkpoint {folder} cannot be loaded: {error}") from error
    check_backbone(folder, config, backbone)
    return Checkpoint(backbone, head, config)


def check_backbone(folder: Path, config: Mapping[str, Any], backbone: Backbone) -> None:
    """Refuse a backbone of another width, or with other weights, than the head was made for."""
    width = config["head"]["dim"]
    if backbone.dim != width:
        raise CheckpointError(
            f"{folder} is for embeddings of width {width}, but {backbone.spec} gives {backbone.dim}: "
            "use the backbone it was made with, or fit new prototypes"
        )
    if backbone.fingerprint != config["backbone"]["fingerprint"]:
        raise CheckpointError(
            f"{folder} was made for other weights than those of {backbone.spec} "
            f"(fingerprint {config['backbone']['fingerprint'][:12]}, found {backbone.fingerprint[:12]})"
        )


def load_head(folder: str | Path, device: str = "cpu") -> PrototypeHead:
    """Only the head of a checkpoint, without touching its encoders."""
    folder = Path(folder)
    config = read_config(folder)
    try:
        head = PrototypeHead(HeadConfig.from_dict(config["head"]))
    except HeadError as error:
        raise CheckpointError(f"{folder / CONFIG}: {error}") from error
    tensors = read_tensors(folder / HEAD)
    expected = {name: tuple(tensor.shape) for name, tensor in head.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if found != expected:
        raise CheckpointError(f"{folder / HEAD} holds {shapes(found)}, but config.json asks for {shapes(expected)}")
    head.load_state_dict(tensors)
    if head.fingerprint != config["head_fingerprint"]:
        raise CheckpointError(f"{folder / HEAD} is not the file that {CONFIG} was written with: save it again")
    return head.to(device).eval()


def load_model(spec: str | Path, device: str = "cpu") -> Loaded:
    """A checkpoint folder, or any open_clip model (which has no head)."""
    folder = Path(spec)
    if (folder / CONFIG).is_file() or (folder.is_dir() and str(spec) not in open_clip.list_models()):
        checkpoint = load_checkpoint(spec, device)
        return Loaded(checkpoint.backbone, checkpoint.head)
    return Loaded(load_backbone(str(spec), device), None)


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a checkpoint, with what the loader relies on."""
    path = folder / CONFIG
    if not path.is_file():
        hint = f"; an open_clip model is written {LOCAL}{folder}" if (folder / BACKBONE_CONFIG).is_file() else ""
        raise CheckpointError(f"{folder} is not a checkpoint: it has no {CONFIG}{hint}")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read: {one_line(error)}") from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        found = config.get("format") if isinstance(config, dict) else None
        raise CheckpointError(f"{path} has format {found!r}; this version reads format {FORMAT}")
    backbone = config.get("backbone")
    complete = isinstance(backbone, dict) and {"spec", "fingerprint", "stored"} <= set(backbone)
    if not complete or not isinstance(config.get("head"), dict) or "head_fingerprint" not in config:
        raise CheckpointError(f"{path} is incomplete: it needs head, head_fingerprint and backbone")
    return config


def read_tensors(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise CheckpointError(f"{path} is missing: the checkpoint is incomplete")
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged or not a safetensors file: {one_line(error)}") from error


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write tensors that own their memory: safetensors refuses shared and strided ones."""
    own = {name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
    try:
        save_file(own, path)
    except (SafetensorError, OSError) as error:  # a full disk has another name here
        raise CheckpointError(f"cannot write {path}: {one_line(error)}") from error


def write_json(value: Any, path: Path) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def check_replaceable(folder: Path) -> None:
    """Refuse to write a checkpoint over what is not one."""
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"{folder} is a file; a checkpoint is a folder")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / CONFIG).is_file():
        raise CheckpointError(f"{folder} exists and is not a checkpoint: name another folder")


def shapes(tensors: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in sorted(tensors.items())) or "nothing"

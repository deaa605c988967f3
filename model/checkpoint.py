"""Save and load checkpoints: folders with `config.json`, `head.safetensors` and, if they were trained, the encoders.

The encoders are stored as `open_clip_config.json` and `open_clip_model.safetensors`, so open_clip itself can load the
folder as `local-dir:FOLDER`; a temporal transformer is in `temporal.safetensors`. A head fitted on frozen encoders
stores only the name and fingerprint of its backbone. Loading never unpickles. A folder is written under another name
and then renamed.
"""

import json
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from model.backbone import TEMPORAL_SETTINGS, Backbone, format_error_line, load_backbone
from model.clip_import import open_clip
from model.model_errors import ModelError
from model.model_names import CONFIG_FILE, LOCAL_PREFIX, BackboneError
from model.prototypes import HeadConfig, HeadError, PrototypeHead
from model.temporal import TEMPORAL

FORMAT = 1
CONFIG = "config.json"
HEAD = "head.safetensors"
BACKBONE = "open_clip_model.safetensors"


class CheckpointError(ModelError):
    """The checkpoint cannot be read or written, or it belongs to another model."""


@dataclass(frozen=True)
class LoadedModel:
    """Encoders, and their head if they come from a checkpoint."""

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
    write_more: Callable[[Path], None] | None = None,
) -> Path:
    """Write a checkpoint, or replace an older one, and return its folder.

    Pass `backbone`, or its `backbone_spec` and fingerprint `backbone_print` if only embeddings are at hand.
    `with_backbone` also stores the encoders, because they were trained. `extra` goes into config.json unchanged.
    `write_more` writes further files into the folder before it is renamed.
    """
    if backbone is not None:
        backbone_spec = backbone.spec
        # Training changes weights after the fingerprint was first computed.
        backbone_print = backbone.compute_fingerprint() if with_backbone else backbone.fingerprint
        if backbone.dim != head.config.dim:
            raise CheckpointError(f"the head is for width {head.config.dim}, the backbone has {backbone.dim}")
    if backbone_spec is None or backbone_print is None:
        raise CheckpointError("a checkpoint needs its backbone, or the name and the fingerprint of it")
    config = {
        "format": FORMAT,
        "head": head.config.to_dict(),
        "head_fingerprint": head.fingerprint,
        "backbone": {"spec": make_spec_absolute(backbone_spec), "fingerprint": backbone_print, "stored": with_backbone},
        "extra": dict(extra or {}),
    }
    check_replaceable(Path(folder))
    with replace_folder(Path(folder)) as draft:
        save_tensors(head.state_dict(), draft / HEAD)
        if with_backbone and backbone is not None:
            save_backbone(backbone, draft)
        if write_more is not None:
            write_more(draft)
        write_json(config, draft / CONFIG)
    return Path(folder)


def make_spec_absolute(spec: str) -> str:
    """Make the path of a model on disk absolute: a checkpoint must load from any working directory."""
    path = Path(spec.removeprefix(LOCAL_PREFIX))
    if not spec.startswith(LOCAL_PREFIX) and not (path / CONFIG).is_file():
        return spec
    return spec.removesuffix(str(path)) + str(path.resolve())


def save_backbone(backbone: Backbone, folder: Path) -> None:
    save_tensors(backbone.model.state_dict(), folder / BACKBONE)
    if hasattr(backbone.tokenizer, "save_pretrained"):
        backbone.tokenizer.save_pretrained(str(folder))
    config = backbone.config
    if backbone.temporal is not None:
        save_tensors(backbone.temporal.state_dict(), folder / TEMPORAL)
        config = {**config, TEMPORAL_SETTINGS: {"heads": backbone.temporal.heads}}
    write_json(config, folder / CONFIG_FILE)


def load_checkpoint(folder: str | Path, device: str = "cpu") -> LoadedModel:
    """Load encoders and head. Rejects a backbone other than the one that the head was made for."""
    folder = Path(folder)
    config = read_checkpoint_config(folder)
    head = load_prototype_head(folder, device)
    expected = config["backbone"]
    try:
        refuse_cycle(folder)
        stored = f"{LOCAL_PREFIX}{folder}" if expected["stored"] else None
        backbone = load_backbone(stored, device) if stored else load_model(expected["spec"], device).backbone
    except (BackboneError, OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise CheckpointError(
            f"the encoders of checkpoint {folder} cannot be loaded: {format_error_line(error)}"
        ) from error
    check_backbone(folder, config, backbone)
    return LoadedModel(backbone, head)


def refuse_cycle(folder: Path) -> None:
    """Reject a checkpoint that names itself as its backbone, also through other checkpoints."""
    chain: set[Path] = set()
    while (folder / CONFIG).is_file():
        if folder.resolve() in chain:
            raise CheckpointError(
                f"{folder} names itself as its backbone: it was written over the model it was made for"
            )
        chain.add(folder.resolve())
        backbone = read_checkpoint_config(folder)["backbone"]
        if backbone["stored"]:
            return
        folder = Path(backbone["spec"])


def check_backbone(folder: Path, config: Mapping[str, Any], backbone: Backbone) -> None:
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


def load_prototype_head(folder: str | Path, device: str = "cpu") -> PrototypeHead:
    folder = Path(folder)
    config = read_checkpoint_config(folder)
    tensors = read_tensors(folder / HEAD)
    try:
        with torch.device("meta"):  # a wrong size in config.json must not cost memory
            expected = format_shapes(PrototypeHead(settings := HeadConfig.from_dict(config["head"])).state_dict())
    except (HeadError, RuntimeError, TypeError) as error:
        raise CheckpointError(f"{folder / CONFIG}: {format_error_line(error)}") from error
    shapes = format_shapes(tensors)
    if shapes != expected:
        raise CheckpointError(f"{folder / HEAD} has {shapes}, but config.json needs {expected}")
    head = PrototypeHead(settings)
    head.load_state_dict(tensors)
    if head.fingerprint != config["head_fingerprint"]:
        raise CheckpointError(f"{folder / HEAD} is not the file that {CONFIG} was written with: save it again")
    return head.to(device).eval()


def load_model(spec: str | Path, device: str = "cpu") -> LoadedModel:
    """Load a checkpoint folder, or any open_clip model (which has no head)."""
    folder = Path(spec)
    if (folder / CONFIG).is_file() or (folder.is_dir() and str(spec) not in open_clip.list_models()):
        return load_checkpoint(spec, device)
    return LoadedModel(load_backbone(str(spec), device), None)


def read_checkpoint_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    if not path.is_file():
        hint = f"; an open_clip model is written {LOCAL_PREFIX}{folder}" if (folder / CONFIG_FILE).is_file() else ""
        raise CheckpointError(f"{folder} is not a checkpoint: it has no {CONFIG}{hint}")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {format_error_line(error)}") from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        number = config.get("format") if isinstance(config, dict) else None
        raise CheckpointError(f"{path} has format {number!r}; this version reads format {FORMAT}")
    backbone = config.get("backbone")
    fields = backbone if isinstance(backbone, dict) else {}
    complete = "stored" in fields and all(isinstance(fields.get(name), str) for name in ("spec", "fingerprint"))
    if not complete or not isinstance(config.get("head"), dict) or "head_fingerprint" not in config:
        raise CheckpointError(f"{path} is incomplete: it needs head, head_fingerprint and backbone")
    return config


def read_tensors(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise CheckpointError(f"{path} is missing: the checkpoint is incomplete")
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged or not a safetensors file: {format_error_line(error)}") from error


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write copies of the tensors: safetensors refuses shared and strided memory."""
    copies = {name: t.detach().cpu().clone(memory_format=torch.contiguous_format) for name, t in tensors.items()}
    try:
        save_file(copies, path)
    except (SafetensorError, OSError) as error:  # a full disk raises SafetensorError
        raise CheckpointError(f"cannot write {path}: {format_error_line(error)}") from error


def write_json(value: Any, path: Path) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def check_replaceable(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"{folder} is a file; a checkpoint is a folder")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / CONFIG).is_file():
        raise CheckpointError(f"{folder} exists and is not a checkpoint: name another folder")


def format_shapes(tensors: Mapping[str, Tensor]) -> str:
    return ", ".join(f"{name} {'x'.join(map(str, t.shape))}" for name, t in sorted(tensors.items())) or "nothing"


@contextmanager
def replace_folder(folder: Path) -> Iterator[Path]:
    """Yield a draft folder that replaces `folder` at the end, or is deleted on an error.

    A full folder cannot be replaced in one step. The complete draft is renamed to `.NAME.MARK.new`, the old folder is
    renamed, then the new one takes its name. A kill between two steps leaves at least one complete folder, which
    `recover_folder` restores.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    mark = uuid.uuid4().hex[:8]
    draft, new, old = (folder.with_name(f".{folder.name}.{mark}.{suffix}") for suffix in ("draft", "new", "old"))
    draft.mkdir()
    try:
        yield draft
        draft.rename(new)
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
    finally:
        if old.exists() and not folder.exists():
            old.rename(folder)
        for leftover in (draft, new, old):
            shutil.rmtree(leftover, ignore_errors=True)


def recover_folder(folder: Path) -> None:
    """Restore `folder` after a kill, from the new version if that is complete, and remove leftovers."""
    for suffix in ("new", "old"):
        for version in sorted(folder.parent.glob(f".{folder.name}.*.{suffix}")):
            if not folder.exists():
                version.rename(folder)
    for suffix in ("draft", "new", "old"):
        for leftover in folder.parent.glob(f".{folder.name}.*.{suffix}"):
            shutil.rmtree(leftover, ignore_errors=True)

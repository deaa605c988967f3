"""Reads checkpoints of the authors' released program (leolee99/PAU) and turns them into ours: `auditor import-pau`.

Both of its programs store CLIP in OpenAI's layout (`clip.*`) and two banks of prototypes; the video program adds a
temporal transformer and parameters that it never uses. Weights are read without running pickled code. All sizes come
from the tensors; the number of attention heads and tau are not stored.
"""

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from model.backbone import Backbone, format_error_line
from model.checkpoint import check_replaceable, save_checkpoint
from model.model_errors import ModelError
from model.prototypes import HeadConfig, PrototypeHead
from model.temporal import HEAD_WIDTH, TemporalTransformer
from model.training.trainable import build_backbone

CLIP = "clip."
BLOCKS = "resblocks."
PROTOTYPES = {"v_prototype": "visual", "t_prototype": "text"}
POSITIONS, TRANSFORMER = "frame_position_embeddings.weight", "transformerClip."
# Parameters of the video program that take part in nothing.
UNUSED = frozenset(
    {"global_mat_weight", "local_mat_weight", "word_logit_weight", "frame_logit_weight"}
    | {"word_mat_weight", "word_mat_weight2", "frame_mat_weight", "frame_mat_weight2"}
)
# Tensors that give the sizes of everything, with their dimensions.
SIZES = {
    "clip.visual.conv1.weight": 4,
    "clip.visual.positional_embedding": 2,
    "clip.text_projection": 2,
    "clip.positional_embedding": 2,
    "clip.token_embedding.weight": 2,
    "clip.logit_scale": 0,
    "v_prototype": 2,
}
SHOWN_KEYS = 3


class ReleasedCheckpointError(ModelError):
    """A file that is not a checkpoint of the released program."""


@dataclass(frozen=True, slots=True)
class ImportedCheckpoint:
    """What an import wrote."""

    layout: str  # "video" or "image"
    backbone: Backbone
    head: PrototypeHead
    dropped: list[str]  # keys that the released program never uses


def import_checkpoint(path: Path, out: Path, tau: float = 5.0, head_width: int = HEAD_WIDTH) -> ImportedCheckpoint:
    """Write the checkpoint `out` with the weights of a released one; nothing is written if anything is wrong."""
    check_replaceable(out)
    tensors = read_weights(path)
    dropped = sorted(UNUSED & set(tensors))
    used = {name: tensor for name, tensor in tensors.items() if name not in UNUSED}
    video = bool(dropped) or POSITIONS in used or any(name.startswith(TRANSFORMER) for name in used)
    try:
        backbone, head = build_model(str(path), used, tau, head_width, video=video)
    except ReleasedCheckpointError as error:
        raise ReleasedCheckpointError(f"{path} is not a checkpoint of the released program: {error}") from error
    layout = "video" if video else "image"
    extra = {"imported": {"file": path.name, "layout": layout, "head_width": head_width}}
    save_checkpoint(out, head, backbone, with_backbone=True, extra=extra)
    return ImportedCheckpoint(layout, backbone, head, dropped)


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a file by key, without the wrappers of the image program and of distributed training."""
    try:
        with warnings.catch_warnings(action="ignore"):  # about pickles that are refused anyway
            loaded = load_file(path) if path.suffix == ".safetensors" else torch.load(path, "cpu", weights_only=True)
    except Exception as error:  # torch's reader raises a dozen types
        reason = f"it is damaged, or holds more than weights: {format_error_line(error, 120)}"
        raise ReleasedCheckpointError(f"{path} cannot be read: {reason}") from error
    content: Any = loaded
    if isinstance(content, Mapping) and isinstance(content.get("state_dict"), Mapping):
        content = content["state_dict"]
    if not isinstance(content, Mapping) or not content:
        raise ReleasedCheckpointError(f"{path} holds no weights by key")
    tensors: dict[str, Tensor] = {}
    for full, tensor in content.items():
        name = str(full).removeprefix("module.")
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            raise ReleasedCheckpointError(f"{path}: {full} is not a tensor of weights")
        if name in tensors:
            raise ReleasedCheckpointError(f"{path} has {name} twice, with and without the prefix module.")
        tensors[name] = tensor.float()
    return tensors


def build_model(
    spec: str, tensors: Mapping[str, Tensor], tau: float, head_width: int, *, video: bool
) -> tuple[Backbone, PrototypeHead]:
    """Encoders and head with these weights. Every key that is missing, unknown or misshapen is an error."""
    refuse_keys("misses", (name for name in SIZES if name not in tensors))
    refuse_keys("misshapen", (describe(tensors, name) for name, count in SIZES.items() if tensors[name].ndim != count))
    backbone = build_backbone(derive_config(tensors, head_width), spec, "cpu")
    expected: dict[str, Tensor] = {f"{CLIP}{name}": t for name, t in backbone.model.state_dict().items()}
    head = build_head(tensors, backbone, tau)
    expected |= {name: getattr(head, bank) for name, bank in PROTOTYPES.items()}
    if video:
        backbone.temporal = derive_temporal(tensors, backbone.dim, head_width)
        expected |= {rename_temporal(name): t for name, t in backbone.temporal.state_dict().items()}
    refuse_keys("misses", (name for name in expected if name not in tensors))
    refuse_keys("has the unknown", (name for name in tensors if name not in expected))
    shapes = {name: tuple(tensor.shape) for name, tensor in expected.items()}
    wrong = (name for name, shape in shapes.items() if tuple(tensors[name].shape) != shape)
    refuse_keys("misshapen", (f"{describe(tensors, name)}, not {format_shape(shapes[name])}" for name in wrong))
    refuse_keys("not finite", (name for name, tensor in tensors.items() if not torch.isfinite(tensor).all()))
    with torch.no_grad():
        for name, tensor in expected.items():
            tensor.copy_(tensors[name])
    return backbone, head


def derive_config(tensors: Mapping[str, Tensor], head_width: int) -> dict[str, Any]:
    """open_clip's configuration of a CLIP ViT in OpenAI's layout."""
    width, _, patch, _ = tensors["clip.visual.conv1.weight"].shape
    grid = math.isqrt(len(tensors["clip.visual.positional_embedding"]) - 1)
    text_width, dim = tensors["clip.text_projection"].shape
    for part, size in (("clip.visual", width), ("clip.transformer", text_width)):
        if head_width < 1 or size % head_width or not size:
            raise ReleasedCheckpointError(
                f"the width {size} of {part} is not a multiple of the head width {head_width}"
            )
    vision = {"image_size": max(1, grid) * patch, "layers": count_blocks(tensors, "clip.visual.transformer.")}
    text = {"context_length": len(tensors["clip.positional_embedding"]), "width": text_width}
    text |= {"vocab_size": len(tensors["clip.token_embedding.weight"]), "heads": text_width // head_width}
    return {
        "model_cfg": {
            "embed_dim": dim,
            "quick_gelu": True,
            "vision_cfg": {**vision, "width": width, "head_width": head_width, "patch_size": patch},
            "text_cfg": {**text, "layers": count_blocks(tensors, "clip.transformer.")},
        },
        "preprocess_cfg": {},  # open_clip's defaults are CLIP's
    }


def count_blocks(tensors: Iterable[str], prefix: str) -> int:
    start = f"{prefix}{BLOCKS}"
    return len({name.removeprefix(start).split(".")[0] for name in tensors if name.startswith(start)})


def build_head(tensors: Mapping[str, Tensor], backbone: Backbone, tau: float) -> PrototypeHead:
    scale = float(tensors["clip.logit_scale"].exp())
    return PrototypeHead(HeadConfig(backbone.dim, len(tensors["v_prototype"]), tau=tau, scale=scale))


def derive_temporal(tensors: Mapping[str, Tensor], width: int, head_width: int) -> TemporalTransformer:
    layers = count_blocks(tensors, TRANSFORMER)
    refuse_keys(
        "misses", [name for name in (POSITIONS,) if name not in tensors] + ([] if layers else [TRANSFORMER + "*"])
    )
    return TemporalTransformer(width, layers, max(1, width // head_width), len(tensors[POSITIONS]))


def rename_temporal(name: str) -> str:
    return POSITIONS if name == "positions" else f"{TRANSFORMER}{name}"


def refuse_keys(problem: str, names: Iterable[str]) -> None:
    if wrong := list(names):
        more = f" and {len(wrong) - SHOWN_KEYS} more keys" if len(wrong) > SHOWN_KEYS else ""
        verb = f"it {problem}" if problem.startswith(("misses", "has")) else f"{problem}:"
        raise ReleasedCheckpointError(f"{verb} {', '.join(wrong[:SHOWN_KEYS])}{more}")


def describe(tensors: Mapping[str, Tensor], name: str) -> str:
    return f"{name} {format_shape(tuple(tensors[name].shape))}"


def format_shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "number"

"""Turns checkpoints of the authors' released program (leolee99/PAU) into ours: `auditor import-pau`.

Both of its programs store CLIP in OpenAI's layout (`clip.*`) and two banks of prototypes; the video program adds a
temporal transformer and parameters that it never uses. Sizes come from the tensors; heads and tau are not stored.
"""

import math
import warnings
from collections.abc import Iterable, Mapping
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

POSITIONS, TRANSFORMER = "frame_position_embeddings.weight", "transformerClip."
UNUSED = frozenset(f"{name}_weight" for name in ("global_mat", "local_mat", "word_logit", "word_mat", "frame_logit"))
UNUSED |= {"frame_mat_weight", "word_mat_weight2", "frame_mat_weight2"}
# Tensors that give the sizes of everything, with their dimensions.
SIZES = {"clip.visual.conv1.weight": 4, "clip.visual.positional_embedding": 2, "clip.text_projection": 2}
SIZES |= {"clip.positional_embedding": 2, "clip.token_embedding.weight": 2, "clip.logit_scale": 0, "v_prototype": 2}
SHOWN_KEYS = 3


class ReleasedCheckpointError(ModelError):
    """A file that is not a checkpoint of the released program."""


def import_checkpoint(path: Path, out: Path, tau: float = 5.0, head_width: int = HEAD_WIDTH) -> dict[str, Any]:
    """Write the checkpoint `out` with the weights of a released one, and return facts about it.

    Nothing is written if anything is wrong.
    """
    check_replaceable(out)
    tensors = read_weights(path)
    dropped = sorted(UNUSED & tensors.keys())
    used = {name: tensor for name, tensor in tensors.items() if name not in UNUSED}
    video = bool(dropped) or any(name.startswith((POSITIONS, TRANSFORMER)) for name in used)
    try:
        backbone, head = build_model(str(path), used, tau, head_width, video=video)
    except ReleasedCheckpointError as error:
        raise ReleasedCheckpointError(f"{path} is not a checkpoint of the released program: {error}") from error
    facts = {
        "layout": "video" if video else "image",
        "dim": backbone.dim,
        "prototypes": head.config.prototypes,
        "temporal_layers": backbone.temporal.layers if backbone.temporal else 0,
        "vocabulary": len(tensors["clip.token_embedding.weight"]),
        "dropped": dropped,
    }
    save_checkpoint(out, head, backbone, with_backbone=True, extra={"imported": {"file": path.name, **facts}})
    return facts


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a file by key, without the wrappers of the image program and of distributed training."""
    content: Any
    try:
        with warnings.catch_warnings(action="ignore"):  # about pickles that are refused anyway
            content = load_file(path) if path.suffix == ".safetensors" else torch.load(path, "cpu", weights_only=True)
    except Exception as error:  # torch's reader raises a dozen types
        reason = f"it is damaged, or holds more than weights: {format_error_line(error, 120)}"
        raise ReleasedCheckpointError(f"{path} cannot be read: {reason}") from error
    if isinstance(content, Mapping) and isinstance(content.get("state_dict"), Mapping):
        content = content["state_dict"]
    tensors: dict[str, Tensor] = {}
    for full, tensor in content.items() if isinstance(content, Mapping) else [("the content", None)]:
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
    refuse_keys("it misses", SIZES.keys() - tensors.keys())
    refuse_keys(
        "misshapen:", (f"{n} {list(tensors[n].shape)}" for n, count in SIZES.items() if tensors[n].ndim != count)
    )
    backbone = build_backbone(derive_config(tensors, head_width), spec, "cpu")
    scale = float(tensors["clip.logit_scale"].exp())
    head = PrototypeHead(HeadConfig(backbone.dim, len(tensors["v_prototype"]), tau=tau, scale=scale))
    expected: dict[str, Tensor] = {f"clip.{name}": t for name, t in backbone.model.state_dict().items()}
    expected |= {"v_prototype": head.visual, "t_prototype": head.text}
    if video:
        layers = count_layers(tensors, TRANSFORMER)
        refuse_keys("it misses", {POSITIONS, *([] if layers else [f"{TRANSFORMER}*"])} - tensors.keys())
        heads = max(1, backbone.dim // head_width)
        backbone.temporal = TemporalTransformer(backbone.dim, layers, heads, len(tensors[POSITIONS]))
        weights = backbone.temporal.state_dict()
        expected |= {POSITIONS: weights.pop("positions"), **{f"{TRANSFORMER}{name}": t for name, t in weights.items()}}
    refuse_keys("it misses", expected.keys() - tensors.keys())
    refuse_keys("it has the unknown", tensors.keys() - expected.keys())
    shapes = {name: (list(tensors[name].shape), list(tensor.shape)) for name, tensor in expected.items()}
    refuse_keys("misshapen:", (f"{n} {shape}, not {right}" for n, (shape, right) in shapes.items() if shape != right))
    refuse_keys("not finite:", (name for name, tensor in tensors.items() if not torch.isfinite(tensor).all()))
    with torch.no_grad():
        for name, tensor in expected.items():
            tensor.copy_(tensors[name])
    return backbone, head


def derive_config(tensors: Mapping[str, Tensor], head_width: int) -> dict[str, Any]:
    """open_clip's configuration of a CLIP ViT in OpenAI's layout. Its preprocessing is open_clip's default."""
    width, _, patch, _ = tensors["clip.visual.conv1.weight"].shape
    grid = math.isqrt(max(2, len(tensors["clip.visual.positional_embedding"])) - 1)
    text_width, dim = tensors["clip.text_projection"].shape
    for part, size in (("clip.visual", width), ("clip.transformer", text_width)):
        if head_width < 1 or size < 1 or size % head_width:
            raise ReleasedCheckpointError(
                f"the width {size} of {part} is not a multiple of the head width {head_width}"
            )
    vision = {"image_size": grid * patch, "patch_size": patch, "width": width, "head_width": head_width}
    text = {"context_length": len(tensors["clip.positional_embedding"]), "width": text_width}
    text |= {"vocab_size": len(tensors["clip.token_embedding.weight"]), "heads": text_width // head_width}
    vision["layers"] = count_layers(tensors, "clip.visual.transformer.")
    text["layers"] = count_layers(tensors, "clip.transformer.")
    model = {"embed_dim": dim, "quick_gelu": True, "vision_cfg": vision, "text_cfg": text}
    return {"model_cfg": model, "preprocess_cfg": {}}


def count_layers(names: Iterable[str], prefix: str) -> int:
    start = f"{prefix}resblocks."
    return len({name.removeprefix(start).split(".")[0] for name in names if name.startswith(start)})


def refuse_keys(problem: str, names: Iterable[str]) -> None:
    if wrong := sorted(names):
        more = f" and {len(wrong) - SHOWN_KEYS} more keys" if len(wrong) > SHOWN_KEYS else ""
        raise ReleasedCheckpointError(f"{problem} {', '.join(wrong[:SHOWN_KEYS])}{more}")

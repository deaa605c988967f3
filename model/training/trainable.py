"""The model before the first step: its weights, which of them are trainable, and the training mode of its layers."""

import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from model.backbone import Backbone, format_error_line, load_backbone, make_backbone, quiet_loading
from model.checkpoint import CheckpointError, load_model, load_prototype_head
from model.clip_import import open_clip
from model.model_names import LOCAL_PREFIX, BackboneError
from model.prototypes import HeadConfig, PrototypeHead
from model.temporal import start_temporal
from model.text_tower import trim_padding
from model.training.training_config import ConfigError, TrainConfig

# Projections into the shared embedding space, by open_clip's names: its own ViT and ResNet, timm trunks, text towers.
PROJECTIONS = re.compile(r"(visual\.(proj|head|attnpool)|text_projection|text\.(text_projection|proj))\b")
SCALES = ("logit_scale", "logit_bias")  # of the loss, not of a tower
# The first layers of both towers of a CLIP ViT, which the released program does not train.
FIRST_LAYERS = re.compile(
    r"(token_embedding|positional_embedding|visual\.(class_embedding|positional_embedding|conv1|ln_pre))\b"
)


def start_backbone(config: TrainConfig, device: str) -> Backbone:
    if config.model.endswith(".json"):
        return build_backbone(read_model_config(Path(config.model)), config.model, device, config.seed)
    if not config.model.startswith(LOCAL_PREFIX) and Path(config.model).is_dir():
        return load_model(config.model, device).backbone
    return load_backbone(config.model, device, config.seed)


def start_head(config: TrainConfig, backbone: Backbone) -> PrototypeHead:
    if config.head is None:
        kind = config.prototypes, config.init, config.evidence, config.tau, config.evidence_scale
        settings = HeadConfig(backbone.dim, *kind, clip_evidence="frames")
        return PrototypeHead(settings, config.seed).to(backbone.device)
    head = load_prototype_head(config.head, str(backbone.device))
    if head.config.dim != backbone.dim:
        raise CheckpointError(
            f"the prototypes of {config.head} are for embeddings of width {head.config.dim}, "
            f"but {backbone.spec} gives {backbone.dim}: use the backbone they were made with, or leave out head"
        )
    return head


def add_temporal(config: TrainConfig, backbone: Backbone) -> None:
    """Give the model the temporal transformer of the settings, or check the one that it has."""
    if backbone.temporal is None and config.temporal_layers:
        if config.train == "prototypes":
            raise ConfigError("a new temporal transformer has to learn: train all, layers, text or projections")
        backbone.temporal = start_temporal(backbone.model, backbone.dim, config.temporal_layers, config.seed)
    if backbone.temporal is None:
        return
    if backbone.temporal.layers != config.temporal_layers:
        raise ConfigError(
            f"{config.model} has a temporal transformer of {backbone.temporal.layers} layers: "
            f"pass temporal_layers = {backbone.temporal.layers}, not {config.temporal_layers}"
        )
    backbone.temporal.check_frame_count(config.frames)
    backbone.temporal.requires_grad_(config.train != "prototypes")


def build_backbone(config: dict[str, Any], spec: str, device: str, seed: int = 0) -> Backbone:
    """A model with random weights from an open_clip configuration: `model_cfg` and an optional `preprocess_cfg`."""
    with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng(devices=[]), quiet_loading():
        (Path(folder) / "open_clip_config.json").write_text(json.dumps(config), encoding="utf-8")
        torch.manual_seed(seed)
        try:
            model = open_clip.create_model(f"{LOCAL_PREFIX}{folder}", load_weights=False, pretrained_text=False)
            tokenizer = open_clip.get_tokenizer(f"{LOCAL_PREFIX}{folder}")
        except Exception as error:  # a wrong key in a configuration raises many kinds of errors inside open_clip
            raise BackboneError(f"open_clip cannot build the model of {spec}: {format_error_line(error)}") from error
    return make_backbone(spec, model.to(device), tokenizer, config["model_cfg"], pretrained=False)


def read_model_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BackboneError(f"{path} cannot be read as a model configuration: {format_error_line(error)}") from error
    if isinstance(config, dict) and "embed_dim" in config:
        config = {"model_cfg": config}
    if not isinstance(config, dict) or "embed_dim" not in config.get("model_cfg", {}):
        raise BackboneError(f"{path} has no model_cfg with an embed_dim")
    return {"preprocess_cfg": {}, **config}


def select_trainable_weights(backbone: Backbone, part: str) -> None:
    """Make `part` of the backbone trainable.

    That is all, layers (not the first), projections, text (not the image tower) or prototypes (nothing).
    """
    for name, parameter in backbone.model.named_parameters():
        parameter.requires_grad = (
            part == "all"
            or (part == "layers" and not FIRST_LAYERS.match(name.removeprefix("text.")))
            or (part == "text" and not name.startswith("visual."))
            or (part == "projections" and bool(PROJECTIONS.match(name)))
            or (part != "prototypes" and name in SCALES)
        )
    if part == "projections" and not is_tower_trainable(backbone.model, visual=True):
        raise ConfigError(f"no projection of the image tower of {backbone.spec} is known; train all or text")
    set_training_modes(backbone)


def set_training_modes(backbone: Backbone) -> None:
    """Set modules with trainable weights to training mode, except batch normalization of a pretrained model.

    Its statistics are better than those of a batch, or of a chunk of one, from a fine-tuning corpus.
    """
    model = backbone.model
    model.eval()
    for module in model.modules():
        parameters = list(module.parameters())
        if parameters and all(parameter.requires_grad for parameter in parameters):
            module.train()
    if backbone.pretrained:
        for module in model.modules():
            if isinstance(module, _BatchNorm):
                module.eval()


def mixes_samples(model: nn.Module) -> bool:
    """Whether an embedding depends on the other samples of its batch, which then cannot be encoded in chunks."""
    return any(isinstance(module, _BatchNorm) and module.training for module in model.modules())


def is_tower_trainable(model: nn.Module, visual: bool) -> bool:
    return any(
        parameter.requires_grad
        for name, parameter in model.named_parameters()
        if name.startswith("visual.") == visual and name not in SCALES
    )


def tokenize(backbone: Backbone, captions: Sequence[str], limit: int) -> Tensor:
    """Tokens on the model's device; a tokenizer that pads with zeros gives at most `limit` of each caption."""
    if not isinstance(backbone.tokenizer, open_clip.SimpleTokenizer):
        return backbone.tokenize(captions)
    context = int(backbone.tokenizer.context_length)
    tokens: Tensor = backbone.tokenizer(list(captions), context_length=min(limit, context))
    tokens = trim_padding(tokens) if backbone.trims else F.pad(tokens, (0, context - tokens.shape[1]))
    return tokens.to(backbone.device)


def embed_frames(backbone: Backbone, pixels: Tensor, mask: Tensor, padded: int = 0) -> Tensor:
    """Unit vectors (B, J, D) of the frames, or their features for a temporal transformer; zero for padding.

    With `padded`, every clip has this many frames, and padding is encoded as the released program does: its pixels are
    zero after normalization.
    """
    flat = backbone.embed_pixels(pixels[mask])  # (sum of mask, D)
    mask = mask.to(flat.device)
    blank = flat.new_zeros(1, flat.shape[1])
    if padded:
        mask = F.pad(mask, (0, padded - mask.shape[1]))
        blank = backbone.model.encode_image(flat.new_zeros(1, 3, *backbone.pixels.size)).float()
    if backbone.temporal is None:
        flat, blank = F.normalize(flat, dim=-1), F.normalize(blank, dim=-1)
    return blank.expand(*mask.shape, -1).masked_scatter(mask[..., None], flat)

"""Load any open_clip model by name, tag, hub or folder, and encode images and captions with it.

`load_backbone("ViT-B-32@openai")`, `load_backbone("hf-hub:org/repo")`, `load_backbone("local-dir:PATH")`;
`load_backbone("ViT-B-32")` has random weights (drawn from a fixed seed), and its `Backbone.pretrained` is False.
Weights are read as safetensors or by torch's weights-only reader: nothing is ever unpickled.
"""

import json
import logging
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.clip_import import open_clip
from model.encoding.device_calls import DeviceCalls
from model.encoding.word_tokens import WordTokenizer
from model.fingerprint import compute_fingerprint
from model.model_names import (
    CONFIG_FILE,
    HUB_PREFIX,
    LOCAL_PREFIX,
    BackboneError,
    check_model_folder,
    explain_unknown_model,
)
from model.pixels import PixelSpec
from model.precision import NumericalPrecision, Precision
from model.temporal import TemporalTransformer, load_temporal
from model.text_tower import can_trim, encode_trimmed_tokens, find_causal_tower, group_by_width, trim_padding

TEMPORAL_SETTINGS = "temporal_cfg"  # in it, beside open_clip's own model_cfg and preprocess_cfg
# Settings about where weights come from, not about the model: excluded from fingerprints and saved configurations.
DOWNLOAD_SETTINGS = ("timm_model_pretrained", "hf_model_pretrained")


@dataclass
class Backbone:
    """An open_clip model with its tokenizer and preprocessing."""

    spec: str
    model: Any  # the open_clip nn.Module
    tokenizer: Any
    pixels: PixelSpec
    config: dict[str, Any]  # {"model_cfg": ..., "preprocess_cfg": ...}, as in open_clip_config.json
    pretrained: bool  # False: random weights, only good for training from scratch
    trims: bool = False  # whether padding is cut from batches of captions
    precision: NumericalPrecision = field(default_factory=NumericalPrecision)  # of encoding; training has its own
    temporal: TemporalTransformer | None = None  # of a clip's vector; None: the mean of its frames

    @property
    def dim(self) -> int:
        return int(self.config["model_cfg"]["embed_dim"])

    @property
    def logit_scale(self) -> float:
        return float(self.model.logit_scale.detach().exp().item())

    @property
    def encodes_media(self) -> bool:
        return True

    def describe(self) -> dict[str, Any]:
        """The identity of the model, as the manifest of an audit stores it."""
        identity = {name: getattr(self, name) for name in ("spec", "fingerprint", "dim", "logit_scale")}
        return {**identity, "pixels": self.pixels.to_dict()}

    @property
    def device(self) -> torch.device:
        return self.model.logit_scale.device  # type: ignore[no-any-return]

    @cached_property
    def device_calls(self) -> DeviceCalls:
        return DeviceCalls(self.device)

    @cached_property
    def fingerprint(self) -> str:
        """That of the weights at the time of the first access."""
        return self.compute_fingerprint()

    def compute_fingerprint(self) -> str:
        """Fingerprint of the current weights, the architecture and the preprocessing, wherever they came from."""
        config = {"model": self.config["model_cfg"], "pixels": self.pixels.to_dict()}
        tensors = self.model.state_dict()
        if self.temporal is not None:
            config["temporal"] = {"heads": self.temporal.heads}
            tensors |= {f"temporal.{name}": tensor for name, tensor in self.temporal.state_dict().items()}
        return compute_fingerprint(tensors, config)

    def set_precision(self, precision: Precision, *, compiled: bool = False) -> None:
        """Encode in this precision from now on. The first samples are checked against float32."""
        self.precision = NumericalPrecision(precision, compiled)
        if self.device_calls.on_gpu:
            self.model.to(memory_format=torch.channels_last)  # fastest for convolutions

    @cached_property
    def _pixel_statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of pixels (1, 3, 1, 1), copied to the device only once."""
        mean, std = (torch.tensor(v, device=self.device).view(1, 3, 1, 1) for v in (self.pixels.mean, self.pixels.std))
        return mean, std

    def tokenize(self, captions: Sequence[str]) -> Tensor:
        """Tokens (B, L) on the model's device. L is the length of the longest caption if the text tower allows it."""
        return self.trim(self.tokens(captions))

    def tokens(self, captions: Sequence[str]) -> Tensor:
        """Tokens (B, L) of captions at full width, on the CPU. Thread-safe."""
        return self._words.tokenize(captions)

    @cached_property
    def _words(self) -> WordTokenizer:
        return WordTokenizer(self.tokenizer)

    @cached_property
    def context_length(self) -> int:
        """Tokens of a text that the tower reads, with start and end."""
        return int(self.tokens([""]).shape[1])

    def count_tokens(self, text: str) -> int:
        """Tokens of a text, with start and end; one more than the context if only that much is known."""
        encode = getattr(self.tokenizer, "encode", None)
        if encode is not None:
            return len(encode(text)) + 2
        [(count, cut)] = self.token_counts(self.tokens([text]), [text])
        return count + cut

    def token_counts(self, tokens: Tensor, captions: Sequence[str]) -> list[tuple[int, bool]]:
        """For each caption, the number of tokens that the tower sees (with start and end), and whether it is cut."""
        width = tokens.shape[1]
        padding = (tokens.flip(1) == tokens[:, -1:].flip(1)).int().cumprod(dim=1).sum(dim=1)  # equal tokens at the end
        counts = torch.where(padding > 1, width - padding, width).tolist()
        encode = getattr(self.tokenizer, "encode", None)
        return [
            (count, count >= width and (encode is None or len(encode(caption)) + 2 > width))
            for count, caption in zip(counts, captions, strict=True)
        ]

    def trim(self, tokens: Tensor) -> Tensor:
        """Cut the common padding of tokens (B, L), and move them to the model's device."""
        return self.device_calls.upload(trim_padding(tokens) if self.trims else tokens)

    def embed_tokens(self, tokens: Tensor) -> Tensor:
        """L2-normalized embeddings (B, D) of tokens (B, L), with gradients."""
        if not self.trims:
            features = self.model.encode_text(tokens)
        else:
            features = encode_trimmed_tokens(find_causal_tower(self.model), tokens)
        return F.normalize(features.float(), dim=-1)

    def embed_pixels(self, pixels: Tensor) -> Tensor:
        """Features (B, D) of uint8 pixels (B, H, W, 3) on any device, with gradients; not normalized."""
        x = self.device_calls.upload(pixels).permute(0, 3, 1, 2).float().div(255.0)
        mean, std = self._pixel_statistics
        x = ((x - mean) / std).contiguous(memory_format=torch.channels_last)
        return self.model.encode_image(x).float()  # type: ignore[no-any-return]

    def encode_images(self, pixels: npt.NDArray[np.uint8] | Tensor) -> Tensor:
        """L2-normalized float32 embeddings (B, D) of pixels (B, H, W, 3) as made by `model.pixels.fit_image`."""
        return F.normalize(self.encode_features(pixels), dim=-1)

    def encode_frames(self, pixels: npt.NDArray[np.uint8] | Tensor) -> Tensor:
        """The input of a clip's vector: features for the temporal transformer, or unit vectors if there is none."""
        return self.encode_images(pixels) if self.temporal is None else self.encode_features(pixels)

    def encode_features(self, pixels: npt.NDArray[np.uint8] | Tensor) -> Tensor:
        """Features (B, D) in float32 of pixels (B, H, W, 3), not normalized."""
        pixels = torch.from_numpy(np.ascontiguousarray(pixels)) if isinstance(pixels, np.ndarray) else pixels
        expected = (*self.pixels.size, 3)
        if pixels.ndim != 4 or tuple(pixels.shape[1:]) != expected or pixels.dtype != torch.uint8:
            raise BackboneError(
                f"{self.spec} encodes uint8 pixels of shape (B, {', '.join(map(str, expected))}), "
                f"not {str(pixels.dtype).removeprefix('torch.')} of shape {tuple(pixels.shape)}"
            )
        if len(pixels) == 0:
            return torch.zeros(0, self.dim, device=self.device)
        with evaluation_mode(self.model):
            return self.precision.run("images", self.embed_pixels, pixels, self.device)

    def encode_texts(self, captions: Sequence[str], batch: int = 256, *, by_length: bool = True) -> Tensor:
        """L2-normalized float32 embeddings (B, D) of captions. `by_length` encodes captions of like length together."""
        if not captions:
            return torch.zeros(0, self.dim, device=self.device)
        return self.encode_tokens(self.tokens(captions), batch, by_length=by_length)

    def encode_tokens(self, tokens: Tensor, batch: int = 256, *, by_length: bool = True) -> Tensor:
        """The same for tokens (B, L) at full width. Captions of like length need little padding."""
        result = torch.zeros(len(tokens), self.dim, device=self.device)
        groups = group_by_width(tokens) if by_length and self.trims else [torch.arange(len(tokens))]
        with evaluation_mode(self.model):
            for rows in (rows for group in groups for rows in torch.split(group, batch)):
                vectors = self.precision.run("captions", self.embed_tokens, self.trim(tokens[rows]), self.device)
                result[self.device_calls.upload(rows)] = vectors
        return result


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Run without gradients and in evaluation mode, and restore each module's mode afterwards."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def resolve_device(name: str) -> str:
    """torch's name of a device. `auto` is the current GPU, or the CPU if there is none."""
    if name != "auto":
        return name
    return f"cuda:{torch.cuda.current_device()}" if torch.cuda.is_available() else "cpu"


def load_backbone(spec: str, device: str = "cpu", seed: int = 0) -> Backbone:
    """Load the open_clip model named by `spec` in evaluation mode. `seed` is for the weights of an untrained model."""
    name, tag = parse_spec(spec)
    if name.startswith(LOCAL_PREFIX):
        check_model_folder(Path(name.removeprefix(LOCAL_PREFIX)))
    try:
        with quiet_loading(name.startswith(HUB_PREFIX) or tag is not None), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            # The factory ignores the activation that a tag was trained with; the wrong one gives wrong embeddings.
            quick_gelu = bool(tag and open_clip.get_pretrained_cfg(name, tag).get("quick_gelu"))
            refuse_remote_code(spec, open_clip.get_model_config(name))
            pretrained = tag is not None or name.startswith((LOCAL_PREFIX, HUB_PREFIX))
            model = open_clip.create_model(
                name, tag, force_quick_gelu=quick_gelu, pretrained_text=False, require_pretrained=pretrained
            )
            tokenizer = open_clip.get_tokenizer(name)
            model_cfg = open_clip.get_model_config(name)
        if quick_gelu:
            model_cfg["quick_gelu"] = True
        backbone = make_backbone(spec, model.to(device), tokenizer, model_cfg, pretrained)
    except BackboneError:
        raise
    except Exception as error:  # open_clip, the hub and torch raise a dozen types
        raise BackboneError(explain_load_failure(spec, error)) from error
    if name.startswith(LOCAL_PREFIX):
        folder = Path(name.removeprefix(LOCAL_PREFIX))
        if settings := json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8")).get(TEMPORAL_SETTINGS):
            backbone.temporal = load_temporal(folder, settings, backbone.dim).to(device)
    return backbone


def make_backbone(spec: str, model: Any, tokenizer: Any, model_cfg: dict[str, Any], pretrained: bool) -> Backbone:
    config = {"model_cfg": drop_download_settings(model_cfg), "preprocess_cfg": dict(model.visual.preprocess_cfg)}
    pixels = PixelSpec.from_open_clip(config["preprocess_cfg"])
    return Backbone(spec, model.eval(), tokenizer, pixels, config, pretrained, can_trim(model, tokenizer))


def parse_spec(spec: str) -> tuple[str, str | None]:
    """Split `ViT-B-32@openai` into ("ViT-B-32", "openai"). Rejects names and tags that open_clip does not have."""
    if spec.startswith((LOCAL_PREFIX, HUB_PREFIX)):
        if spec in (LOCAL_PREFIX, HUB_PREFIX):
            raise BackboneError(f"{spec} names no model: write {LOCAL_PREFIX}PATH or {HUB_PREFIX}org/repo")
        return spec, None
    name, separator, tag = spec.partition("@")
    name = name.replace("/", "-")  # OpenAI writes ViT-B/32
    names = open_clip.list_models()
    if name not in names:
        raise BackboneError(explain_unknown_model(spec.partition("@")[0], names))
    tags = open_clip.list_pretrained_tags_by_model(name)
    if separator and tag not in tags and not open_clip.pretrained.is_pretrained_cfg(name, tag):
        raise BackboneError(f"open_clip has no weights {tag!r} for {name}; it has {', '.join(tags) or 'none'}")
    return name, tag if separator else None


def refuse_remote_code(spec: str, config: Any) -> None:
    """Reject a configuration that makes the tokenizer or text tower run Python code from the model's folder."""
    if isinstance(config, dict) and config.get("trust_remote_code"):
        raise BackboneError(f"{spec} asks for trust_remote_code, to run code of its own, which is not allowed")
    if isinstance(config, dict | list):
        for value in config.values() if isinstance(config, dict) else config:
            refuse_remote_code(spec, value)


def drop_download_settings(config: Any) -> Any:
    if isinstance(config, dict):
        return {key: drop_download_settings(value) for key, value in config.items() if key not in DOWNLOAD_SETTINGS}
    return list(config) if isinstance(config, tuple) else config


def explain_load_failure(spec: str, error: Exception) -> str:
    reason = format_error_line(error)
    if any(sign in reason for sign in ("Failed to download", "Failed initial", "Required pretrained weights")):
        return (
            f"cannot download the weights of {spec}: they are not in the local cache and the hub did not return them; "
            f"check the name and the connection, or name a copy on disk as {LOCAL_PREFIX}PATH"
        )
    return f"cannot load {spec}: {reason}"


def format_error_line(error: BaseException, limit: int = 300) -> str:
    """The message of an error on one line, cut to `limit` characters."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= limit else text[: limit - 3] + "..."


@contextmanager
def quiet_loading(remote: bool = False) -> Iterator[None]:
    """Mute the libraries' log lines during a load. For `remote` weights without a network, use the hub's cache only."""
    root, hub = logging.getLogger(), logging.getLogger("huggingface_hub")
    mute = logging.NullHandler()  # the root logger would otherwise install a handler that prints
    level = hub.level
    root.addHandler(mute)
    hub.setLevel(logging.CRITICAL)
    from huggingface_hub import constants

    offline = constants.HF_HUB_OFFLINE
    try:
        # In offline mode, files that are not cached fail at once instead of after a minute of retries.
        constants.HF_HUB_OFFLINE = offline or (remote and not can_resolve_hub())
        yield
    finally:
        constants.HF_HUB_OFFLINE = offline
        root.removeHandler(mute)
        hub.setLevel(level)


def can_resolve_hub() -> bool:
    """Whether the hub's host name resolves. Behind a proxy, the proxy resolves it."""
    from huggingface_hub import constants

    if getproxies() or constants.HF_HUB_OFFLINE:
        return True
    try:
        socket.getaddrinfo(urlsplit(constants.ENDPOINT).hostname, 443)
    except OSError:
        return False
    return True

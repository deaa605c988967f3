"""Any open_clip model as the pair of encoders under an audit: loading it by name, tag, hub or folder, and encoding.

`load_backbone("ViT-B-32@openai")`, `load_backbone("hf-hub:org/repo")`, `load_backbone("local-dir:PATH")`;
`load_backbone("ViT-B-32")` has random weights (drawn from a fixed seed) and says so in `Backbone.pretrained`.
Weights are read as safetensors, or by torch's weights-only reader: nothing is ever unpickled.
"""

import difflib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import open_clip
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.fingerprint import fingerprint
from model.model_errors import ModelError
from model.pixels import PixelSpec
from model.precision import Arithmetic, Precision
from model.text_tower import can_trim, causal_tower, trimmed, trimmed_features
from model.weight_download import fetching

LOCAL = "local-dir:"
HUB = "hf-hub:"
PROBE = ("a dog", "two children run across a wet field while an old man watches them from a wooden bench", "!", "")
# How weights were obtained, not what the model is: left out of the fingerprint and of saved configurations.
FETCH_SETTINGS = ("timm_model_pretrained", "hf_model_pretrained")


HF_FOLDERS = ("hf_tokenizer_name", "hf_model_name")  # in text_cfg: names on the hub, or folders


class BackboneError(ModelError):
    """A model that cannot be loaded, or input that it cannot encode."""


@dataclass
class Backbone:
    """An open_clip model with its tokenizer and its preprocessing."""

    spec: str
    model: Any  # the open_clip nn.Module
    tokenizer: Any
    pixels: PixelSpec
    config: dict[str, Any]  # {"model_cfg": ..., "preprocess_cfg": ...}, as open_clip_config.json holds it
    pretrained: bool  # False: random weights, good for training from scratch only
    trims: bool = field(default=False)
    arithmetic: Arithmetic = field(default_factory=Arithmetic)  # of encoding; training has its own

    @property
    def dim(self) -> int:
        return int(self.config["model_cfg"]["embed_dim"])

    @property
    def logit_scale(self) -> float:
        return float(self.model.logit_scale.detach().exp().item())

    @property
    def device(self) -> torch.device:
        return self.model.logit_scale.device  # type: ignore[no-any-return]

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"

    @cached_property
    def fingerprint(self) -> str:
        """Of weights, architecture and preprocessing at the time of the first call."""
        return backbone_fingerprint(self)

    def compute_in(self, precision: Precision, *, compiled: bool = False) -> None:
        """Encode in this arithmetic from now on; the first samples are checked against float32."""
        self.arithmetic = Arithmetic(precision, compiled)
        if self.on_gpu:
            self.model.to(memory_format=torch.channels_last)  # what its convolutions like best

    @cached_property
    def _normal(self) -> tuple[Tensor, Tensor]:
        """Mean and deviation of pixels (1, 3, 1, 1), on the device once: a copy for every batch would wait for it."""
        mean, std = (torch.tensor(v, device=self.device).view(1, 3, 1, 1) for v in (self.pixels.mean, self.pixels.std))
        return mean, std

    def tokenize(self, captions: Sequence[str]) -> Tensor:
        """Tokens (B, L) on the device of the model; L is the longest caption where the text tower allows it."""
        return self.trim(self.tokens(captions))

    def tokens(self, captions: Sequence[str]) -> Tensor:
        """Tokens (B, L) of captions at full width, on the CPU; any thread may ask for them."""
        made: Tensor = self.tokenizer(list(captions))
        return made

    def token_counts(self, tokens: Tensor, captions: Sequence[str]) -> list[tuple[int, bool]]:
        """Of each caption, how many tokens (with start and end) the tower sees of these, and whether it has more."""
        width = tokens.shape[1]
        padding = (tokens.flip(1) == tokens[:, -1:].flip(1)).int().cumprod(dim=1).sum(dim=1)  # equal ones at the end
        counts = torch.where(padding > 1, width - padding, width).tolist()
        encode = getattr(self.tokenizer, "encode", None)
        return [
            (count, count >= width and (encode is None or len(encode(caption)) + 2 > width))
            for count, caption in zip(counts, captions, strict=True)
        ]

    def trim(self, tokens: Tensor) -> Tensor:
        cut = trimmed(tokens) if self.trims else tokens
        return (cut.pin_memory() if self.on_gpu else cut).to(self.device, non_blocking=True)

    def embed_tokens(self, tokens: Tensor) -> Tensor:
        """L2-normalised embeddings (B, D) of tokens, with gradients."""
        if not self.trims:
            features = self.model.encode_text(tokens)
        else:
            features = trimmed_features(causal_tower(self.model), tokens)
        return F.normalize(features.float(), dim=-1)

    def embed_pixels(self, pixels: Tensor) -> Tensor:
        """L2-normalised embeddings (B, D) of uint8 pixels (B, H, W, 3) on any device, with gradients."""
        x = pixels.to(self.device, non_blocking=True).permute(0, 3, 1, 2).float().div(255.0)
        mean, std = self._normal
        x = ((x - mean) / std).contiguous(memory_format=torch.channels_last)
        return F.normalize(self.model.encode_image(x).float(), dim=-1)

    def encode_images(self, pixels: npt.NDArray[np.uint8] | Tensor) -> Tensor:
        """Embeddings (B, D), float32 and L2-normalised, of pixels (B, H, W, 3) as `model.pixels.fit_to` makes them."""
        pixels = torch.from_numpy(np.ascontiguousarray(pixels)) if isinstance(pixels, np.ndarray) else pixels
        expected = (*self.pixels.size, 3)
        if pixels.ndim != 4 or tuple(pixels.shape[1:]) != expected or pixels.dtype != torch.uint8:
            raise BackboneError(
                f"{self.spec} encodes uint8 pixels of shape (B, {', '.join(map(str, expected))}), "
                f"not {str(pixels.dtype).removeprefix('torch.')} of shape {tuple(pixels.shape)}"
            )
        if len(pixels) == 0:
            return torch.zeros(0, self.dim, device=self.device)
        with evaluating(self.model):
            return self.arithmetic.run("images", self.embed_pixels, pixels, self.device)

    def encode_texts(self, captions: Sequence[str], batch: int = 256, *, by_length: bool = True) -> Tensor:
        """Embeddings (B, D), float32 and L2-normalised, of captions; encoded in order of length, returned in theirs."""
        if not captions:
            return torch.zeros(0, self.dim, device=self.device)
        return self.encode_tokens(self.tokens(captions), batch, by_length=by_length)

    def encode_tokens(self, tokens: Tensor, batch: int = 256, *, by_length: bool = True) -> Tensor:
        """The same of tokens (B, L) at full width: batches of like lengths are padded little."""
        result = torch.zeros(len(tokens), self.dim, device=self.device)
        order = (tokens != 0).sum(dim=1).argsort(stable=True) if by_length else torch.arange(len(tokens))
        with evaluating(self.model):
            for start in range(0, len(order), batch):
                chosen = order[start : start + batch]
                some = self.trim(tokens[chosen])
                result[chosen.to(self.device)] = self.arithmetic.run("captions", self.embed_tokens, some, self.device)
        return result


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Without gradients and in evaluation mode; afterwards each part is in the mode it was in."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def backbone_fingerprint(backbone: Backbone) -> str:
    """Of the weights as they are now, the architecture and the preprocessing; not of where they came from."""
    return fingerprint(
        backbone.model.state_dict(), {"model": backbone.config["model_cfg"], "pixels": backbone.pixels.to_dict()}
    )


def device_named(name: str) -> str:
    """A device as torch calls it; `auto` is the current GPU where there is one."""
    if name != "auto":
        return name
    return f"cuda:{torch.cuda.current_device()}" if torch.cuda.is_available() else "cpu"


def load_backbone(spec: str, device: str = "cpu", seed: int = 0) -> Backbone:
    """The open_clip model that `spec` names, in evaluation mode. `seed` draws the weights where none are named."""
    name, tag = split_spec(spec)
    if name.startswith(LOCAL):
        check_folder(Path(name.removeprefix(LOCAL)))
    try:
        with fetching(name.startswith(HUB) or tag is not None), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            # The factory does not take over the activation a tag was trained with; without it the model is another.
            quick = bool(tag and open_clip.get_pretrained_cfg(name, tag).get("quick_gelu"))
            refuse_code(spec, open_clip.get_model_config(name))
            named = tag is not None or name.startswith((LOCAL, HUB))
            model = open_clip.create_model(
                name, tag, force_quick_gelu=quick, pretrained_text=False, require_pretrained=named
            )
            tokenizer = open_clip.get_tokenizer(name)
            model_cfg = open_clip.get_model_config(name)
    except BackboneError:
        raise
    except Exception as error:  # open_clip, the hub and torch raise a dozen types, with traces nobody can act on
        raise BackboneError(why_not(spec, error)) from error
    if quick:
        model_cfg["quick_gelu"] = True
    config = {"model_cfg": without_fetch_settings(model_cfg), "preprocess_cfg": dict(model.visual.preprocess_cfg)}
    pixels = PixelSpec.from_open_clip(config["preprocess_cfg"])
    model.eval().to(device)
    backbone = Backbone(spec, model, tokenizer, pixels, config, pretrained=named)
    backbone.trims = trims(backbone)
    return backbone


def trims(backbone: Backbone) -> bool:
    """Whether captions may be cut to the longest of a batch: only where a probe gives the same embeddings."""
    if not isinstance(backbone.tokenizer, open_clip.SimpleTokenizer):
        return False  # other tokenizers pad with other ids
    return can_trim(backbone.model, backbone.tokenizer(list(PROBE)).to(backbone.device))


def split_spec(spec: str) -> tuple[str, str | None]:
    """("ViT-B-32", "openai") of `ViT-B-32@openai`; refuses names and tags that open_clip does not know."""
    if spec.startswith((LOCAL, HUB)):
        if spec in (LOCAL, HUB):
            raise BackboneError(f"{spec} names no model: write {LOCAL}PATH or {HUB}org/repo")
        return spec, None
    name, at, tag = spec.partition("@")
    name = name.replace("/", "-")  # OpenAI writes ViT-B/32
    names = open_clip.list_models()
    if name not in names:
        raise BackboneError(unknown_model(spec.partition("@")[0], names))
    tags = open_clip.list_pretrained_tags_by_model(name)
    if at and tag not in tags and not open_clip.pretrained.is_pretrained_cfg(name, tag):
        raise BackboneError(f"open_clip has no weights {tag!r} for {name}; it has {', '.join(tags) or 'none'}")
    return name, tag if at else None


def unknown_model(name: str, names: Sequence[str]) -> str:
    """What is wrong with a name that open_clip does not know: a path that is not there, or a slip."""
    if name.startswith(("/", ".", "~")):
        return f"there is no file or folder {name}"
    near = difflib.get_close_matches(name.replace("/", "-"), names, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else "a model is NAME@TAG of open_clip, or a folder"
    return f"there is neither an open_clip model nor a folder called {name!r}; {hint}"


def check_folder(folder: Path) -> None:
    """Refuse a folder that open_clip would fail on with a trace, or fill with random weights."""
    path = folder / "open_clip_config.json"
    if not folder.is_dir():
        raise BackboneError(f"there is no folder {folder}")
    if not path.is_file():
        raise BackboneError(f"{folder} is not an open_clip model: it has no open_clip_config.json")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BackboneError(f"{path} is not JSON: {one_line(error)}") from error
    if not isinstance(config, dict) or "embed_dim" not in config.get("model_cfg", {}):
        raise BackboneError(f"{path} has no model_cfg with an embed_dim")
    if not any(next(folder.glob(f"*.{ending}"), None) for ending in ("safetensors", "bin", "pth")):
        raise BackboneError(f"{folder} has no weights (open_clip_model.safetensors)")
    text = config["model_cfg"].get("text_cfg")
    named = [str(text.get(name) or "") for name in HF_FOLDERS] if isinstance(text, dict) else []
    for place in (folder, *(Path(name) for name in named if name)):
        refuse_code_in(place)


def refuse_code_in(folder: Path) -> None:
    """transformers would ask on the terminal whether to run the Python that a folder brings along; here nobody may."""
    for name in ("tokenizer_config.json", "config.json"):
        try:
            config = json.loads((folder / name).read_bytes())
        except (OSError, ValueError):
            continue  # none, or one that is refused when it is loaded
        if isinstance(config, dict) and config.get("auto_map"):
            raise BackboneError(f"{folder / name} asks to run code of its own (auto_map): it is not loaded")


def refuse_code(spec: str, config: Any) -> None:
    """Refuse a configuration that has the tokenizer or the text tower run Python of its own from the model's folder."""
    if isinstance(config, dict):
        if config.get("trust_remote_code"):
            raise BackboneError(f"{spec} asks for trust_remote_code, to run code of its own: it is not loaded")
        for value in config.values():
            refuse_code(spec, value)
    elif isinstance(config, list):
        for value in config:
            refuse_code(spec, value)


def without_fetch_settings(config: Any) -> Any:
    """A copy of a model configuration with nothing in it that would fetch weights."""
    if isinstance(config, dict):
        return {key: without_fetch_settings(value) for key, value in config.items() if key not in FETCH_SETTINGS}
    return list(config) if isinstance(config, tuple) else config


def why_not(spec: str, error: Exception) -> str:
    """One line on why a model could not be loaded, and what to do."""
    reason = one_line(error)
    if any(sign in reason for sign in ("Failed to download", "Failed initial", "Required pretrained weights")):
        return (
            f"cannot fetch the weights of {spec}: they are not in the local cache and the hub did not give them; "
            f"check the name and the connection, or name a copy on disk as {LOCAL}PATH"
        )
    return f"cannot load {spec}: {reason}"


def one_line(error: BaseException, limit: int = 300) -> str:
    """The message of an error on one line, without the advice of the library that raised it."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= limit else text[: limit - 3] + "..."

"""A temporal transformer over the frames of a clip, as in the authors' released video program (`seqTransf`).

The paper takes the mean of the frames as the vector of a clip. The released program first adds positions to the frames'
features, runs a few transformer layers over them and adds the features again. The frames' own vectors do not change.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from model.model_errors import ModelError
from model.model_names import MAX_LAYERS
from model.similarity import pool_frames
from model.text_tower import find_causal_tower

TEMPORAL = "temporal.safetensors"  # in the folder of a backbone
HEAD_WIDTH = 64  # of all CLIP models by OpenAI
POSITIONS = 77  # if they do not come from a text tower
CLIPS_AT_ONCE = 64


class TemporalError(ModelError):
    """A temporal transformer that cannot be loaded, or more frames than it has positions for."""


class TemporalBlock(nn.Module):
    """A pre-norm transformer layer. The names of its weights are CLIP's."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        norm = partial(nn.LayerNorm, width, eps=1e-12)  # CLIP's own layers have 1e-5
        self.ln_1, self.ln_2 = norm(), norm()
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width), "c_proj": nn.Linear(4 * width, width)})

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        y = self.ln_1(x)
        x = x + self.attn(y, y, y, key_padding_mask=padding, need_weights=False)[0]
        hidden = self.mlp["c_fc"](self.ln_2(x))
        return x + self.mlp["c_proj"](hidden * torch.sigmoid(1.702 * hidden))  # type: ignore[no-any-return]


class TemporalTransformer(nn.Module):
    def __init__(self, width: int, layers: int, heads: int, positions: int = POSITIONS) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise TemporalError(f"{heads} attention heads do not divide a width of {width}")
        self.heads = heads
        self.positions = nn.Parameter(0.01 * torch.randn(positions, width))
        self.resblocks = nn.ModuleList(TemporalBlock(width, heads) for _ in range(layers))
        for name, weight in self.named_parameters():
            if name.endswith("proj.weight"):  # small: at the start a clip's vector is close to the mean of its frames
                nn.init.normal_(weight, std=0.1 * (2 * layers * width) ** -0.5)

    @property
    def layers(self) -> int:
        return len(self.resblocks)

    def check_frame_count(self, count: int) -> None:
        if count > len(self.positions):
            limit = len(self.positions)
            raise TemporalError(f"the model's temporal transformer takes {limit} frames, not {count}: --frames {limit}")

    def forward(self, frames: Tensor, mask: Tensor) -> Tensor:
        """Features (N, J, D) of frames in the context of their clip, from the encoder's features and valid frames."""
        self.check_frame_count(frames.shape[1])
        x = frames + self.positions[: frames.shape[1]]
        padding = torch.where(mask.bool(), 0.0, -1e6).to(x.dtype)  # of keys; every query is computed
        for block in self.resblocks:
            x = block(x, padding)
        return x + frames

    def pool(self, frames: Tensor, mask: Tensor) -> Tensor:
        """Unit vectors (N, D) of clips."""
        return pool_frames(self(frames, mask), mask)

    @torch.no_grad()
    def pool_clips(self, frames: Tensor, counts: list[int]) -> Tensor:
        """The same for concatenated frames (sum of counts, D), a few clips at a time."""
        clips: tuple[Tensor, ...] = frames.split(counts)  # type: ignore[no-untyped-call]
        vectors = [frames[:0]]
        for start in range(0, len(clips), CLIPS_AT_ONCE):
            chunk = list(clips[start : start + CLIPS_AT_ONCE])
            mask = pad_sequence([torch.ones_like(clip[:, 0]) for clip in chunk], batch_first=True)
            vectors.append(self.pool(pad_sequence(chunk, batch_first=True), mask))
        return torch.cat(vectors)


def count_heads(width: int) -> int:
    """Heads of about CLIP's width that divide `width`."""
    return next(heads for heads in range(max(1, width // HEAD_WIDTH), 0, -1) if width % heads == 0)


def start_temporal(model: nn.Module, width: int, layers: int, seed: int) -> TemporalTransformer:
    """A new transformer for features of this width. It starts from the first layers of a text tower of that width."""
    tower = find_causal_tower(model)
    table: Tensor | None = None if tower is None else tower.positional_embedding.detach()
    if table is None or table.shape[1] != width:
        tower, table = None, torch.empty(POSITIONS, width)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        temporal = TemporalTransformer(width, layers, count_heads(width), len(table))
    if tower is not None:
        temporal.positions.data.copy_(table)
        for block, source in zip(temporal.resblocks, tower.transformer.resblocks, strict=False):
            weights = source.state_dict()
            if {name: t.shape for name, t in weights.items()} == {n: t.shape for n, t in block.state_dict().items()}:
                block.load_state_dict(weights)
    return temporal.to(next(model.parameters()).device)


def load_temporal(folder: Path, settings: Mapping[str, Any], width: int) -> TemporalTransformer:
    """The transformer of a folder, for features of this width; the shapes of its weights give its size."""
    try:
        tensors = load_file(folder / TEMPORAL)
        layers = len({name.split(".")[1] for name in tensors if name.startswith("resblocks.")})
        if layers > MAX_LAYERS:
            raise ValueError(f"it has {layers} layers")
        temporal = TemporalTransformer(width, layers, settings["heads"], len(tensors["positions"]))
        temporal.load_state_dict(tensors)
        return temporal
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, RuntimeError) as error:
        line = " ".join(str(error).split())[:300]
        raise TemporalError(f"{folder / TEMPORAL} is missing, damaged or of another model: {line}") from error

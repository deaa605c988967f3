"""Random checkpoints in the layout of the authors' released program, and its forward pass written from their facts.

Nothing here uses the model under test: the pass reads the state dict by the authors' own keys.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

UNUSED = ("global_mat_weight", "local_mat_weight", "word_logit_weight", "word_mat_weight", "word_mat_weight2")
UNUSED += ("frame_logit_weight", "frame_mat_weight", "frame_mat_weight2")
KEPT_IN_FLOAT32 = ("ln_", "embedding", "logit_scale", "transformerClip", "prototype", "_weight", "frame_position")


def draw_state_dict(
    seed: int = 0, *, video: bool = True, width: int = 64, prototypes: int = 4, vocabulary: int = 49408
) -> dict[str, Tensor]:
    """Two layers in each tower, four temporal ones; float16 where the program saves float16."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int, scale: float = 0.05) -> Tensor:
        return scale * torch.randn(*shape, generator=generator)

    def draw_block(prefix: str) -> dict[str, Tensor]:
        shapes = {"attn.in_proj_weight": (3 * width, width), "attn.in_proj_bias": (3 * width,)}
        shapes |= {"attn.out_proj.weight": (width, width), "attn.out_proj.bias": (width,)}
        shapes |= {"mlp.c_fc.weight": (4 * width, width), "mlp.c_fc.bias": (4 * width,)}
        shapes |= {"mlp.c_proj.weight": (width, 4 * width), "mlp.c_proj.bias": (width,)}
        norms = {f"{name}.{part}": (width,) for name in ("ln_1", "ln_2") for part in ("weight", "bias")}
        block = {name: draw(*shape, scale=0.1) for name, shape in (shapes | norms).items()}
        return {f"{prefix}{name}": t + name.startswith("ln") * name.endswith("weight") for name, t in block.items()}

    state = {
        "clip.positional_embedding": draw(77, width),
        "clip.text_projection": draw(width, width, scale=0.2),
        "clip.logit_scale": torch.tensor(3.0),
        "clip.visual.class_embedding": draw(width),
        "clip.visual.positional_embedding": draw(5, width),
        "clip.visual.proj": draw(width, width, scale=0.2),
        "clip.visual.conv1.weight": draw(width, 3, 16, 16),
        "clip.token_embedding.weight": draw(vocabulary, width),
        "v_prototype": draw(prototypes, width),
        "t_prototype": draw(prototypes, width),
    }
    for name in ("visual.ln_pre", "visual.ln_post", "ln_final"):
        state |= {f"clip.{name}.weight": 1 + draw(width), f"clip.{name}.bias": draw(width)}
    for layer in range(2):
        state |= draw_block(f"clip.visual.transformer.resblocks.{layer}.")
        state |= draw_block(f"clip.transformer.resblocks.{layer}.")
    if video:
        state["frame_position_embeddings.weight"] = draw(77, width, scale=0.3)
        for layer in range(4):
            state |= draw_block(f"transformerClip.resblocks.{layer}.")
        state |= {name: torch.eye(6) for name in UNUSED}
    halved = {name for name in state if not any(part in name.removeprefix("clip.") for part in KEPT_IN_FLOAT32)}
    halved |= {name for name in state if name.startswith("clip.") and (".attn." in name or ".mlp." in name)}
    return {name: tensor.half() if name in halved else tensor for name, tensor in state.items()}


def run_block(state: dict[str, Tensor], prefix: str, x: Tensor, eps: float, mask: Tensor, heads: int) -> Tensor:
    """A pre-norm layer on x (N, L, D) with an additive mask on the attention, head by head."""

    def norm(name: str, y: Tensor) -> Tensor:
        centered = y - y.mean(dim=-1, keepdim=True)
        y = centered / (centered.square().mean(dim=-1, keepdim=True) + eps).sqrt()
        return y * state[f"{prefix}{name}.weight"] + state[f"{prefix}{name}.bias"]

    def linear(name: str, y: Tensor, sep: str = ".") -> Tensor:
        return y @ state[f"{prefix}{name}{sep}weight"].T + state[f"{prefix}{name}{sep}bias"]

    q, k, v = linear("attn.in_proj", norm("ln_1", x), "_").chunk(3, dim=-1)
    size = x.shape[-1] // heads
    parts = []
    for head in range(heads):
        part = slice(head * size, (head + 1) * size)
        weight = (q[..., part] @ k[..., part].transpose(1, 2) / math.sqrt(size) + mask).softmax(dim=-1)
        parts.append(weight @ v[..., part])
    x = x + linear("attn.out_proj", torch.cat(parts, dim=-1))
    hidden = linear("mlp.c_fc", norm("ln_2", x))
    return x + linear("mlp.c_proj", hidden * torch.sigmoid(1.702 * hidden))


def encode_frames(state: dict[str, Tensor], pixels: Tensor, heads: int = 1) -> Tensor:
    """CLIP's features (N, D) of normalized pixels (N, 3, H, W)."""
    patches = F.conv2d(pixels, state["clip.visual.conv1.weight"], stride=16).flatten(2).transpose(1, 2)
    first = state["clip.visual.class_embedding"].expand(len(pixels), 1, -1)
    x = torch.cat([first, patches], dim=1) + state["clip.visual.positional_embedding"]
    x = F.layer_norm(x, x.shape[-1:], *(state[f"clip.visual.ln_pre.{part}"] for part in ("weight", "bias")))
    for layer in range(2):
        x = run_block(state, f"clip.visual.transformer.resblocks.{layer}.", x, 1e-5, torch.zeros(()), heads)
    x = F.layer_norm(x[:, 0], x.shape[-1:], *(state[f"clip.visual.ln_post.{part}"] for part in ("weight", "bias")))
    return x @ state["clip.visual.proj"]


def encode_tokens(state: dict[str, Tensor], tokens: Tensor, heads: int = 1) -> Tensor:
    """CLIP's features (N, D) of tokens (N, L), read at the largest token."""
    x = state["clip.token_embedding.weight"][tokens] + state["clip.positional_embedding"][: tokens.shape[1]]
    causal = torch.full((tokens.shape[1],) * 2, -math.inf).triu(1).to(x.dtype)
    for layer in range(2):
        x = run_block(state, f"clip.transformer.resblocks.{layer}.", x, 1e-5, causal, heads)
    x = F.layer_norm(x, x.shape[-1:], *(state[f"clip.ln_final.{part}"] for part in ("weight", "bias")))
    return x[torch.arange(len(x)), tokens.argmax(dim=1)] @ state["clip.text_projection"]


def pool_clip(state: dict[str, Tensor], frames: Tensor, heads: int = 1) -> Tensor:
    """The vector (D,) of one clip without padding, from the features (J, D) of its frames."""
    x = (frames + state["frame_position_embeddings.weight"][: len(frames)])[None]
    for layer in range(4):
        x = run_block(state, f"transformerClip.resblocks.{layer}.", x, 1e-12, torch.zeros(()), heads)
    mean = F.normalize(x[0] + frames, dim=-1).mean(dim=0)
    return mean / mean.norm()


def widen(state: dict[str, Any], dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    return {name: tensor.to(dtype) for name, tensor in state.items()}

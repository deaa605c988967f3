"""Run text towers without padding: most captions are much shorter than the context.

In a causal transformer that pools at the end-of-text token, the columns after that token cannot change the result.
open_clip's own towers require the full width; this module runs the same layers on fewer columns. `can_trim` compares
both on probe captions when a model is loaded.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.clip_import import open_clip

WIDTH_MULTIPLE = 8  # widths are rounded up to a multiple: fewer shapes, and faster kernels
PROBE_CAPTIONS = (
    *("a dog", "!", ""),
    "two children run across a wet field while an old man watches them from a wooden bench",
)
TOLERANCE = 1e-5  # of unit vectors: other widths add up in another order


def trim_padding(tokens: Tensor) -> Tensor:
    """Tokens (B, L) without the last columns in which every row is padding (0)."""
    used = int((tokens != 0).any(dim=0).nonzero().max().item()) + 1 if bool((tokens != 0).any()) else 1
    return tokens[:, : min(tokens.shape[1], -(-used // WIDTH_MULTIPLE) * WIDTH_MULTIPLE)]


def group_by_width(tokens: Tensor) -> list[Tensor]:
    """Row numbers of tokens (B, L) in groups of equal width after `trim_padding`, the narrowest first."""
    lengths = (tokens != 0).sum(dim=1)
    order = lengths.argsort(stable=True)
    widths = (lengths[order] + WIDTH_MULTIPLE - 1).div(WIDTH_MULTIPLE, rounding_mode="floor")
    return [group for group in torch.split(order, widths.bincount().tolist()) if len(group)]


def find_causal_tower(model: nn.Module) -> Any | None:
    """The text tower of an open_clip model if it is causal and pools at the end-of-text token, or None."""
    tower: Any = getattr(model, "text", model)  # CustomTextCLIP has a TextTransformer, CLIP is one itself
    pool = getattr(tower, "text_pool_type", getattr(tower, "pool_type", None))
    parts = ("token_embedding", "positional_embedding", "transformer", "ln_final", "attn_mask", "text_projection")
    if pool not in ("argmax", "eos") or not all(hasattr(tower, part) for part in parts):
        return None
    if tower.attn_mask is None or getattr(tower, "cls_emb", None) is not None or getattr(tower, "output_tokens", False):
        return None
    return tower


def encode_trimmed_tokens(tower: Any, tokens: Tensor) -> Tensor:
    """Features (B, D), not normalized, of `tokens` (B, L), for any L up to the context length."""
    width = tokens.shape[1]
    dtype = tower.transformer.get_cast_dtype()
    x = tower.token_embedding(tokens).to(dtype) + tower.positional_embedding[:width].to(dtype)  # (B, L, W)
    x = tower.transformer(x, attn_mask=tower.attn_mask[:width, :width])
    x = tower.ln_final(x[torch.arange(len(tokens), device=x.device), find_end_of_text(tower, tokens)])  # (B, W)
    projection = tower.text_projection
    if projection is None:
        return x  # type: ignore[no-any-return]
    return projection(x) if isinstance(projection, nn.Linear) else x @ projection  # type: ignore[no-any-return]


def find_end_of_text(tower: Any, tokens: Tensor) -> Tensor:
    """Column of the pooled token of each row (B,), found as open_clip does."""
    if getattr(tower, "text_pool_type", getattr(tower, "pool_type", "")) == "argmax":
        return tokens.argmax(dim=-1)
    eos: int = getattr(tower, "text_eos_id", None) or tower.eos_id
    return tokens.eq(eos).int().argmax(dim=-1)


@torch.no_grad()
def can_trim(model: Any, tokenizer: Any) -> bool:
    """Whether padding can be cut from batches of captions: only if that leaves probe embeddings unchanged."""
    tower = find_causal_tower(model)
    if tower is None or not isinstance(tokenizer, open_clip.SimpleTokenizer):  # others have other padding tokens
        return False
    tokens: Tensor = tokenizer(list(PROBE_CAPTIONS)).to(model.logit_scale.device)  # (B, context length)
    try:
        full = model.encode_text(tokens, normalize=True)
        for rows in (slice(None), *(slice(row, row + 1) for row in range(len(tokens)))):  # as a batch, and one by one
            short = F.normalize(encode_trimmed_tokens(tower, trim_padding(tokens[rows])), dim=-1)
            if short.shape != full[rows].shape or not torch.allclose(short, full[rows], atol=TOLERANCE, rtol=0.0):
                return False
    except (RuntimeError, TypeError, AttributeError, IndexError, ValueError):
        return False  # a tower of another design: the full width always works
    return True

"""The text tower without its padding: captions are short, contexts are long, and a causal tower never looks ahead.

In a causal transformer that pools at the end-of-text token, the columns after it cannot change the result, so that
captions may be cut to the longest of a batch. open_clip's own towers insist on the full width; this does the same
arithmetic on fewer columns. Whether it is the same is tried on a probe when a model is loaded (`can_trim`).
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

COLUMNS = 8  # widths are rounded up to a multiple: few shapes, and kernels like it
TOLERANCE = 1e-5  # of unit vectors; other widths sum in another order


def trimmed(tokens: Tensor) -> Tensor:
    """Token rows (B, L) without the columns in which every row is padding (0)."""
    used = int((tokens != 0).any(dim=0).nonzero().max().item()) + 1 if bool((tokens != 0).any()) else 1
    return tokens[:, : min(tokens.shape[1], -(-used // COLUMNS) * COLUMNS)]


def causal_tower(model: nn.Module) -> Any | None:
    """The part of an open_clip model that encodes text, where it is causal and pools at the end-of-text token."""
    tower: Any = getattr(model, "text", model)  # CustomTextCLIP keeps a TextTransformer, CLIP is one itself
    pool = getattr(tower, "text_pool_type", getattr(tower, "pool_type", None))
    parts = ("token_embedding", "positional_embedding", "transformer", "ln_final", "attn_mask", "text_projection")
    if pool not in ("argmax", "eos") or not all(hasattr(tower, part) for part in parts):
        return None
    if tower.attn_mask is None or getattr(tower, "cls_emb", None) is not None or getattr(tower, "output_tokens", False):
        return None
    return tower


def trimmed_features(tower: Any, tokens: Tensor) -> Tensor:
    """What `tower` makes of `tokens` (B, L), for any L up to its context: (B, D), not normalised."""
    width = tokens.shape[1]
    dtype = tower.transformer.get_cast_dtype()
    x = tower.token_embedding(tokens).to(dtype) + tower.positional_embedding[:width].to(dtype)  # (B, L, W)
    x = tower.transformer(x, attn_mask=tower.attn_mask[:width, :width])
    x = tower.ln_final(x[torch.arange(len(tokens), device=x.device), end_of_text(tower, tokens)])  # (B, W)
    projection = tower.text_projection
    if projection is None:
        return x  # type: ignore[no-any-return]
    return projection(x) if isinstance(projection, nn.Linear) else x @ projection  # type: ignore[no-any-return]


def end_of_text(tower: Any, tokens: Tensor) -> Tensor:
    """Column of the pooled token of each row (B,): as open_clip finds it."""
    if getattr(tower, "text_pool_type", getattr(tower, "pool_type", "")) == "argmax":
        return tokens.argmax(dim=-1)
    eos: int = getattr(tower, "text_eos_id", None) or tower.eos_id
    return tokens.eq(eos).int().argmax(dim=-1)


@torch.no_grad()
def can_trim(model: Any, tokens: Tensor) -> bool:
    """Whether the trimmed tower gives what the model itself gives for probe `tokens` (B, context length)."""
    tower = causal_tower(model)
    if tower is None:
        return False
    try:
        full = model.encode_text(tokens, normalize=True)
        for rows in (slice(None), *(slice(row, row + 1) for row in range(len(tokens)))):  # all at once, and each alone
            short = F.normalize(trimmed_features(tower, trimmed(tokens[rows])), dim=-1)
            if short.shape != full[rows].shape or not torch.allclose(short, full[rows], atol=TOLERANCE, rtol=0.0):
                return False
    except (RuntimeError, TypeError, AttributeError, IndexError, ValueError):
        return False  # a tower built otherwise: the full width always works
    return True

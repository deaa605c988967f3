"""Fingerprint of weights together with their settings: equal if and only if both are equal."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def compute_fingerprint(tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> str:
    """32 hex digits from the names, dtypes, shapes and bytes of `tensors` and from the JSON of `config`."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps(config, sort_keys=True, separators=(",", ":")).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        if tensor.numel():
            # Viewed as bytes, because NumPy has no bfloat16.
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()

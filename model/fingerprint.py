"""A fingerprint of weights and of the settings they mean nothing without: equal exactly when both are equal."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def fingerprint(tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> str:
    """32 hex digits of names, types, shapes and bytes of `tensors` and of the JSON of `config`."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps(config, sort_keys=True, separators=(",", ":")).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        if tensor.numel():
            # as bytes, because numpy has no bfloat16
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()

"""Look for a CPU mode faster than eager float32 that gives the same embeddings.

Measures the processor time of the image tower of ViT-B/32 (random weights: the same computation) for all modes in
turns, and the smallest cosine to eager float32 of the embeddings of real photos by the small real model, if available.
A mode that fails shows the reason. It is useful from 1.2 times the rate and a cosine of 0.9999. Words select modes.

    python -m tests.bench.cpu_encoding [WORD ...]
"""

import copy
import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from auditor.console import print_table
from model import pixels
from model.backbone import Backbone, load_backbone
from model.pixels import DecodeLimits
from tests.bench.pixels import mosaic, photos
from tests.conftest import SHARED

RESULTS = Path("bench-results")
BATCH, ROUNDS, PHOTOS = 16, 3, 32
Encode = Callable[[Tensor], Tensor]


def eager(model: nn.Module) -> Encode:
    return model.encode_image  # type: ignore[no-any-return, operator]


def channels_first(model: nn.Module) -> Encode:
    return lambda x: model.encode_image(x.contiguous())  # type: ignore[no-any-return, operator]


def channels_last(model: nn.Module) -> Encode:
    return copy.deepcopy(model).to(memory_format=torch.channels_last).encode_image  # type: ignore[no-any-return, operator, call-overload]


def compiled(model: nn.Module) -> Encode:
    return torch.compile(model.encode_image)  # type: ignore[no-any-return, attr-defined, call-overload]


def traced(model: nn.Module) -> Encode:
    """TorchScript, frozen and fused by oneDNN's graph compiler."""
    example = torch.zeros(BATCH, 3, *model.visual.image_size).contiguous(memory_format=torch.channels_last)  # type: ignore[union-attr, misc]
    torch.jit.enable_onednn_fusion(True)
    return torch.jit.freeze(torch.jit.trace(model.visual, example))  # type: ignore[no-any-return]


def int8(model: nn.Module) -> Encode:
    """Weights and activations of the linear layers in 8 bits, scaled per batch."""
    quantized = torch.ao.quantization.quantize_dynamic(copy.deepcopy(model), {nn.Linear}, dtype=torch.qint8)
    return quantized.encode_image  # type: ignore[no-any-return, operator]


def float16(model: nn.Module) -> Encode:
    def encode(x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.float16):
            return model.encode_image(x).float()  # type: ignore[no-any-return, operator]

    return encode


WAYS: dict[str, Callable[[nn.Module], Encode]] = {
    "eager float32": eager,
    "channels first": channels_first,
    "weights channels last": channels_last,
    "torch.compile": compiled,
    "TorchScript + oneDNN graph": traced,
    "int8, dynamic": int8,
    "float16 autocast": float16,
}


def normalised(backbone: Backbone, batch: Tensor) -> Tensor:
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (backbone.pixels.mean, backbone.pixels.std))
    x = (batch.permute(0, 3, 1, 2).float() / 255 - mean) / std
    return x.contiguous(memory_format=torch.channels_last)


def made(model: nn.Module) -> dict[str, Encode | str]:
    """Each mode, or the reason why it does not work here."""
    found: dict[str, Encode | str] = {}
    for name, make in WAYS.items():
        if sys.argv[1:] and not any(word in name for word in ("eager", *sys.argv[1:])):
            continue
        try:
            encode = make(model)
            encode(torch.zeros(BATCH, 3, *model.visual.image_size))  # type: ignore[union-attr, misc]
            found[name] = encode
        except Exception as error:
            found[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:80]}"
    return found


def rates() -> dict[str, float | str]:
    """Images per second of processor time."""
    backbone = load_backbone("ViT-B-32")
    x = torch.randn(BATCH, 3, 224, 224).contiguous(memory_format=torch.channels_last)
    ways = made(backbone.model)
    best = {name: float("inf") for name, way in ways.items() if not isinstance(way, str)}
    for _ in range(ROUNDS):
        for name in best:
            started = time.process_time()
            ways[name](x)  # type: ignore[operator]
            best[name] = min(best[name], time.process_time() - started)
    return {name: BATCH / best[name] if name in best else str(way) for name, way in ways.items()}


def cosines() -> dict[str, float | None]:
    """The smallest cosine to eager float32 of real photos, by the real model."""
    folder = SHARED / "models/flickr8k-lite"
    if not folder.is_dir():
        return {}
    backbone = load_backbone(f"local-dir:{folder}")
    source = photos()
    files = [mosaic(source, 500, 375) for _ in range(PHOTOS)]
    batch = torch.stack([torch.tensor(pixels.decode_and_fit(d, backbone.pixels, DecodeLimits())[0]) for d in files])
    x = normalised(backbone, batch)
    ways = made(backbone.model)
    vectors = {
        name: F.normalize(torch.cat([way(part) for part in x.split(BATCH)]).float(), dim=1)
        for name, way in ways.items()
        if not isinstance(way, str)
    }
    exact = vectors["eager float32"]
    return {name: float((found * exact).sum(dim=1).min()) for name, found in vectors.items()}


@torch.no_grad()
def main() -> None:
    warnings.simplefilter("ignore")  # about deprecated modes
    torch.set_num_threads(1)
    speed, near = rates(), cosines()
    base = speed["eager float32"]
    rows: list[dict[str, Any]] = []
    for name, rate in speed.items():
        if isinstance(rate, str) or isinstance(base, str):
            rows.append({"way": name, "fails": rate})
        else:
            cosine = near.get(name)
            rows.append({"way": name, "images/s": rate, "times eager": rate / base, "least cosine": cosine})
    print_table(rows, "image tower of ViT-B/32 on one core, processor time")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "cpu_encoding.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()

"""Parameters and operations of a model for one pair: a video of 12 frames and one caption (the paper's table of sizes).

Nothing is computed: the model lies on torch's meta device and every matrix product is counted by torch's own counter.
A multiply-add is two operations (FLOPs) or one (MACs). The paper's 84.2 M and 36.0 G for ViT-B/32 are what a counter
finds that looks only at plain linear and convolution layers and counts a multiply-add once: it misses attention,
embeddings and the output projections. `visible_layers` counts that way, so that both figures can be put side by side.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import open_clip
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from model.training.trainable import quiet_root_logger

GIGA = 1e9
MILLION = 1e6


@dataclass(frozen=True, slots=True)
class Complexity:
    """Of one pair. `visible_*` is the count of plain linear and convolution layers only."""

    model: str
    frames: int
    tokens: int
    parameters: int
    parameters_visual: int
    parameters_text: int
    parameters_head: int
    flops: int
    flops_visual: int
    flops_text: int
    flops_head: int
    visible_parameters: int
    visible_macs: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def count(model: str = "ViT-B-32", frames: int = 12, tokens: int = 32, prototypes: int = 8) -> Complexity:
    """Count a model of open_clip by name; its weights do not matter and are not made."""
    with quiet_root_logger(), torch.device("meta"):
        clip: Any = open_clip.create_model(model, device="meta", force_context_length=tokens)
        full: Any = open_clip.create_model(model, device="meta")
    clip.train()  # in evaluation, attention runs as one fused operation that hides its products
    size = clip.visual.image_size
    height, width = size if isinstance(size, tuple | list) else (size, size)
    pixels = torch.empty(frames, 3, height, width, device="meta")
    words = torch.zeros(1, tokens, dtype=torch.long, device="meta")
    visual, visible_visual = operations(clip, lambda: clip.encode_image(pixels))
    text, visible_text = operations(clip, lambda: clip.encode_text(words))
    dim = int(open_clip.get_model_config(model)["embed_dim"])
    head = 2 * prototypes * dim  # one bank for each modality, each faced by one instance
    total = parameters(full)
    return Complexity(
        model=model,
        frames=frames,
        tokens=tokens,
        parameters=total + head,
        parameters_visual=parameters(full.visual),
        parameters_text=total - parameters(full.visual),
        parameters_head=head,
        flops=visual + text + 2 * head,
        flops_visual=visual,
        flops_text=text,
        flops_head=2 * head,
        visible_parameters=sum(parameters(m) for m in clip.modules() if is_visible(m)),
        visible_macs=visible_visual + visible_text,
    )


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def is_visible(module: nn.Module) -> bool:
    """Exactly these types: the output layer inside torch's attention is a subclass, and is never called as a module."""
    return type(module) in (nn.Linear, nn.Conv2d)


def operations(model: nn.Module, run: Callable[[], Tensor]) -> tuple[int, int]:
    """FLOPs of everything, and MACs of the visible layers, in one run."""
    seen = 0

    def watch(layer: nn.Module, _: Any, output: Tensor) -> None:
        nonlocal seen
        weight: Any = layer.weight
        seen += output.numel() * weight[0].numel()

    handles = [module.register_forward_hook(watch) for module in model.modules() if is_visible(module)]
    try:
        with FlopCounterMode(display=False) as counter:
            run()
    finally:
        for handle in handles:
            handle.remove()
    return int(counter.get_total_flops()), seen

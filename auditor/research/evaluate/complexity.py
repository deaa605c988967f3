"""Counts the parameters and operations of a model for one pair: a video of 12 frames and one caption.

Nothing is computed: the model is on torch's meta device. A multiply-add is two operations (FLOPs) or one (MACs). The
paper's 84.2 M and 36.0 G for ViT-B/32 match a counter that sees only plain linear and convolution layers and counts a
multiply-add once. The `visible_*` counts work the same way, so that both can be compared.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from auditor.research.evaluate.studies import StudyFindings, make_bars
from model.backbone import quiet_loading
from model.clip_import import open_clip


@dataclass(frozen=True, slots=True)
class Complexity:
    """The counts for one pair; `visible_*` counts only plain linear and convolution layers."""

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


def count_complexity(model: str = "ViT-B-32", frames: int = 12, tokens: int = 32, prototypes: int = 8) -> Complexity:
    """Count an open_clip model by name; its weights are not created."""
    with quiet_loading(), torch.device("meta"):
        clip: Any = open_clip.create_model(model, device="meta", force_context_length=tokens)
        full: Any = open_clip.create_model(model, device="meta")
    clip.train()  # in evaluation mode, fused attention would hide its matrix products from the counter
    size = clip.visual.image_size
    height, width = size if isinstance(size, tuple | list) else (size, size)
    pixels = torch.empty(frames, 3, height, width, device="meta")
    words = torch.zeros(1, tokens, dtype=torch.long, device="meta")
    visual, visible_visual = count_operations(clip, lambda: clip.encode_image(pixels))
    text, visible_text = count_operations(clip, lambda: clip.encode_text(words))
    dim = int(open_clip.get_model_config(model)["embed_dim"])
    head = 2 * prototypes * dim  # the prototypes of each modality, compared with one instance
    total, total_visual = count_parameters(full), count_parameters(full.visual)
    parameters = total + head, total_visual, total - total_visual, head
    visible = sum(count_parameters(m) for m in clip.modules() if is_visible(m)), visible_visual + visible_text
    return Complexity(model, frames, tokens, *parameters, visual + text + 2 * head, visual, text, 2 * head, *visible)


def count_parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def is_visible(module: nn.Module) -> bool:
    """Exactly these types: the output layer of torch's attention is a subclass, and is never called as a module."""
    return type(module) in (nn.Linear, nn.Conv2d)


def count_operations(model: nn.Module, run: Callable[[], Tensor]) -> tuple[int, int]:
    """The FLOPs of everything and the MACs of the visible layers, counted in one run."""
    macs = 0

    def watch(layer: nn.Module, _: Any, output: Tensor) -> None:
        nonlocal macs
        weight: Any = layer.weight
        macs += output.numel() * weight[0].numel()

    handles = [module.register_forward_hook(watch) for module in model.modules() if is_visible(module)]
    try:
        with FlopCounterMode(display=False) as counter:
            run()
    finally:
        for handle in handles:
            handle.remove()
    return int(counter.get_total_flops()), macs


def study_complexity() -> StudyFindings:
    """Parameters and operations of ViT-B/32 with 12 frames: all of them, and those that the paper's counter saw."""
    full, short = count_complexity(), count_complexity(tokens=24)
    counts = {  # parameters, operations
        "everything": (full.parameters, full.flops),
        "everything, a multiply-add once": (full.parameters, full.flops / 2),
        "linear and convolution layers only, 32 tokens": (full.visible_parameters, full.visible_macs),
        "linear and convolution layers only, 24 tokens": (short.visible_parameters, short.visible_macs),
        "the PAU head": (full.parameters_head, full.flops_head),
    }
    rows = [{"count": name, "parameters (M)": p / 1e6, "FLOPs (G)": f / 1e9} for name, (p, f) in counts.items()]
    bars = make_bars(rows, "count", ("parameters (M)", "FLOPs (G)"))
    axes = "", "parameters (M), FLOPs (G)"
    return StudyFindings(rows, bars=bars, axes=axes, details={"count": asdict(full)})

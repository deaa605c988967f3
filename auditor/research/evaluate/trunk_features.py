"""What the towers hand to their last projection, caught while they encode.

Retraining the projections (and the prototypes) on these features is fine-tuning with frozen trunks, at thousands of
pairs a second. Towers that end in a bare matrix instead of a linear layer give their embedding as the feature.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from model.backbone import Backbone
from model.text_tower import causal_tower


class Caught:
    """Inputs of a tower's last projection, in the order they were encoded."""

    def __init__(self) -> None:
        self.inputs: list[Tensor] = []

    def __call__(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self.inputs.append(inputs[0].detach().float())


def last_linear(tower: Any, name: str) -> nn.Linear | None:
    """The linear layer that a tower ends in: `name` itself, or the last layer inside it."""
    layer = getattr(tower, name, None)
    if isinstance(layer, nn.Linear):
        return layer
    if isinstance(layer, nn.Sequential) and len(layer) and isinstance(layer[-1], nn.Linear):
        return layer[-1]
    return None


@contextmanager
def catching(backbone: Backbone) -> Iterator[tuple[Caught | None, Caught | None]]:
    """Catch the features of the image and the text tower for as long as the context lasts; None: the tower has none."""
    tower = causal_tower(backbone.model)
    found: list[Caught | None] = []
    handles = []
    for layer in (last_linear(backbone.model.visual, "head"), last_linear(tower, "text_projection")):
        caught = None if layer is None else Caught()
        if layer is not None and caught is not None:
            handles.append(layer.register_forward_pre_hook(caught))
        found.append(caught)
    try:
        yield found[0], found[1]
    finally:
        for handle in handles:
            handle.remove()

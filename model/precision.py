"""What an encoder computes in: float32, or 16 bits where the embeddings of real samples are the same as in float32.

The first samples of each tower are encoded both ways, in every process that encodes, on whatever device; a cosine
below `LEAST_COSINE` stops it with one line that says what to do. `compiled` leaves the code to torch.compile, which is
checked alike. A CPU and a GPU run the same code with another dtype.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from model.model_errors import ModelError

Precision = Literal["float32", "bfloat16", "float16"]
Tower = Literal["images", "captions"]
Embed = Callable[[Tensor], Tensor]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
LEAST_COSINE = 0.999  # between the embeddings of a sample in float32 and as they are computed
CHECKED = 64  # samples of each tower, at least


class PrecisionError(ModelError):
    """An arithmetic that changes the embeddings."""


def precision_for(asked: str, device: str) -> Precision:
    """What `auto` means on a device: float32 on a CPU, on a GPU 16 bits of the kind that it has."""
    if asked in PRECISIONS:
        return asked
    if asked != "auto":
        raise PrecisionError(f"unknown precision {asked!r}; it is one of auto, {', '.join(PRECISIONS)}")
    if not device.startswith("cuda"):
        return "float32"
    # A driver without a GPU of its own speaks for workers that have one.
    return "bfloat16" if not torch.cuda.is_available() or torch.cuda.is_bf16_supported() else "float16"


@dataclass
class Arithmetic:
    """Runs the towers of one model; the functions it is given return unit vectors (B, D) in float32."""

    precision: Precision = "float32"
    compiled: bool = False
    options: dict[str, Any] = field(default_factory=dict)  # of torch.compile
    checked: Counter[Tower] = field(default_factory=Counter)
    faster: dict[Tower, Embed] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        return self.precision == "float32" and not self.compiled

    def run(self, tower: Tower, embed: Embed, batch: Tensor, device: torch.device) -> Tensor:
        """`embed(batch)` in this arithmetic; always the same function for a tower."""
        if self.exact:
            return embed(batch)
        if tower not in self.faster:
            self.faster[tower] = torch.compile(embed, **self.options) if self.compiled else embed
        dtype = getattr(torch, self.precision)
        with torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32):
            found = self.faster[tower](batch).float()
        if self.checked[tower] < CHECKED:
            self._check(tower, found, embed(batch))
        return found

    def _check(self, tower: Tower, found: Tensor, exact: Tensor) -> None:
        least = float((found * exact).sum(dim=1).min())
        if not least >= LEAST_COSINE:  # also where it is not a number
            how = f"{self.precision}{' and compiled' if self.compiled else ''}"
            raise PrecisionError(
                f"the embeddings of {tower} change too much in {how}: cosine {least:.4f} to those in float32, at least "
                f"{LEAST_COSINE} is wanted; pass --precision float32{' and leave out --compile' * self.compiled}"
            )
        self.checked[tower] += len(found)

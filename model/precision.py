"""Numerical precision of the encoders: float32, or 16 bits if the embeddings stay the same as in float32.

Every process that encodes checks the first samples of each tower against float32, on any device. A cosine below
`MIN_COSINE` stops it with one line that says what to do. Code compiled by torch.compile is checked in the same way.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from model.matrix_products import use_fastest_products
from model.model_errors import ModelError

Precision = Literal["float32", "bfloat16", "float16"]
Tower = Literal["images", "captions"]
Embed = Callable[[Tensor], Tensor]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
MIN_COSINE = 0.999  # between a sample's embedding in float32 and in the chosen precision
CHECKED_SAMPLES = 64  # of each tower, at least


class PrecisionError(ModelError):
    """An unknown precision, or one that changes the embeddings."""


def resolve_precision(name: str, device: str) -> Precision:
    """The precision of this name. `auto` is float32 on a CPU, and the 16-bit format that a GPU supports."""
    if name in PRECISIONS:
        return name
    if name != "auto":
        raise PrecisionError(f"unknown precision {name!r}; it is one of auto, {', '.join(PRECISIONS)}")
    if not device.startswith("cuda"):
        return "float32"
    # A driver process without a GPU decides for workers that have one.
    return "bfloat16" if not torch.cuda.is_available() or torch.cuda.is_bf16_supported() else "float16"


@dataclass
class NumericalPrecision:
    """Runs the towers of one model in a precision. Its embedding functions return vectors (B, D) in float32."""

    precision: Precision = "float32"
    compiled: bool = False
    options: dict[str, Any] = field(default_factory=dict)  # of torch.compile
    checked_samples: Counter[Tower] = field(default_factory=Counter)
    least_cosines: dict[Tower, float] = field(default_factory=dict)  # of the checked samples
    embed_functions: dict[Tower, Embed] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        return self.precision == "float32" and not self.compiled

    def run(self, tower: Tower, embed: Embed, batch: Tensor, device: torch.device) -> Tensor:
        """`embed(batch)` in this precision. Each tower always has the same `embed` function."""
        if self.exact:
            with use_fastest_products() if device.type == "cpu" else nullcontext():
                return embed(batch)
        if tower not in self.embed_functions:
            self.embed_functions[tower] = torch.compile(embed, **self.options) if self.compiled else embed
        dtype = getattr(torch, self.precision)
        with torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32):
            embeddings = self.embed_functions[tower](batch).float()
        if self.checked_samples[tower] < CHECKED_SAMPLES:
            self._check(tower, embeddings, embed(batch))
        return embeddings

    def _check(self, tower: Tower, embeddings: Tensor, exact: Tensor) -> None:
        cosine = float(F.cosine_similarity(embeddings, exact).min())
        if not cosine >= MIN_COSINE:  # also if it is NaN
            mode = f"{self.precision}{' and compiled' if self.compiled else ''}"
            raise PrecisionError(
                f"the embeddings of {tower} change too much in {mode}: their cosine to float32 is {cosine:.4f}, below "
                f"{MIN_COSINE}; pass --precision float32{' and leave out --compile' * self.compiled}"
            )
        self.least_cosines[tower] = min(cosine, self.least_cosines.get(tower, 1.0))
        self.checked_samples[tower] += len(embeddings)

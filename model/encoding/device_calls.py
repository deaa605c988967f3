"""The calls to a GPU that encoding makes, in one place: memory for batches, copies to the GPU, results from it.

Batches lie in pinned memory, and copies to the GPU have a stream of their own, so that a batch is copied while the one
before it is encoded. Nothing waits for the GPU but `download`. On a CPU, all of this does nothing.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


class DeviceCalls:
    """Moves tensors between this process and one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.on_gpu = device.type == "cuda"

    @cached_property
    def copies(self) -> torch.cuda.Stream:
        return torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]

    def allocate(self, shape: Sequence[int]) -> Tensor:
        """A batch of pixels to fill: in memory that the GPU can read by itself."""
        return torch.empty(*shape, dtype=torch.uint8, pin_memory=self.on_gpu)

    def upload(self, batch: Tensor) -> Tensor:
        """The batch on the device. The copy is only queued."""
        if not self.on_gpu or batch.device.type != "cpu":
            return batch.to(self.device)
        pinned = batch if batch.is_pinned() else batch.pin_memory()
        with torch.cuda.stream(self.copies):
            copy = pinned.to(self.device, non_blocking=True)
        encoding = torch.cuda.current_stream(self.device)
        encoding.wait_stream(self.copies)
        copy.record_stream(encoding)  # its memory is in use until the encoder is done with it
        return copy


def download(batches: Sequence[Tensor], width: int) -> npt.NDArray[np.float32]:
    """Wait for the device and return its results (N, D), one batch after another."""
    if not batches:
        return np.zeros((0, width), np.float32)
    return torch.cat(list(batches)).float().cpu().numpy()

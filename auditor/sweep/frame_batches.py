"""Frames of many media, encoded a full batch at a time."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from auditor.vectors import Floats
from model.backbone import Backbone


class FrameBatches:
    """Collects pixels in order; `finish` gives the embeddings of all that came since the last time.

    Nothing waits for the device before `finish`: while a GPU encodes a batch, the next one is put together.
    """

    def __init__(self, backbone: Backbone, size: int):
        self.backbone, self.size = backbone, size
        self.waiting: list[npt.NDArray[np.uint8]] = []
        self.encoded: list[Tensor] = []

    def add(self, pixels: Iterable[npt.NDArray[np.uint8]]) -> None:
        self.waiting.extend(pixels)
        while len(self.waiting) >= self.size:
            self._encode()

    def _encode(self) -> None:
        chosen = self.waiting[: self.size]
        # The one copy on the way from a decoder: into memory that a GPU fetches from by itself.
        batch = torch.empty(len(chosen), *chosen[0].shape, dtype=torch.uint8, pin_memory=self.backbone.on_gpu)
        np.stack(chosen, out=batch.numpy())
        del self.waiting[: self.size], chosen
        self.encoded.append(self.backbone.encode_images(batch))

    def finish(self) -> Floats:  # (frames, D)
        while self.waiting:
            self._encode()
        done, self.encoded = self.encoded, []
        if not done:
            return np.zeros((0, self.backbone.dim), np.float32)
        return torch.cat(done).float().cpu().numpy()

"""Frames of many media, encoded a full batch at a time."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from auditor.vectors import Floats
from model.backbone import Backbone


class FrameBatches:
    """Collects pixels in order; `finish` gives the embeddings of all that came since the last time."""

    def __init__(self, backbone: Backbone, size: int):
        self.backbone, self.size = backbone, size
        self.waiting: list[npt.NDArray[np.uint8]] = []
        self.encoded: list[Floats] = []

    def add(self, pixels: Iterable[npt.NDArray[np.uint8]]) -> None:
        self.waiting.extend(pixels)
        while len(self.waiting) >= self.size:
            self._encode()

    def _encode(self) -> None:
        batch = np.stack(self.waiting[: self.size])
        del self.waiting[: self.size]
        self.encoded.append(self.backbone.encode_images(batch).float().cpu().numpy())

    def finish(self) -> Floats:  # (frames, D)
        while self.waiting:
            self._encode()
        done, self.encoded = self.encoded, []
        return np.concatenate(done) if done else np.zeros((0, self.backbone.dim), np.float32)

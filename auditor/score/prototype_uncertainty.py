"""PAU's uncertainty of stored vectors in NumPy, so that processes that score need no torch (model/prototypes.py)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from auditor.vectors import Floats, MediaVectors


@dataclass(frozen=True, slots=True)
class PrototypeBanks:
    """The prototypes of a PAU head and its settings, those of `HeadConfig`."""

    visual: Floats  # (K, D)
    text: Floats  # (K, D)
    settings: Mapping[str, Any]
    fingerprint: str

    def measure_media(self, media: MediaVectors) -> Floats:
        """u (N,) of images and clips."""
        center = self.settings["center_visual"]
        logits = self._compare(media.visual, self.text, center)
        if media.frames is not None and media.mask is not None and self.settings["clip_evidence"] == "frames":
            by_frame = self._compare(media.frames, self.text, center)
            logits = gather_frames(logits, by_frame, media.mask[..., None])
        return compute_uncertainty(logits, self.settings["evidence"], self.settings["tau"])

    def measure_captions(self, text: Floats) -> Floats:
        """u (N,) of captions."""
        logits = self._compare(text, self.visual, self.settings["center_text"])
        return compute_uncertainty(logits, self.settings["evidence"], self.settings["tau"])

    def _compare(self, vectors: Floats, bank: Floats, center: float) -> Floats:
        """scale * (cos - center) with each prototype: (..., K)."""
        cosine = vectors @ normalize(bank).T
        cosine /= np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), np.float32(1e-12))
        scaled: Floats = np.float32(self.settings["scale"]) * (cosine - np.float32(center))
        return scaled


def normalize(rows: Floats) -> Floats:
    unit: Floats = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.float32(1e-12))
    return unit


def gather_frames(overall: Floats, by_frame: Floats, mask: npt.NDArray[np.bool_]) -> Floats:
    """Logits (N, K) of clips from those of their frames (N, J, K), as `gather_frame_logits`; `mask` is (N, J, 1)."""
    count = mask.sum(axis=1)
    best = np.where(mask, by_frame, np.float32(-np.inf)).max(axis=1)
    mean = np.where(mask, by_frame, np.float32(0)).sum(axis=1) / np.maximum(count, 1).astype(np.float32)
    return np.where(count > 0, 2 * np.where(count > 0, best, overall) - mean, overall)


def compute_uncertainty(logits: Floats, evidence: str, tau: float) -> Floats:
    """u = 1 - K/S (N,) for logits (N, K), as `dirichlet_uncertainty`."""
    count = np.float32(logits.shape[-1])
    if evidence == "exp":
        scaled = logits / np.float32(tau)
        top = scaled.max(axis=-1, keepdims=True)
        log_mean = top[:, 0] + np.log(np.exp(scaled - top).sum(axis=-1) / count)
        return np.asarray(0.5 * (1 + np.tanh(0.5 * log_mean)), np.float32)
    strength = np.maximum(logits, 0) if evidence == "relu" else np.logaddexp(np.float32(0), logits)
    mean = (strength / count).sum(axis=-1)
    return np.asarray(mean / (1 + mean), np.float32)

"""The PAU head: one bank of K prototypes per modality. An instance is compared with the bank of the other modality."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.evidence import check_evidence, dirichlet_uncertainty
from model.fingerprint import compute_fingerprint
from model.model_errors import ModelError

INITIALIZATIONS: dict[str, Callable[..., Tensor]] = {
    "xavier": nn.init.xavier_uniform_,
    "kaiming_uniform": nn.init.kaiming_uniform_,
    "kaiming_normal": nn.init.kaiming_normal_,
    "orthogonal": nn.init.orthogonal_,
}
CLIP_EVIDENCE = ("mean", "frames")


class HeadError(ModelError):
    """Invalid settings of a head, or embeddings of another width."""


@dataclass(frozen=True)
class HeadConfig:
    """Settings of a head. `scale` multiplies cosines before they become evidence: with plain cosines u is about 0.5.

    The centers are subtracted from the cosines. The paper has none (0). Fitting sets them only if the cosines of all
    instances to any prototype are far from zero, because u would be stuck at 0 or 1.

    `clip_evidence` says what gives the evidence of a clip: its mean vector (heads made before this setting existed), or
    its frames (`gather_frame_logits`).
    """

    dim: int
    prototypes: int = 8
    init: str = "xavier"
    evidence: str = "exp"
    tau: float = 5.0
    scale: float = 100.0
    center_visual: float = 0.0  # of the cosines of media to text prototypes
    center_text: float = 0.0  # of the cosines of captions to visual prototypes
    clip_evidence: str = "mean"

    def __post_init__(self) -> None:
        for name in ("dim", "prototypes"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise HeadError(f"{name} must be a whole number of at least 1, not {value!r}")
        if self.init not in INITIALIZATIONS:
            raise HeadError(f"init must be one of {', '.join(INITIALIZATIONS)}, not {self.init!r}")
        if self.clip_evidence not in CLIP_EVIDENCE:
            raise HeadError(f"clip_evidence must be {' or '.join(CLIP_EVIDENCE)}, not {self.clip_evidence!r}")
        if not 0.0 < self.scale < float("inf"):
            raise HeadError(f"scale must be a positive number, not {self.scale}")
        if not (abs(self.center_visual) <= 1.0 and abs(self.center_text) <= 1.0):
            raise HeadError(f"centers are cosines, not {self.center_visual} and {self.center_text}")
        check_evidence(self.evidence, self.tau)

    def to_dict(self) -> dict[str, Any]:
        """Without `clip_evidence` if it is the mean: older heads keep their fingerprints."""
        return {name: value for name, value in asdict(self).items() if (name, value) != ("clip_evidence", "mean")}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "HeadConfig":
        unknown = sorted(set(values) - {field.name for field in fields(cls)})
        if unknown:
            raise HeadError(f"unknown setting of a head: {', '.join(unknown)}")
        if "dim" not in values:
            raise HeadError("the settings of a head need its embedding width, dim")
        try:
            return cls(**values)
        except (TypeError, OverflowError) as error:  # a text or a list where a number should be
            raise HeadError(f"wrong setting of a head: {error}") from error


def draw_prototypes(config: HeadConfig, generator: torch.Generator) -> Tensor:
    """Draw a random bank of prototypes (K, D) by `config.init`. Xavier is the uniform ("normalized") form."""
    return INITIALIZATIONS[config.init](torch.empty(config.prototypes, config.dim), generator=generator)


class PrototypeHead(nn.Module):
    """Two prototype banks. An instance is compared with the prototypes of the *other* modality."""

    def __init__(self, config: HeadConfig, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        generator = torch.Generator().manual_seed(seed)
        self.visual = nn.Parameter(draw_prototypes(config, generator))  # (K, D)
        self.text = nn.Parameter(draw_prototypes(config, generator))  # (K, D)

    @property
    def fingerprint(self) -> str:
        return compute_fingerprint(self.state_dict(), self.config.to_dict())

    def logits_visual(
        self, visual: Tensor, frames: Tensor | None = None, mask: Tensor | None = None, *, unit: bool = False
    ) -> Tensor:
        """scale * (cos - center) of visual embeddings (N, D) with the TEXT prototypes: (N, K).

        If the head takes the evidence of clips from frames, these are `frames` (N, J, D), `mask` (N, J) of the valid
        ones. A medium without a valid frame is an image. `unit` says that all vectors have length 1.
        """
        logits = self._logits(visual, self.text, self.config.center_visual, unit)
        if frames is None or self.config.clip_evidence == "mean":
            return logits
        by_frame = self._logits(frames.flatten(0, 1), self.text, self.config.center_visual, unit)
        return gather_frame_logits(logits, by_frame.view(*frames.shape[:2], -1), mask)

    def logits_text(self, text: Tensor, *, unit: bool = False) -> Tensor:
        """The same of text embeddings (N, D) with the VISUAL prototypes: (N, K)."""
        return self._logits(text, self.visual, self.config.center_text, unit)

    def uncertainty_visual(
        self, visual: Tensor, frames: Tensor | None = None, mask: Tensor | None = None, *, unit: bool = False
    ) -> Tensor:
        """u (N,) of media, with the arguments of `logits_visual`."""
        logits = self.logits_visual(visual, frames, mask, unit=unit)
        return dirichlet_uncertainty(logits, self.config.evidence, self.config.tau)

    def uncertainty_text(self, text: Tensor, *, unit: bool = False) -> Tensor:  # (N,)
        return dirichlet_uncertainty(self.logits_text(text, unit=unit), self.config.evidence, self.config.tau)

    def _logits(self, embeddings: Tensor, bank: Tensor, center: float, unit: bool) -> Tensor:
        if embeddings.ndim != 2 or embeddings.shape[1] != self.config.dim:
            raise HeadError(f"this head is for embeddings of width {self.config.dim}, not {tuple(embeddings.shape)}")
        embeddings = embeddings.to(bank.dtype)
        cosines = (embeddings if unit else F.normalize(embeddings, dim=-1)) @ F.normalize(bank, dim=-1).T
        return self.config.scale * (cosines - center)


def gather_frame_logits(overall: Tensor, by_frame: Tensor, mask: Tensor | None) -> Tensor:
    """Logits (N, K) of clips from those of their frames (N, J, K), where `mask` (N, J) is true; else `overall` (N, K).

    Each prototype takes its evidence from its best frame, and as much again as that frame stands above the mean of the
    frames: then one frame fits a meaning that the others do not have. The best frame alone hardly separates clips of
    several scenes from single scenes that fit much (docs/method.md). For one frame, this is the logit of that frame.
    """
    valid = torch.ones(by_frame.shape[:2], dtype=torch.bool, device=by_frame.device) if mask is None else mask.bool()
    hidden, count = ~valid.unsqueeze(-1), valid.sum(dim=1, keepdim=True)
    best = by_frame.masked_fill(hidden, torch.finfo(by_frame.dtype).min).amax(dim=1)
    mean = by_frame.masked_fill(hidden, 0.0).sum(dim=1) / count.clamp(min=1)
    return torch.where(count > 0, 2 * torch.where(count > 0, best, overall) - mean, overall)


def compute_prototype_overlap(bank: Tensor) -> float:
    """Mean |cos| between different prototypes of a bank (K, D): 0 if all are orthogonal."""
    count = bank.shape[0]
    if count < 2:
        return 0.0
    unit = F.normalize(bank.detach(), dim=-1)
    off_diagonal = (unit @ unit.T).abs().masked_fill(torch.eye(count, dtype=torch.bool, device=bank.device), 0.0)
    return float(off_diagonal.sum() / (count * (count - 1)))

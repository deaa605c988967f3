"""Settings of the sweep, in a module that imports no torch so that `auditor audit --help` starts fast."""

import math
from dataclasses import dataclass, field
from typing import Literal

from auditor.cores import count_cores
from auditor.errors import AuditorError
from auditor.schema.setting import setting
from auditor.workers.decoder_pool import DecoderPool
from model.pixels import DecodeLimits, PixelSpec


@dataclass(frozen=True)
class SweepConfig:
    """Settings of the sweep. The first five change what is measured, the others speed and which files fail."""

    frames: int = setting(12, "Number of frames sampled from a video.", advanced=False)
    exact_pixels: bool = setting(
        False,
        "Use byte for byte the pixels of open_clip's own transform, at less than half the speed. Without it, "
        "embeddings keep a cosine above 0.999 to the exact ones.",
    )
    context: float = setting(
        30.0, "Seconds around the span of a timed caption to search for an early or late caption; 0 turns this off."
    )
    motion: bool = setting(False, "Decode videos densely to measure cuts and motion.")
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    compiled: bool = setting(
        False,
        "Compile the encoder with torch.compile: minutes at the start, faster afterwards on a GPU.",
        flag="--compile",
    )
    batch_size: int = setting(32, "Number of frames encoded at once.", minimum=1)
    decoders: int = field(default_factory=count_cores)
    limits: DecodeLimits = field(default_factory=DecodeLimits)

    def __post_init__(self) -> None:
        for option, number in (("--frames", self.frames), ("--batch-size", self.batch_size)):
            if number < 1:
                raise AuditorError(f"{option} must be at least 1, not {number}")
        if not 0 <= self.context < math.inf:
            raise AuditorError(f"--context must be a number of seconds, 0 or more, not {self.context:g}")

    def open_decoder_pool(self, pixels: PixelSpec, workers: int) -> DecoderPool:
        return DecoderPool(pixels, self.frames, workers, self.limits, self.exact_pixels, self.motion, True)

    def measured_settings(self) -> dict[str, object]:
        """The settings that must not change within an audit, because they change what is measured."""
        return {name: getattr(self, name) for name in ("frames", "exact_pixels", "context", "motion", "precision")}

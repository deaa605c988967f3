"""Facts about a video as an audit keeps them, gathered from frames while they are decoded for other reasons.

What the packets say and what single frames show is always there. Cuts and motion need frames in close succession, which
are decoded only where they are asked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from model.pixels import Pixels
from model.video.frame_index import FrameIndex
from model.video.frame_plan import centres
from model.video.motion import Motion, measure_motion, small_picture, succession

FEW = 48  # frames looked at where there is no succession


@dataclass(frozen=True, slots=True)
class VideoFacts:
    frame_rate: float
    constant_rate: bool
    audio: bool
    motion: Motion | None  # None where no frame came

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> "VideoFacts":
        """Back from `dataclasses.asdict` and JSON."""
        motion = fields["motion"]
        if motion is not None:
            motion = Motion(**{**motion, "cuts": None if motion["cuts"] is None else tuple(motion["cuts"])})
        return cls(float(fields["frame_rate"]), bool(fields["constant_rate"]), bool(fields["audio"]), motion)


class FactFinder:
    """Sees frames go by, a bounded number of them. `also` are those it needs beside what is wanted anyway."""

    def __init__(self, index: FrameIndex, wanted: Sequence[int], audio: bool, motion: bool) -> None:
        self.index, self.audio = index, audio
        self.also: Sequence[int] = succession(index.rate, len(index)) if motion else ()
        self.chosen = set(self.also) or {wanted[place] for place in centres(len(wanted), FEW)}
        self.pictures: list[Pixels] = []
        self.times: list[float] = []

    def see(self, number: int, frame: Any) -> None:
        if number in self.chosen:
            self.pictures.append(small_picture(frame))
            self.times.append(self.index.times[number])

    def facts(self) -> VideoFacts:
        motion = measure_motion(np.stack(self.pictures), self.times) if self.pictures else None
        return VideoFacts(self.index.rate, self.index.constant, self.audio, motion)

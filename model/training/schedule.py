"""Learning-rate schedules as pure functions of the step: multipliers of the peak rate, in [0, 1]."""

import math
from typing import Literal

Schedule = Literal["cosine", "clip4clip", "constant"]


def warmup_steps(warmup: float, steps: int) -> int:
    """`warmup` is a share of all steps below 1, else a number of steps."""
    return min(steps, round(warmup * steps) if warmup < 1 else round(warmup))


def multiplier(step: int, steps: int, warmup: float, schedule: Schedule = "cosine") -> float:
    """What the peak rate is multiplied with at `step`, counted from 0, of `steps`."""
    if schedule == "clip4clip":
        share = warmup if warmup < 1 else warmup / steps
        return jump_cosine(step / steps, share)
    first = warmup_steps(warmup, steps)
    if step < first:
        return (step + 1) / first
    return 1.0 if schedule == "constant" else cosine((step - first) / max(1, steps - first))


def cosine(progress: float) -> float:
    """Half a cosine wave from 1 at progress 0 to 0 at progress 1."""
    return 0.5 * (1.0 + math.cos(math.pi * min(progress, 1.0)))


def jump_cosine(progress: float, warmup: float) -> float:
    """CLIP4Clip's: the cosine runs over the warm-up too, so the rate drops a little where the warm-up ends."""
    return progress / warmup if progress < warmup else cosine(progress)

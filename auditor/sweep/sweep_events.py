"""The records of a sweep: the events between its threads, the sample after decoding, and the report on a shard."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from auditor.corpus.sample import Problem, Sample
from auditor.corpus.shard import OpenShard, Shard
from auditor.workers.decoder_process import LOST_SPAN, Decoded
from model.pixels import Pixels

if TYPE_CHECKING:  # sweeps of stored vectors need no torch
    from auditor.sweep.caption_tokens import CaptionTokens

Watch = Callable[[int, int], None]  # called with the numbers of new rows and new errors


@dataclass(frozen=True, slots=True)
class OpenedShard:
    """A shard whose samples can be read."""

    source: Shard
    fingerprint: str  # taken before the first byte was read
    contents: OpenShard
    closing: ExitStack


@dataclass(frozen=True, slots=True)
class ShardStart:
    """A shard was opened; `keys` samples must come out of it."""

    shard: str
    fingerprint: str
    keys: int
    problems: tuple[str, ...]
    own_uids: bool = False
    old_row_mask: npt.NDArray[np.bool_] | None = None  # (rows,): the rows that an earlier sweep of a sample has written


@dataclass(frozen=True, slots=True, eq=False)
class FramePart:
    """Some frames of the sample that comes next."""

    pixels: Pixels


@dataclass(frozen=True, slots=True)
class DecodedSample:
    """A sample after decoding: its medium, or the problem that prevents encoding it."""

    sample: Sample
    digest: str | None
    medium: Decoded | Problem
    frames: int = 0  # decoded frames, whether or not the medium is usable in the end
    texts: "CaptionTokens | None" = None  # of the captions, if the medium was decoded

    def frames_of_caption(self, caption_index: int) -> Sequence[int] | Problem:
        if isinstance(self.medium, Problem):
            return self.medium
        if self.medium.span_frames is None:
            return range(self.frames)
        frames = self.medium.span_frames.by_span[caption_index]
        if isinstance(frames, str):
            return Problem("corrupt" if frames == LOST_SPAN else "bad_span", frames)
        return frames


@dataclass(slots=True)
class ReadSample:
    """A sample whose medium is being decoded."""

    sample: Sample
    digest: str | None = None  # of its bytes; a thread of the decoder pool computes it meanwhile

    def complete(self, medium: Decoded | Problem | None) -> DecodedSample:
        assert medium is not None  # there was a file to decode
        return DecodedSample(self.sample, self.digest, medium)


@dataclass(frozen=True, slots=True, eq=False)
class SamplePiece:
    """Samples whose frames came before, with the rows and the tokens that describe them."""

    samples: Sequence[DecodedSample]  # without pixels
    facts: pa.Table  # a row for each caption
    texts: "Sequence[CaptionTokens]"  # of the captions of usable rows


class ShardEnd:
    """All samples of the shard were decoded."""


@dataclass(frozen=True, slots=True)
class ShardFailure:
    """The shard cannot be read, or cannot be read to its end."""

    shard: str
    message: str


DecodeEvent = ShardStart | FramePart | DecodedSample | ShardEnd | ShardFailure
SweepEvent = ShardStart | FramePart | SamplePiece | ShardEnd | ShardFailure


@dataclass(frozen=True, slots=True)
class ShardReport:
    """The result of sweeping a shard. If `failure` is set, the shard could not be read and nothing was written."""

    shard: str
    keys: int = 0
    status: dict[str, int] = field(default_factory=dict)  # rows by status
    problems: tuple[str, ...] = ()
    seconds: float = 0.0
    failure: str | None = None
    own_uids: bool = False  # whether the corpus has uids of its own, which may repeat

    @property
    def rows(self) -> int:
        return sum(self.status.values())


def count_errors(status: Mapping[str, int]) -> int:
    """Count the failed rows; a file that was never downloaded is no sign of a wrong corpus or a broken decoder."""
    return sum(count for name, count in status.items() if name not in ("ok", "not_downloaded"))

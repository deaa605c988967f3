"""Loads batches of pixels and captions from any corpus that an audit can read, divided among training processes.

training_reader.py decides what is read, and in which order. The processes of a pool decode, so a file that crashes or
hangs its decoder counts as a failure and does no other harm. The loader stores its position in the order, so that a run
that was killed resumes with the next batch.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from auditor.corpus.sample import split_by_span
from auditor.research.train.training_reader import (
    DecodeTask,
    Draw,
    LoaderConfig,
    Position,
    TrainingFailure,
    TrainingReader,
    draw_passes,
)
from auditor.research.train.training_shards import CountedShards, TrainError
from auditor.workers.decoder_pool import DecoderPool
from model.pixels import Pixels
from model.training.training_processes import ALONE, ProcessGroup


@dataclass(frozen=True, slots=True)
class Batch:
    """Pairs ready for the encoders; an image is a video of one frame."""

    pixels: Tensor  # (B, J, H, W, 3) uint8
    mask: Tensor  # (B, J) bool, False for padding
    draws: list[Draw]

    def __len__(self) -> int:
        return len(self.draws)

    @property
    def numbers(self) -> list[int]:
        """A number for each pair, equal for pairs of the same medium."""
        return [draw.medium for draw in self.draws]

    @property
    def captions(self) -> list[str]:
        return [draw.caption for draw in self.draws]


@dataclass(frozen=True, slots=True)
class MediaBatch:
    """Media with all their captions, for validation."""

    pixels: Tensor  # (B, J, H, W, 3) uint8
    mask: Tensor  # (B, J) bool
    numbers: list[int]
    captions: list[tuple[str, ...]]


class PairLoader:
    """Iterates over training batches without end and tracks its position."""

    def __init__(
        self,
        shards: CountedShards,
        config: LoaderConfig,
        pool: DecoderPool,
        processes: ProcessGroup = ALONE,
        state: dict[str, Any] | None = None,
    ) -> None:
        state = state or {"position": (0, 0), "failures": []}
        self.position: Position = (state["position"][0], state["position"][1])
        self.failures = {f["number"]: TrainingFailure(**f) for f in state["failures"]}
        self.reader = TrainingReader(shards, pool, config, processes, self.failures)

    def __iter__(self) -> Generator[Batch, None, None]:
        draws: list[Draw] = []
        media: list[Pixels] = []
        passes = self.reader.passes
        cycle, decoded = self.position[0] // passes, sum(self.position)  # a resumed run has decoded some before
        for draw, pixels in self.reader.decode(draw_passes(self.reader, self.position)):
            if draw.position[0] // passes != cycle:
                if not decoded:
                    raise TrainError(describe_decoding_failure(self.failures))
                cycle, decoded = draw.position[0] // passes, 0
            if pixels is not None:
                decoded += 1
                draws.append(draw)
                media.append(pixels)
            if len(draws) == self.reader.config.batch:
                self.position = draw.position
                yield Batch(*pad_and_stack(media), draws)
                draws, media = [], []

    def state(self) -> dict[str, Any]:
        """The position and the failures, for JSON: a loader made with them continues with the next batch."""
        return {"position": list(self.position), "failures": [asdict(failure) for failure in self.failures.values()]}


def describe_decoding_failure(failures: dict[int, TrainingFailure]) -> str:
    first = next(iter(failures.values()), None)
    why = f" (first: {first.key} in {first.shard}: {first.message})" if first else ""
    return f"no medium of the corpus could be decoded{why}"


class MediaLoader:
    """Iterates over the media of a validation corpus; each iteration starts from the beginning."""

    def __init__(
        self, shards: CountedShards, config: LoaderConfig, pool: DecoderPool, processes: ProcessGroup = ALONE
    ) -> None:
        self.failures: dict[int, TrainingFailure] = {}
        self.reader = TrainingReader(shards, pool, config, processes, self.failures)

    def __iter__(self) -> Iterator[MediaBatch]:
        join = self.reader.config.captions == "join"
        decoded = ((draw, pixels) for draw, pixels in self.reader.decode(self.tasks()) if pixels is not None)
        while media := list(islice(decoded, self.reader.config.batch)):
            captions = [(draw.caption,) if join else draw.sample.captions for draw, _ in media]
            tensors = pad_and_stack([pixels for _, pixels in media])
            yield MediaBatch(*tensors, [draw.medium for draw, _ in media], captions)

    def tasks(self) -> Generator[DecodeTask, None, None]:
        """Every medium of this process's share once, in order, with all its captions."""
        for piece in self.reader.slices:
            for number, sample, content in self.reader.samples(piece):
                for part in split_by_span(sample):
                    yield Draw(number, part, tuple(range(len(part.captions)))), content


def pad_and_stack(media: Sequence[Pixels]) -> tuple[Tensor, Tensor]:
    """Pixels padded to the longest medium, (B, J, H, W, 3), and a mask that is False for padding, (B, J)."""
    longest = max(len(pixels) for pixels in media)
    padded = np.zeros((len(media), longest, *media[0].shape[1:]), dtype=np.uint8)
    mask = np.zeros((len(media), longest), dtype=bool)
    for i, pixels in enumerate(media):
        padded[i, : len(pixels)] = pixels
        mask[i, : len(pixels)] = True
    return torch.from_numpy(padded), torch.from_numpy(mask)

"""The training loader: any corpus the audit reads to batches of pixels and captions, split by training process.

What is read, and in which order, is in auditor/research/train/training_reader.py; decoding runs in the killable processes of a pool, so a
file that crashes or hangs a decoder is a failure that is counted. The loader knows where it is in the order, so that a
run that was killed goes on with the very batch that would have come next.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from auditor.corpus.sample import by_span
from auditor.research.train.training_reader import Draw, Failure, LoaderConfig, Position, Reader, Task, draw_forever
from auditor.research.train.training_shards import LoaderError, Shards, assign_slices
from auditor.workers.decoder_pool import DecoderPool
from model.pixels import Pixels
from model.training.training_processes import ProcessGroup


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
        """Equal for pairs of the same medium."""
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
    """Iterates over training batches without end and knows where it is."""

    def __init__(
        self,
        shards: Shards,
        config: LoaderConfig,
        pool: DecoderPool,
        processes: ProcessGroup = ProcessGroup(),  # noqa: B008 (frozen)
        state: dict[str, Any] | None = None,
    ) -> None:
        state = state or {"position": (0, 0), "failures": []}
        self.position: Position = (state["position"][0], state["position"][1])
        self.failures = {f["number"]: Failure(**f) for f in state["failures"]}
        self.most = shards.most_captions if config.captions == "all" else 1
        self.name, self.config = processes.rank, config
        slices = assign_slices(len(shards.shards), processes.rank, processes.size)
        self.reader = Reader(shards.shards, slices, pool, config, failed=set(self.failures))

    def __iter__(self) -> Generator[Batch, None, None]:
        pairs: list[tuple[Draw, Pixels]] = []
        cycle, good = self.position[0] // self.most, sum(self.position)  # a resumed run has seen good ones
        for draw, found in self.reader.decoded(draw_forever(self.reader, self.position, self.most, self.name)):
            if draw.position[0] // self.most != cycle:
                if not good:
                    raise LoaderError(nothing_decodes(self.failures))
                cycle, good = draw.position[0] // self.most, 0
            if isinstance(found, Failure):
                self.failures[found.number] = found
            elif found is not None:
                good += 1
                pairs.append((draw, found))
            if len(pairs) == self.config.batch:
                self.position = draw.position
                yield Batch(*stack([pixels for _, pixels in pairs]), [draw for draw, _ in pairs])
                pairs = []

    def state(self) -> dict[str, Any]:
        """Where it is, as JSON: a loader made with it goes on with the next batch."""
        return {"position": list(self.position), "failures": [asdict(failure) for failure in self.failures.values()]}


def nothing_decodes(failures: dict[int, Failure]) -> str:
    first = next(iter(failures.values()), None)
    why = f" (first: {first.key} in {first.shard}: {first.message})" if first else ""
    return f"no medium of the corpus could be decoded{why}"


class MediaLoader:
    """Iterates over the media of a validation corpus; each iteration starts from the beginning."""

    def __init__(
        self,
        shards: Shards,
        config: LoaderConfig,
        pool: DecoderPool,
        processes: ProcessGroup = ProcessGroup(),  # noqa: B008 (frozen)
    ) -> None:
        slices = assign_slices(len(shards.shards), processes.rank, processes.size)
        self.reader, self.config = Reader(shards.shards, slices, pool, config), config
        self.failures: dict[int, Failure] = {}

    def __iter__(self) -> Iterator[MediaBatch]:
        media: list[tuple[Draw, Pixels]] = []
        for draw, found in self.reader.decoded(self.tasks()):
            if isinstance(found, Failure):
                self.failures[found.number] = found
            elif found is not None:
                media.append((draw, found))
            if len(media) == self.config.batch:
                yield self.batch(media)
                media = []
        if media:
            yield self.batch(media)

    def tasks(self) -> Generator[Task, None, None]:
        """Every medium of the share once, in order, with all its captions."""
        for piece in self.reader.slices:
            for number, sample, found in self.reader.samples(piece):
                for one in by_span(sample):
                    yield Draw(number, one, tuple(range(len(one.captions)))), found

    def batch(self, media: list[tuple[Draw, Pixels]]) -> MediaBatch:
        join = self.config.captions == "join"
        captions = [(draw.caption,) if join else draw.sample.captions for draw, _ in media]
        return MediaBatch(*stack([pixels for _, pixels in media]), [draw.medium for draw, _ in media], captions)


def stack(media: Sequence[Pixels]) -> tuple[Tensor, Tensor]:
    """Pixels padded to the longest medium, (B, J, H, W, 3), and which frames are real, (B, J)."""
    longest = max(len(pixels) for pixels in media)
    padded = np.zeros((len(media), longest, *media[0].shape[1:]), dtype=np.uint8)
    mask = np.zeros((len(media), longest), dtype=bool)
    for i, pixels in enumerate(media):
        padded[i, : len(pixels)] = pixels
        mask[i, : len(pixels)] = True
    return torch.from_numpy(padded), torch.from_numpy(mask)

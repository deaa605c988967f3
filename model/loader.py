"""The training loader: WebDataset shards to batches of pixels and captions, in an order that depends on the seed only.

A reader (a decoding process of a training process) owns a fixed share of the shards. It goes through it in passes: the
slices in random order, then a shuffle buffer over samples that are not decoded yet. In each pass a medium comes at
most once, with one of its captions, so that two captions of a medium do not meet in a batch as false negatives. The
position of a reader is (pass, pairs drawn in it): to resume, the order is replayed without decoding anything.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from webdataset.filters import _shuffle

from model.errors import ModelError
from model.pixels import DecodeError, Limits, Pixels, PixelSpec, decode_image, fit_to
from model.tarshards import ShardCount, Slice, TarSample, count_shard, list_shards, read_slice
from model.world import World

Captions = Literal["all", "one", "join"]


class LoaderError(ModelError):
    """Data that cannot be loaded."""


@dataclass(frozen=True, slots=True)
class LoaderConfig:
    """What is read and how. `batch` is the number of pairs this process gets at a time."""

    pixels: PixelSpec
    batch: int
    frames: int = 12
    captions: Captions = "all"
    shuffle: int = 2000
    workers: int = 0
    cache_bytes: int = 0  # of this process; 0: nothing is kept
    seed: int = 0
    limits: Limits = Limits()  # noqa: RUF009 (frozen)


@dataclass(frozen=True, slots=True)
class Shards:
    """The shards of a corpus, counted."""

    urls: list[str]
    counts: list[ShardCount]

    @property
    def samples(self) -> int:
        return sum(count.samples for count in self.counts)

    @property
    def most_captions(self) -> int:
        return max(count.most_captions for count in self.counts)

    def pairs(self, captions: Captions) -> int:
        """Pairs in an epoch."""
        return sum(count.captions for count in self.counts) if captions == "all" else self.samples

    @property
    def problems(self) -> list[str]:
        return [count.problem for count in self.counts if count.problem]


@dataclass(frozen=True, slots=True)
class Failure:
    """A sample that gave no pixels."""

    number: int
    shard: str
    key: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Batch:
    """Pairs ready for the encoders; an image is a video of one frame."""

    pixels: Tensor  # (B, J, H, W, 3) uint8
    mask: Tensor  # (B, J) bool, False for padding
    numbers: Tensor  # (B,) int64: equal for pairs of the same medium
    keys: list[str]
    caption_index: list[int]
    captions: list[str]
    failures: list[Failure]  # met since the batch before
    reader: int
    position: tuple[int, int]  # of the reader, after this batch

    def __len__(self) -> int:
        return len(self.captions)


@dataclass(frozen=True, slots=True)
class MediaBatch:
    """Media with all their captions, for validation."""

    pixels: Tensor  # (B, J, H, W, 3) uint8
    mask: Tensor  # (B, J) bool
    numbers: list[int]
    captions: list[tuple[str, ...]]
    failures: list[Failure]


@dataclass(frozen=True, slots=True)
class Broken:
    """What a reader hands over instead of an exception, whose traceback torch would put into the message."""

    message: str


def count_shards(spec: str, world: World = World()) -> Shards:  # noqa: B008 (frozen)
    """List and count the shards of a corpus, each by one of the processes."""
    urls = list_shards(spec)
    try:
        mine: Any = {i: count_shard(urls[i]) for i in range(world.rank, len(urls), world.size)}
    except ModelError as error:  # every process must learn of it, or the others would wait for ever
        mine = error
    counted: dict[int, ShardCount] = {}
    for part in world.share(mine):
        if isinstance(part, ModelError):
            raise part
        counted.update(part)
    return Shards(urls, [counted[i] for i in range(len(urls))])


def assign_slices(shards: int, reader: int, readers: int) -> list[Slice]:
    """The share of one reader: whole shards where they divide evenly or are many, else every n-th sample of each."""
    parts = 1 if shards >= 100 * readers else readers // gcd(shards, readers)
    return [Slice(shard, part, parts) for shard in range(shards) for part in range(parts)][reader::readers]


@dataclass
class Reader:
    """Reads and decodes the slices of one reader, and keeps pixels while they fit into its budget."""

    urls: list[str]
    config: LoaderConfig
    slices: list[Slice]
    budget: int
    kept: dict[int, Pixels] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    contents: dict[Slice, list[TarSample]] = field(default_factory=dict)  # without media; only when caching
    used: int = 0

    def samples(self, piece: Slice) -> Iterator[TarSample]:
        """The samples of a slice in fixed order: from memory when all its pixels are there, else from the tar."""
        known = self.contents.get(piece)
        if known is not None and all(s.number in self.kept or s.number in self.failed for s in known):
            yield from known
            return
        contents = []
        for sample in read_slice(self.urls, piece):
            if self.config.captions == "join":
                sample = with_captions(sample, (" ".join(sample.captions),))
            if self.budget:
                contents.append(without_media(sample))
            yield sample
        if self.budget:
            self.contents[piece] = contents

    def decode(self, sample: TarSample) -> Pixels | Failure | None:
        """Pixels (J, H, W, 3); None for a sample that failed before."""
        if sample.number in self.failed:
            return None
        if sample.number in self.kept:
            return self.kept[sample.number]
        assert sample.media is not None  # only samples with kept pixels, or failed ones, come without
        try:
            pixels = decode(sample, self.config)
        except DecodeError as error:
            self.failed.add(sample.number)
            return Failure(sample.number, self.urls[sample.shard], sample.key, error.status, str(error))
        if self.used + pixels.nbytes <= self.budget:
            self.kept[sample.number] = pixels
            self.used += pixels.nbytes
        return pixels


def decode(sample: TarSample, config: LoaderConfig) -> Pixels:
    """uint8 (J, H, W, 3); J is 1 for an image."""
    media = sample.media or b""
    if sample.kind == "image":
        return fit_to(config.pixels, decode_image(media, config.limits))[None]
    from model.video import decode_frames

    frames = decode_frames(media, config.frames, config.limits)
    return np.stack([fit_to(config.pixels, image) for image in frames.images])


def without_media(sample: TarSample) -> TarSample:
    return TarSample(sample.shard, sample.ordinal, sample.key, sample.captions, sample.kind, None)


def with_captions(sample: TarSample, captions: tuple[str, ...]) -> TarSample:
    return TarSample(sample.shard, sample.ordinal, sample.key, captions, sample.kind, sample.media)


def choose_caption(sample: TarSample, number: int, most: int, config: LoaderConfig) -> int | None:
    """Which caption a medium comes with in pass `number`, or None if not in this pass.

    With "all", `most` passes make an epoch: a medium with n captions takes part in n of them, evenly spread, with each
    caption once. Otherwise it takes part in every pass and its captions take turns.
    """
    count = len(sample.captions)
    if count == 1 and (most == 1 or config.captions != "all"):
        return 0
    if config.captions != "all":
        return caption_order(sample, number // count, config.seed)[number % count]
    cycle, step = divmod(number, most)
    step += random.Random(f"{config.seed} {sample.number}").randrange(most)
    turn = step * count // most
    if (step + 1) * count // most == turn:
        return None
    return caption_order(sample, cycle, config.seed)[turn % count]


def caption_order(sample: TarSample, cycle: int, seed: int) -> list[int]:
    count = len(sample.captions)
    return random.Random(f"{seed} {sample.number} {cycle}").sample(range(count), count)


def drawn(reader: Reader, number: int, most: int, name: int) -> Iterator[tuple[TarSample, int]]:
    """The pairs of one pass in the order in which they are used."""
    config = reader.config
    order = random.Random(f"{config.seed} {name} {number}")
    slices = order.sample(reader.slices, len(reader.slices))
    pairs = (
        (sample, caption)
        for piece in slices
        for sample in reader.samples(piece)
        if (caption := choose_caption(sample, number, most, config)) is not None
    )
    yield from _shuffle(pairs, bufsize=config.shuffle, initial=config.shuffle, rng=order)


def stack(media: Sequence[Pixels]) -> tuple[Tensor, Tensor]:
    """Pixels padded to the longest medium, (B, J, H, W, 3), and which frames are real, (B, J)."""
    longest = max(len(pixels) for pixels in media)
    padded = np.zeros((len(media), longest, *media[0].shape[1:]), dtype=np.uint8)
    mask = np.zeros((len(media), longest), dtype=bool)
    for i, pixels in enumerate(media):
        padded[i, : len(pixels)] = pixels
        mask[i, : len(pixels)] = True
    return torch.from_numpy(padded), torch.from_numpy(mask)

"""One reader of the training loader: its share of the shards, decoded, in an order that depends on the seed only.

A reader goes through its share in passes: the slices in random order, then a shuffle buffer over samples that are not
decoded yet. In each pass a medium comes at most once, with one of its captions, so that two captions of a medium
seldom meet in a batch. A position is (pass, pairs drawn in it): to resume, the order is replayed without decoding.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from webdataset.filters import _shuffle

from auditor.train.tarshards import Slice, TarSample, read_slice
from model.pixels import DecodeError, Limits, Pixels, PixelSpec, decode_image, fit_to

Captions = Literal["all", "one", "join"]


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
class Failure:
    """A sample that gave no pixels."""

    number: int
    shard: str
    key: str
    reason: str
    message: str


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

    return np.stack(decode_frames(media, config.frames, config.limits, config.pixels).images)


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
    longest = max((len(pixels) for pixels in media), default=0)
    shape = media[0].shape[1:] if media else (0, 0, 3)
    padded = np.zeros((len(media), longest, *shape), dtype=np.uint8)
    mask = np.zeros((len(media), longest), dtype=bool)
    for i, pixels in enumerate(media):
        padded[i, : len(pixels)] = pixels
        mask[i, : len(pixels)] = True
    return torch.from_numpy(padded), torch.from_numpy(mask)

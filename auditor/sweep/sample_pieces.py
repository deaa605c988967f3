"""Describe decoded samples in pieces: their captions' tokens, and their rows with all facts but the vectors.

This runs in a thread of its own, so that the encoder's thread has little else to do than to encode. Pieces are cut by
position alone, so the same shard always gives the same file.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow.compute as pc

from auditor.corpus.sample import Problem
from auditor.sweep.caption_tokens import tokenize_samples
from auditor.sweep.sample_rows import build_fact_table, count_rows
from auditor.sweep.sweep_events import DecodedSample, DecodeEvent, FramePart, SamplePiece, ShardEnd, SweepEvent
from auditor.workers.decoder_pool import Decoded
from model.backbone import Backbone
from model.pixels import Pixels

PIECE = 1024  # samples encoded and written together: a multiple of TOKENIZED
PIECE_VECTORS = 50_000  # a piece with more frames and texts than this has fewer samples
TOKENIZED = 64  # samples whose captions are tokenized together


def describe_samples(backbone: Backbone, events: Iterable[DecodeEvent]) -> Generator[SweepEvent, None, None]:
    """Pass frames on, and put the samples together in pieces."""
    cutter = PieceCutter(backbone)
    frames = 0  # that arrived of the sample that comes next
    for event in events:
        if isinstance(event, DecodedSample):
            pixels, sample = take_pixels(event, frames)
            frames = 0
            if len(pixels):
                yield FramePart(pixels)
            del pixels
            yield from cutter.add(sample)
            continue
        if isinstance(event, FramePart):
            frames += len(event.pixels)
        elif isinstance(event, ShardEnd):
            yield from cutter.finish()
        else:  # a shard that starts, or fails: what came of it before does not count
            frames, cutter = 0, PieceCutter(backbone)
        yield event


def take_pixels(decoded: DecodedSample, frames: int) -> tuple[Pixels, DecodedSample]:
    """Return the pixels of a sample, and the sample without them, so that the memory of the decoder is free soon."""
    medium = decoded.medium
    if isinstance(medium, Problem):
        return NO_PIXELS, replace(decoded, frames=frames)
    return medium.pixels, replace(decoded, medium=medium.without_pixels(), frames=frames + len(medium.pixels))


NO_PIXELS: Pixels = np.zeros((0, 0, 0, 3), np.uint8)


class PieceCutter:
    """Collects the samples of one shard and cuts them into pieces.

    A piece ends with the sample whose frames were passed on last: the encoder takes all frames before a piece for it.
    """

    def __init__(self, backbone: Backbone) -> None:
        self.backbone = backbone
        self.samples: list[DecodedSample] = []
        self.without_tokens: list[DecodedSample] = []  # that come after these
        self.vectors = 0

    def add(self, decoded: DecodedSample) -> Iterator[SamplePiece]:
        self.without_tokens.append(decoded)
        self.vectors += decoded.frames
        if len(self.without_tokens) == TOKENIZED or self.vectors >= PIECE_VECTORS:
            self._tokenize()
            if len(self.samples) >= PIECE or self.vectors >= PIECE_VECTORS:
                yield from self.finish()

    def _tokenize(self) -> None:
        samples, self.without_tokens = add_tokens(self.backbone, self.without_tokens), []
        self.samples += samples
        self.vectors += sum(len(decoded.texts.tokens) for decoded in samples if decoded.texts)

    def finish(self) -> Iterator[SamplePiece]:
        self._tokenize()
        samples, self.samples, self.vectors = self.samples, [], 0
        if samples:
            yield build_piece(samples)


def add_tokens(backbone: Backbone, samples: Sequence[DecodedSample]) -> list[DecodedSample]:
    """The samples with the tokens of their captions, if their media were decoded."""
    usable = [isinstance(decoded.medium, Decoded) for decoded in samples]
    captions = [decoded.sample.captions for decoded, use in zip(samples, usable, strict=True) if use]
    texts = iter(tokenize_samples(backbone, captions))
    return [
        replace(decoded, texts=next(texts)) if use else decoded for decoded, use in zip(samples, usable, strict=True)
    ]


def build_piece(samples: Sequence[DecodedSample]) -> SamplePiece:
    facts = build_fact_table(samples)
    usable = pc.equal(facts["status"], "ok").to_numpy()
    texts, start = [], 0
    for decoded, count in zip(samples, count_rows(samples), strict=True):
        rows = usable[start : start + count]
        start += count
        if decoded.texts is not None and rows.any():
            texts.append(decoded.texts if rows.all() else decoded.texts.select(rows))
    return SamplePiece(samples, facts, texts)

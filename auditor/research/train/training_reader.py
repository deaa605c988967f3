"""Reads and decodes the samples of one training process, in an order that depends only on the seed, and caches pixels.

A process reads its share in passes: the slices in random order, then a shuffle buffer over samples that are not decoded
yet. In each pass a medium occurs at most once, with one of its captions, so two captions of a medium are rarely in one
batch. A position is (pass, pairs drawn in it). To resume, the order is replayed without decoding.
"""

import math
import random
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Literal

import webdataset

from auditor.corpus.open_corpus import OpenShard
from auditor.corpus.read_medium import MediaError
from auditor.corpus.sample import Problem, Sample, Span
from auditor.research.train.training_shards import CountedShards, ShardSlice, TrainError, assign_slices
from auditor.sweep.prefetch import Prefetch
from auditor.workers.decoder_pool import Decoded, DecoderPool
from model.pixels import Pixels
from model.training.training_processes import ProcessGroup

Captions = Literal["all", "one", "best", "join"]
Position = tuple[int, int]  # (pass, pairs drawn in it)
AHEAD_BYTES = 64 << 20  # bytes of files that are read ahead of the decoders
MEDIUM_BITS = (1 << 62) - 1
DRAW_BYTES = 64 << 10  # assumed size of a pair without a file: about a thousand are drawn ahead


@dataclass(frozen=True, slots=True)
class LoaderConfig:
    """Settings of a loader. `batch` is the number of pairs in a batch of this process."""

    batch: int
    captions: Captions = "all"
    find_best: Callable[[Sample], int] | None = None  # the caption of a sample, with "best"
    shuffle: int = 2000
    cache_bytes: int = 0  # of this process; 0: no cache
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Draw:
    """A medium with the caption, or captions, that were drawn for it."""

    number: int  # of the sample
    sample: Sample
    captions: tuple[int, ...]  # indices of the sample's captions; several are joined
    position: Position = (0, 0)  # in the order, after this pair

    @property
    def caption(self) -> str:
        return " ".join(self.sample.captions[index] for index in self.captions)

    @property
    def span(self) -> Span | None:
        """The span of its captions; None (the whole medium) if their spans differ."""
        spans = {self.sample.spans[index] for index in self.captions} if self.sample.spans else {None}
        return spans.pop() if len(spans) == 1 else None

    @property
    def medium(self) -> int:
        """A number that is equal for pairs of the same medium in all processes; a span is a medium of its own."""
        span = self.span
        if span is None:
            return self.number
        times = (math.inf if math.isnan(time) else time for time in (span.start, span.end))  # NaN does not equal NaN
        return -1 - (hash((self.number, *times)) & MEDIUM_BITS)


@dataclass(frozen=True, slots=True)
class TrainingFailure:
    """A sample, or a span of one, that could not be decoded."""

    number: int  # of the medium: Draw.medium
    shard: str
    key: str
    reason: str
    message: str


FileContent = bytes | Problem | None  # the file's bytes, why they cannot be read, or None if they are not needed
NumberedSample = tuple[int, Sample, FileContent]
DecodeTask = tuple[Draw, FileContent]


@dataclass
class TrainingReader:
    """Reads and decodes the slices of one process, and caches pixels up to a size limit."""

    corpus: CountedShards
    pool: DecoderPool
    config: LoaderConfig
    processes: ProcessGroup
    failures: dict[int, TrainingFailure]  # by medium; grows
    cached_pixels: dict[int, Pixels] = field(default_factory=dict)  # by medium
    contents: dict[ShardSlice, list[tuple[int, Sample]]] = field(default_factory=dict)  # only when caching
    used_bytes: int = 0

    def __post_init__(self) -> None:
        self.slices = assign_slices(len(self.corpus.shards), self.processes.rank, self.processes.size)
        self.passes = self.corpus.most_captions if self.config.captions == "all" else 1  # of a cycle, or epoch

    def samples(self, piece: ShardSlice) -> Iterator[NumberedSample]:
        """The samples of a slice in a fixed order: from memory if all its pixels are cached, else from the shard."""
        cached = self.contents.get(piece)
        if cached is not None and all(self.is_done(*sample) for sample in cached):
            yield from ((*sample, None) for sample in cached)
            return
        with self.corpus.shards[piece.shard].open() as opened:
            contents = piece.samples(opened)
            if self.config.cache_bytes:
                self.contents[piece] = contents
            for number, sample in contents:
                yield number, sample, None if self.is_done(number, sample) else read_media_bytes(opened, sample)

    def is_done(self, number: int, sample: Sample) -> bool:
        """Whether a sample's file is no longer needed; for a video with timed captions, by none of its spans."""
        captions = range(len(sample.captions))
        together = [tuple(captions)] if self.config.captions == "join" else [(index,) for index in captions]
        media = {Draw(number, sample, chosen).medium for chosen in together} if sample.spans else {number}
        return all(medium in self.cached_pixels or medium in self.failures for medium in media)

    def decode(self, tasks: Generator[DecodeTask, None, None]) -> Iterator[tuple[Draw, Pixels | None]]:
        """Pixels (J, H, W, 3) of each draw, in the order of draws; None for a medium that failed (`failures`).

        A thread reads files ahead; the processes of the pool decode them.
        """
        ahead = Prefetch(tasks, measure_task_size, AHEAD_BYTES)
        try:
            # A medium without spans is decoded whole.
            work = (
                (draw, content, draw.sample.media.kind, [draw.span] if draw.sample.spans else [])
                for draw, content in ahead
                if draw.sample.media
            )
            for draw, decoded in self.pool.map_spans(work, lookahead=max(64, 2 * self.config.batch)):
                yield draw, self.settle(draw, decoded.pixels if isinstance(decoded, Decoded) else decoded)
        finally:
            ahead.close()

    def settle(self, draw: Draw, result: Pixels | Problem | None) -> Pixels | None:
        """The pixels of a draw, or None, decided in the order of draws: a resumed run then decides in the same way."""
        number, sample = draw.medium, draw.sample
        if number in self.failures:
            return None
        if number in self.cached_pixels:
            return self.cached_pixels[number]
        assert result is not None  # only cached and failed media are not read
        if isinstance(result, Problem):
            self.failures[number] = TrainingFailure(number, sample.shard, sample.key, result.status, result.message)
            return None
        if self.used_bytes + result.nbytes <= self.config.cache_bytes:
            self.cached_pixels[number] = result
            self.used_bytes += result.nbytes
        return result


def read_media_bytes(opened: OpenShard, sample: Sample) -> bytes | Problem:
    assert sample.media is not None  # the sample is usable
    try:
        return opened.read(sample.media)
    except (MediaError, OSError) as error:
        return Problem("missing_media", str(error))


def measure_task_size(task: DecodeTask) -> int:
    return len(task[1]) if isinstance(task[1], bytes) else DRAW_BYTES


def choose_captions(number: int, captions: int, pass_number: int, passes: int, config: LoaderConfig) -> tuple[int, ...]:
    """Which of its `captions` captions medium `number` has in pass `pass_number`; empty if it is not in this pass.

    With "all", an epoch has `passes` passes. A medium with n captions is in n of them, evenly spread, with each caption
    once. Otherwise it is in every pass, with its captions in turn ("one") or together ("join").
    """
    if config.captions == "join":
        return tuple(range(captions))
    if captions == 1 and (passes == 1 or config.captions == "one"):
        return (0,)
    if config.captions == "one":
        cycle, place = divmod(pass_number, captions)
    else:
        cycle, step = divmod(pass_number, passes)
        step += random.Random(f"{config.seed} {number}").randrange(passes)
        place = step * captions // passes
        if (step + 1) * captions // passes == place:
            return ()
    return (random.Random(f"{config.seed} {number} {cycle}").sample(range(captions), captions)[place % captions],)


def pick_captions(reader: TrainingReader, number: int, sample: Sample, pass_number: int) -> tuple[int, ...]:
    config = reader.config
    if config.find_best is not None:
        return (config.find_best(sample),)
    return choose_captions(number, len(sample.captions), pass_number, reader.passes, config)


def draw_pass(reader: TrainingReader, pass_number: int) -> Iterator[DecodeTask]:
    config = reader.config
    order = random.Random(f"{config.seed} {reader.processes.rank} {pass_number}")
    slices = order.sample(reader.slices, len(reader.slices))
    tasks = (
        (number, sample, chosen, content)
        for piece in slices
        for number, sample, content in reader.samples(piece)
        if (chosen := pick_captions(reader, number, sample, pass_number))
    )
    shuffled = webdataset.shuffle(config.shuffle, initial=config.shuffle, rng=order)(tasks)
    for offset, (number, sample, chosen, content) in enumerate(shuffled, start=1):
        yield Draw(number, sample, chosen, (pass_number, offset)), content


def draw_passes(reader: TrainingReader, start: Position) -> Generator[DecodeTask, None, None]:
    """Draw pass after pass from a position on, without end."""
    first, skip = start
    drawn = first  # in this cycle; a resumed run has drawn before
    for pass_number in count(first):
        for task in draw_pass(reader, pass_number):
            drawn += 1
            if skip:
                skip -= 1
            else:
                yield task
        if (pass_number + 1) % reader.passes == 0:
            if not drawn:
                raise TrainError("a training process has no samples: there are fewer samples than processes")
            drawn = 0

"""What a training process reads, in an order that depends on the seed only, and the pixels it keeps.

A process goes through its share in passes: the slices in random order, then a shuffle buffer over samples that are not
decoded yet. In each pass a medium comes at most once, with one of its captions, so that two captions of a medium
seldom meet in a batch. A position is (pass, pairs drawn in it): to resume, the order is replayed without decoding.
"""

import math
import random
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import webdataset

from auditor.corpus.open_corpus import OpenShard, Shard
from auditor.corpus.read_medium import MediaError
from auditor.corpus.sample import Kind, Problem, Sample, Span
from auditor.research.train.training_shards import LoaderError, Slice
from auditor.sweep.prefetch import Prefetch
from auditor.workers.decoder_pool import Decoded, DecoderPool, Stream
from model.pixels import Pixels

Captions = Literal["all", "one", "join"]
Position = tuple[int, int]  # (pass, pairs drawn in it)
AHEAD_BYTES = 64 << 20  # of files that are read ahead of the decoders
MEDIUM_BITS = (1 << 62) - 1
DRAW_BYTES = 64 << 10  # what a pair without a file counts for: about a thousand are drawn ahead


@dataclass(frozen=True, slots=True)
class LoaderConfig:
    """What is read and how. `batch` is the number of pairs this process gets at a time."""

    batch: int
    captions: Captions = "all"
    shuffle: int = 2000
    cache_bytes: int = 0  # of this process; 0: nothing is kept
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Draw:
    """A medium with the caption, or captions, that it comes with this time."""

    number: int  # of the medium
    sample: Sample
    captions: tuple[int, ...]  # which of the sample's; several are joined
    position: Position = (0, 0)  # of the order, after this pair

    @property
    def caption(self) -> str:
        return " ".join(self.sample.captions[index] for index in self.captions)

    @property
    def span(self) -> Span | None:
        """What its captions are about; the whole medium where they are about different spans."""
        spans = {self.sample.spans[index] for index in self.captions} if self.sample.spans else {None}
        return spans.pop() if len(spans) == 1 else None

    @property
    def medium(self) -> int:
        """Equal for pairs of the same medium, also in another process; a span is a medium of its own."""
        span = self.span
        if span is None:
            return self.number
        times = (math.inf if math.isnan(time) else time for time in (span.start, span.end))  # no NaN equals another
        return -1 - (hash((self.number, *times)) & MEDIUM_BITS)


@dataclass(frozen=True, slots=True)
class Failure:
    """A sample, or a span of one, that gave no pixels."""

    number: int  # of the medium: Draw.medium
    shard: str
    key: str
    reason: str
    message: str


Found = bytes | Problem | None  # the file, why it cannot be had, or None where it is not needed
Read = tuple[int, Sample, Found]
Task = tuple[Draw, Found]


@dataclass
class Reader:
    """Reads and decodes the slices of one process, and keeps pixels while they fit into its budget."""

    shards: Sequence[Shard]
    slices: Sequence[Slice]
    pool: DecoderPool
    config: LoaderConfig
    kept: dict[int, Pixels] = field(default_factory=dict)  # by medium
    failed: set[int] = field(default_factory=set)
    contents: dict[Slice, list[tuple[int, Sample]]] = field(default_factory=dict)  # only when caching
    used: int = 0

    def samples(self, piece: Slice) -> Iterator[Read]:
        """The samples of a slice in fixed order: from memory when all its pixels are there, else from the shard."""
        known = self.contents.get(piece)
        if known is not None and all(self.is_done(number, sample) for number, sample in known):
            yield from ((number, sample, None) for number, sample in known)
            return
        with self.shards[piece.shard].open() as opened:
            contents = list(piece.samples(opened))
            if self.config.cache_bytes:
                self.contents[piece] = contents
            for number, sample in contents:
                yield number, sample, None if self.is_done(number, sample) else read(opened, sample)

    def is_done(self, number: int, sample: Sample) -> bool:
        """Whether nothing of a sample needs its file: of a video with timed captions, none of its spans."""
        captions = range(len(sample.captions))
        together = [tuple(captions)] if self.config.captions == "join" else [(index,) for index in captions]
        media = {Draw(number, sample, chosen).medium for chosen in together} if sample.spans else {number}
        return all(medium in self.kept or medium in self.failed for medium in media)

    def decoded(self, tasks: Generator[Task, None, None]) -> Iterator[tuple[Draw, Pixels | Failure | None]]:
        """Pixels (J, H, W, 3) of each draw in its turn; None for a sample that failed before.

        Reading runs ahead in a thread, decoding in the processes of the pool.
        """
        ahead = Prefetch(tasks, weigh, AHEAD_BYTES)
        try:
            work = ((draw, asked(draw, found), kind_of(draw)) for draw, found in ahead)
            for draw, result in self.pool.map(work, lookahead=max(64, 2 * self.config.batch)):
                done = result.collected() if isinstance(result, Stream) else result
                yield draw, self.settle(draw, done.pixels if isinstance(done, Decoded) else done)
        finally:
            ahead.close()

    def settle(self, draw: Draw, result: Pixels | Problem | None) -> Pixels | Failure | None:
        """What becomes of a draw. Its turn decides, not the moment of decoding: so a resumed run decides alike."""
        number = draw.medium
        if number in self.failed:
            return None
        if number in self.kept:
            return self.kept[number]
        assert result is not None  # only what is kept, or has failed, is not read
        if isinstance(result, Problem):
            self.failed.add(number)
            return Failure(number, draw.sample.shard, draw.sample.key, result.status, result.message)
        if self.used + result.nbytes <= self.config.cache_bytes:
            self.kept[number] = result
            self.used += result.nbytes
        return result


def asked(draw: Draw, found: Found) -> Found | Stream:
    """The file, or of a timed caption its span."""
    return Stream(found, [draw.span]) if draw.sample.spans and isinstance(found, bytes) else found


def read(opened: OpenShard, sample: Sample) -> bytes | Problem:
    assert sample.media is not None  # it is usable
    try:
        return opened.read(sample.media)
    except (MediaError, OSError) as error:
        return Problem("missing_media", str(error))


def weigh(task: Task) -> int:
    return len(task[1]) if isinstance(task[1], bytes) else DRAW_BYTES


def kind_of(draw: Draw) -> Kind:
    return draw.sample.media.kind if draw.sample.media else "image"


def choose_captions(number: int, count: int, turn: int, most: int, config: LoaderConfig) -> tuple[int, ...]:
    """Which of its `count` captions medium `number` comes with in pass `turn`; none if it is not in this pass.

    With "all", `most` passes make an epoch: a medium with n captions takes part in n of them, evenly spread, with each
    caption once. Otherwise it takes part in every pass, and its captions take turns or come together.
    """
    if config.captions == "join":
        return tuple(range(count))
    if count == 1 and (most == 1 or config.captions == "one"):
        return (0,)
    if config.captions == "one":
        return (caption_order(number, count, turn // count, config.seed)[turn % count],)
    cycle, step = divmod(turn, most)
    step += random.Random(f"{config.seed} {number}").randrange(most)
    place = step * count // most
    if (step + 1) * count // most == place:
        return ()
    return (caption_order(number, count, cycle, config.seed)[place % count],)


def caption_order(number: int, count: int, cycle: int, seed: int) -> list[int]:
    return random.Random(f"{seed} {number} {cycle}").sample(range(count), count)


def draw_pass(reader: Reader, turn: int, most: int, name: int) -> Iterator[Task]:
    """The pairs of one pass in the order in which they are used."""
    config = reader.config
    order = random.Random(f"{config.seed} {name} {turn}")
    slices = order.sample(reader.slices, len(reader.slices))
    tasks = (
        (number, sample, chosen, found)
        for piece in slices
        for number, sample, found in reader.samples(piece)
        if (chosen := choose_captions(number, len(sample.captions), turn, most, config))
    )
    shuffled: Iterable[tuple[int, Sample, tuple[int, ...], Found]] = webdataset.shuffle(
        config.shuffle, initial=config.shuffle, rng=order
    )(tasks)
    for offset, (number, sample, chosen, found) in enumerate(shuffled, start=1):
        yield Draw(number, sample, chosen, (turn, offset)), found


def draw_forever(reader: Reader, start: Position, most: int, name: int) -> Generator[Task, None, None]:
    """Pass after pass, from a position on; `most` of them make a cycle in which every sample comes."""
    turn, skip = start
    drawn = turn  # in this cycle; a run that is resumed has drawn before
    while True:
        for task in draw_pass(reader, turn, most, name):
            drawn += 1
            if skip:
                skip -= 1
            else:
                yield task
        turn += 1
        if turn % most == 0:
            if not drawn:
                raise LoaderError("a training process has no samples: there are fewer of them than processes")
            drawn = 0

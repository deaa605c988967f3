"""The training loader: WebDataset shards to batches of pixels and captions, split by training process and reader.

A reader is a decoding process of a training process (or that process itself), and owns a fixed share of the shards;
what it reads, and in which order, is in auditor/train/reader.py. The loader knows where each of its readers is, so
that a run that was killed goes on with the very batch that would have come next.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from math import gcd
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from auditor.train.reader import Captions, Failure, LoaderConfig, Reader, drawn, stack
from auditor.train.tarshards import ShardCount, Slice, TarSample, count_shard, list_shards
from model.errors import ModelError
from model.pixels import Pixels
from model.training.processes import World


class LoaderError(ModelError):
    """Data that cannot be loaded."""


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
class Batch:
    """Pairs ready for the encoders; an image is a video of one frame."""

    pixels: Tensor  # (B, J, H, W, 3) uint8
    mask: Tensor  # (B, J) bool, False for padding
    numbers: list[int]  # equal for pairs of the same medium
    keys: list[str]
    caption_index: list[int]
    captions: list[str]
    failures: list[Failure]  # met since the batch before
    reader: int
    position: "Position"  # of the reader, after this batch

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


Position = tuple[int, int]  # (pass, pairs drawn in it)


class Readers(IterableDataset[Any]):
    """The readers of one training process; in a decoding process, the one of them that lives there."""

    def __init__(self, shards: Shards, config: LoaderConfig, world: World) -> None:
        self.urls, self.config = shards.urls, config
        self.most = shards.most_captions if config.captions == "all" else 1
        self.count = max(1, config.workers)
        total = world.size * self.count
        self.shares = [assign_slices(len(shards.urls), world.rank * self.count + i, total) for i in range(self.count)]
        self.name = world.rank * self.count
        self.reader: Reader | None = None  # stays with its cache while its process lives

    def here(self, turn: int = 0) -> tuple[int, Reader]:
        """The reader of this process. The first process takes `turn`, because torch asks it first."""
        info = get_worker_info()
        index = ((info.id if info else 0) + turn) % self.count
        if self.reader is None:
            self.reader = Reader(self.urls, self.config, self.shares[index], self.config.cache_bytes // self.count)
        return index, self.reader


class PairStream(Readers):
    """Endless training batches."""

    def __init__(self, shards: Shards, config: LoaderConfig, world: World, start: list[Position], turn: int) -> None:
        super().__init__(shards, config, world)
        self.start, self.turn = start, turn

    def __iter__(self) -> Iterator["Batch | Broken"]:
        index, reader = self.here(self.turn)
        try:
            yield from self.batches(index, reader)
        except ModelError as error:
            yield Broken(str(error))

    def batches(self, index: int, reader: Reader) -> Iterator["Batch"]:
        pairs: list[tuple[TarSample, int, Pixels]] = []
        failures: list[Failure] = []
        number, skip = self.start[index]
        good = number  # of this epoch's passes; a run that is resumed has seen good ones
        while True:
            for offset, (sample, caption) in enumerate(drawn(reader, number, self.most, self.name + index)):
                if offset < skip:
                    good += 1  # it was looked at before the run stopped
                    continue
                pixels = reader.decode(sample)
                if isinstance(pixels, Failure):
                    failures.append(pixels)
                elif pixels is not None:
                    good += 1
                    pairs.append((sample, caption, pixels))
                if len(pairs) == self.config.batch:
                    yield assemble(pairs, failures, index, (number, offset + 1))
                    pairs, failures = [], []
            number, skip = number + 1, 0
            if number % self.most == 0:
                if not good:
                    raise LoaderError(nothing_decodes(reader, failures))
                good = 0


def assemble(
    pairs: list[tuple[TarSample, int, Pixels]], failures: list[Failure], reader: int, position: Position
) -> "Batch":
    pixels, mask = stack([pixels for _, _, pixels in pairs])
    return Batch(
        pixels=pixels,
        mask=mask,
        numbers=[sample.number for sample, _, _ in pairs],
        keys=[sample.key for sample, _, _ in pairs],
        caption_index=[caption for _, caption, _ in pairs],
        captions=[sample.captions[caption] for sample, caption, _ in pairs],
        failures=failures,
        reader=reader,
        position=position,
    )


def nothing_decodes(reader: Reader, failures: list[Failure]) -> str:
    if not reader.slices or not (failures or reader.failed):
        return "a reader has no samples: there are fewer samples than training processes times decoders"
    why = f" (first: {failures[0].key} in {failures[0].shard}: {failures[0].message})" if failures else ""
    return f"no medium of the shards could be decoded{why}"


class MediaStream(Readers):
    """Every medium of the share once, in order, with all its captions."""

    def __iter__(self) -> Iterator["MediaBatch | Broken"]:
        _, reader = self.here()
        try:
            yield from self.batches(reader)
        except ModelError as error:
            yield Broken(str(error))

    def batches(self, reader: Reader) -> Iterator["MediaBatch"]:
        media: list[tuple[TarSample, Pixels]] = []
        failures: list[Failure] = []
        for piece in reader.slices:
            for sample in reader.samples(piece):
                pixels = reader.decode(sample)
                if isinstance(pixels, Failure):
                    failures.append(pixels)
                elif pixels is not None:
                    media.append((sample, pixels))
                if len(media) == self.config.batch:
                    yield media_batch(media, failures)
                    media, failures = [], []
        if media or failures:
            yield media_batch(media, failures)


def media_batch(media: list[tuple[TarSample, Pixels]], failures: list[Failure]) -> "MediaBatch":
    pixels, mask = stack([pixels for _, pixels in media])
    numbers, captions = [s.number for s, _ in media], [s.captions for s, _ in media]
    return MediaBatch(pixels, mask, numbers, captions, failures)


def torch_loader(stream: Readers, workers: int) -> Iterator[Any]:
    """What the stream yields, from its decoding processes in turn; errors as one line."""
    loader = DataLoader(stream, batch_size=None, num_workers=workers, prefetch_factor=2 if workers else None)
    try:
        for item in loader:
            if isinstance(item, Broken):
                raise LoaderError(item.message)
            yield item
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise LoaderError(
            "a decoding process died, killed by the system or by a file that crashes the decoder; "
            "audit the corpus to find it, or lower decoders"
        ) from error


class PairLoader:
    """Iterates over training batches without end and knows where it is."""

    def __init__(
        self,
        shards: Shards,
        config: LoaderConfig,
        world: World = World(),  # noqa: B008 (frozen)
        state: dict[str, Any] | None = None,
    ) -> None:
        self.count = max(1, config.workers)
        state = state or {"positions": [(0, 0)] * self.count, "turn": 0, "failures": []}
        self.positions: list[Position] = [(at[0], at[1]) for at in state["positions"]]
        self.turn: int = state["turn"]
        self.failures = {f["number"]: Failure(**f) for f in state["failures"]}
        if len(self.positions) != self.count:
            raise LoaderError(f"the run was started with {len(self.positions)} decoding processes, not {self.count}")
        self.stream = PairStream(shards, config, world, list(self.positions), self.turn)
        self.workers = config.workers

    def __iter__(self) -> Iterator["Batch"]:
        for batch in torch_loader(self.stream, self.workers):
            self.positions[batch.reader] = batch.position
            self.turn = (batch.reader + 1) % self.count
            self.failures.update((failure.number, failure) for failure in batch.failures)
            yield batch

    def state(self) -> dict[str, Any]:
        """Where the readers are, as JSON: a loader made with it goes on with the next batch."""
        return {
            "positions": [list(position) for position in self.positions],
            "turn": self.turn,
            "failures": [asdict(failure) for failure in self.failures.values()],
        }


class MediaLoader:
    """Iterates over the media of a validation corpus; each iteration starts anew."""

    def __init__(self, shards: Shards, config: LoaderConfig, world: World = World()) -> None:  # noqa: B008 (frozen)
        # Decoding processes end with each iteration, and what they kept with them.
        self.stream = MediaStream(shards, replace(config, cache_bytes=0) if config.workers else config, world)
        self.workers = config.workers
        self.failures: dict[int, Failure] = {}

    def __iter__(self) -> Iterator["MediaBatch"]:
        for batch in torch_loader(self.stream, self.workers):
            self.failures.update((failure.number, failure) for failure in batch.failures)
            if batch.numbers:
                yield batch

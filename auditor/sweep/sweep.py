"""The expensive pass: every sample of a shard read, decoded, encoded and written to embeddings/<shard>.parquet.

Three things run at once: a thread opens the next shard, a thread keeps the decoder processes busy and tokenises, and
the caller's thread encodes; finished files are published by a fourth. Batches never cross shards, so a shard's file
does not depend on what was swept before it, by whom, or on how many machines.
"""

import json
import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial

from auditor.audit_folder.embeddings import file_name
from auditor.audit_folder.folder import Folder
from auditor.corpus.sample import Kind, Problem, Sample, by_span
from auditor.corpus.shard import OpenShard, Shard
from auditor.errors import AuditorError
from auditor.sweep.embeddings_writer import CHANGED, READINGS, Begin, ShardReport, Watch
from auditor.sweep.prefetch import Prefetch
from auditor.sweep.sample_rows import digest
from auditor.sweep.shard_encoder import Outcome, Part, ShardFile
from auditor.workers.decoder_pool import Decoded, DecoderPool, Stream
from model.backbone import Backbone
from model.pixels import Limits, PixelSpec
from model.precision import Precision

AHEAD = 256 * 2**20  # bytes of decoded pixels waiting for the encoder
CONTEXT = 30.0  # seconds: as far as captions are looked for a shift
PUBLISHING = 2  # finished files on their way to storage at once


@dataclass(frozen=True)
class SweepConfig:
    """Settings of the sweep. The first five change what is measured, the rest how fast, and what fails."""

    frames: int = 12
    exact_pixels: bool = False  # byte for byte what open_clip's own transform makes, at less than half the rate
    context: float = CONTEXT  # seconds around the spans of timed captions that are looked at, too
    motion: bool = False  # whether videos are decoded densely, for cuts and motion
    precision: Precision = "float32"  # of the encoder
    compiled: bool = False  # by torch.compile
    batch_size: int = 32
    decoders: int = 2
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.frames < 1:
            raise AuditorError(f"--frames is a number of frames from 1 on, not {self.frames}")
        if not 0 <= self.context < math.inf:
            raise AuditorError(f"--context is a number of seconds from 0 on, not {self.context:g}")

    def decoder_pool(self, pixels: PixelSpec, workers: int) -> DecoderPool:
        asked = self.exact_pixels, self.motion, True
        return DecoderPool(pixels, self.frames, workers, self.limits, *asked)

    def meaning(self) -> dict[str, object]:
        """What may not change within an audit."""
        # as before there were such settings: without them an old audit goes on
        usual = {"exact_pixels": True, "context": CONTEXT, "motion": False, "precision": "float32"}
        chosen = {name: getattr(self, name) for name in usual}
        return {"frames": self.frames, **{name: value for name, value in chosen.items() if value != usual[name]}}


@dataclass(frozen=True, slots=True)
class End:
    shard: str


@dataclass(frozen=True, slots=True)
class Failed:
    shard: str
    message: str


@dataclass(frozen=True, slots=True)
class Opened:
    source: Shard
    fingerprint: str  # taken before a byte was read
    contents: OpenShard
    closing: ExitStack


Event = Begin | Part | Outcome | End | Failed


def settings(backbone: Backbone, config: SweepConfig) -> str:
    """Fingerprint of all that gives a swept file its meaning; a file with another one is swept again."""
    meaning = {"model": backbone.fingerprint, "pixels": backbone.pixels.to_dict(), **config.meaning()}
    return digest(json.dumps(meaning, sort_keys=True).encode())


def earlier(folder: Folder, shard: Shard, wanted: str) -> ShardReport | None:
    """The report of a shard that was swept before, from the same content and with the same settings."""
    stored = folder.table_metadata(file_name(shard.name))
    if stored.get("settings") != wanted or "report" not in stored:
        return None
    try:
        if stored.get("fingerprint") != shard.fingerprint():
            return None
    except (AuditorError, OSError):  # it is gone; sweeping it will say so
        return None
    if folder.local and folder.is_sound(file_name(shard.name)) is False:  # an object store keeps checksums itself
        return None
    return ShardReport(**json.loads(stored["report"]))


class Sweeper:
    """An encoder and its decoder processes, ready for any number of shards."""

    def __init__(self, backbone: Backbone, folder: Folder, config: SweepConfig):
        self.backbone, self.folder, self.config = backbone, folder, config
        self.settings = settings(backbone, config)
        backbone.compute_in(config.precision, compiled=config.compiled)
        self.pool = config.decoder_pool(backbone.pixels, config.decoders)

    def __enter__(self) -> "Sweeper":
        self.pool.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.pool.__exit__(*error)

    def sweep(self, shards: Iterable[Shard], watch: Watch = lambda rows, errors: None) -> Iterator[ShardReport]:
        """Sweep shards in order, reporting each when its file is in place. `watch` hears of rows as they are done."""
        opened = Prefetch(open_each(shards), weigh=lambda _: 1, budget=1)
        events = Prefetch(self._decode(opened), weigh=_weight, budget=AHEAD)
        encoding = self._encode(events, watch)
        try:
            with ThreadPoolExecutor(1, "publish") as publisher:
                waiting: deque[Future[ShardReport]] = deque()
                for finish in encoding:
                    waiting.append(publisher.submit(finish))
                    while waiting and (len(waiting) > PUBLISHING or waiting[0].done()):
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
        finally:
            encoding.close()
            events.close()
            for unused in opened.close():
                if isinstance(unused, Opened):
                    unused.closing.close()

    def _decode(self, opened: Iterable[Opened | Failed]) -> Generator[Event, None, None]:
        """The samples of the shards in order, decoded, with a mark where each shard begins and ends."""
        for one in opened:
            changed = yield from self._decode_once(one)
            for _ in range(READINGS - 1):
                if changed is not None:
                    changed = yield from self._decode_once(open_shard(changed))
            if changed is not None:
                yield Failed(changed.name, CHANGED)

    def _decode_once(self, one: Opened | Failed) -> Generator[Event, None, Shard | None]:
        """Returns the shard where it is no longer what was opened: all that came of it is to be thrown away."""
        if isinstance(one, Failed):
            yield one
            return None
        shard = one.source
        with one.closing:
            samples = one.contents.samples
            own = any(sample.uid for sample in samples)
            yield Begin(shard.name, one.fingerprint, len(samples), tuple(one.contents.problems), own)
            end: Event = End(shard.name)
            try:
                yield from map(self._tokenise, decode_stream(one.contents, self.pool, self.config.context))
            except (AuditorError, OSError) as error:
                end = Failed(shard.name, str(error))
            try:
                if shard.fingerprint() != one.fingerprint:
                    return shard
            except (AuditorError, OSError) as error:  # gone in the meantime
                end = Failed(shard.name, str(error))
            yield end
        return None

    def _tokenise(self, event: Part | Outcome) -> Part | Outcome:
        """With the tokens of its captions, made here because the encoder's thread has better things to do."""
        if isinstance(event, Outcome) and isinstance(event.result, Decoded):
            tokens = self.backbone.tokens(event.sample.captions)
            return replace(event, tokens=tokens, counts=self.backbone.token_counts(tokens, event.sample.captions))
        return event

    def _encode(self, events: Iterable[Event], watch: Watch) -> Generator[Callable[[], ShardReport], None, None]:
        """Encode what was decoded; yields for each shard the function that publishes its file and reports."""
        file: ShardFile | None = None
        try:
            for event in events:
                if isinstance(event, Begin):
                    if file is not None:  # the shard has changed and is read again
                        file.discard()
                    file = ShardFile(self.folder, self.backbone, self.config.batch_size, event, self.settings)
                elif isinstance(event, Part) and file is not None:
                    file.add_part(event)
                elif isinstance(event, Outcome) and file is not None:
                    file.add(event, watch)
                elif isinstance(event, End) and file is not None:
                    file.flush(watch)
                    yield file.publish
                    file = None
                elif isinstance(event, Failed):
                    if file is not None:
                        file.discard()
                        file = None
                    yield partial(ShardReport, event.shard, failure=event.message)
        finally:
            if file is not None:
                file.discard()


def open_each(shards: Iterable[Shard]) -> Generator[Opened | Failed, None, None]:
    """Open shards one after another; a remote one is fetched here, while another is being encoded."""
    for shard in shards:
        opened = open_shard(shard)
        try:
            yield opened
        except GeneratorExit:
            if isinstance(opened, Opened):
                opened.closing.close()
            raise


def open_shard(shard: Shard) -> Opened | Failed:
    closing = ExitStack()
    try:
        fingerprint = shard.fingerprint()  # first: what is written from now on shows when it is taken again
        return Opened(shard, fingerprint, closing.enter_context(shard.open()), closing)
    except (AuditorError, OSError) as error:
        closing.close()
        return Failed(shard.name, str(error))


def decode_stream(opened: OpenShard, pool: DecoderPool, context: float) -> Iterator[Part | Outcome]:
    """Every sample of a shard in order, decoded or with its problem; the frames of spans come in parts before it."""
    for sample, found, result in results_in_order(opened, pool, context):
        if isinstance(result, Stream):
            with closing(result):
                yield from (Part(pixels) for pixels in result)
                yield Outcome(sample, found, result.result())
        else:
            yield Outcome(sample, found, result)


def decode_shard(opened: OpenShard, pool: DecoderPool) -> Iterator[Outcome]:
    """Every sample of a shard in order, decoded or with its problem; each span of a video is a sample of its own."""
    samples = [one for sample in opened.samples for one in by_span(sample)]
    for sample, found, result in results_in_order(replace(opened, samples=samples), pool):
        yield Outcome(sample, found, result.collected() if isinstance(result, Stream) else result)


def results_in_order(
    opened: OpenShard, pool: DecoderPool, context: float = 0.0
) -> Iterator[tuple[Sample, str | None, Decoded | Problem | Stream]]:
    """(sample, digest, result) for every sample of a shard; a stream where it has spans."""
    decodable = (sample for sample in opened.samples if sample.problem is None)
    results = pool.map(_task(opened, sample, context) for sample in decodable)
    for sample in opened.samples:
        if sample.problem is not None:
            yield sample, None, sample.problem
            continue
        read, result = next(results)
        yield sample, read.digest, read.problem or result


@dataclass(frozen=True, slots=True)
class Read:
    """What reading a medium's bytes found: their digest, or why there are none."""

    digest: str | None = None
    problem: Problem | None = None


def _task(opened: OpenShard, sample: Sample, context: float) -> tuple[Read, bytes | Stream, Kind]:
    assert sample.media is not None  # a sample without a medium has a problem
    try:
        data = opened.read(sample.media)
    except (AuditorError, OSError) as error:
        return Read(problem=Problem("missing_media", str(error))), b"", sample.media.kind
    task = Stream(data, sample.spans, context) if sample.spans else data
    return Read(digest(data)), task, sample.media.kind


def _weight(event: Event) -> int:
    if isinstance(event, Part):
        return event.pixels.nbytes
    return event.result.pixels.nbytes if isinstance(event, Outcome) and isinstance(event.result, Decoded) else 0

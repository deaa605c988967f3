"""The expensive pass: reads, decodes and encodes every sample of a shard and writes embeddings/<shard>.parquet.

Six things run at once, each in a thread: open the next shard, keep the decoder processes busy, describe samples and
tokenize captions, encode (the caller's thread), write the encoded rows, and publish finished files. Batches never cross
shards, so a shard's file does not depend on what was swept before it, in which process, or on how many machines.
"""

import errno
import gc
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial

from auditor.audit_folder.folder import Folder
from auditor.corpus.corpus_files import digest
from auditor.corpus.sample import Kind, Problem, Sample, split_by_span
from auditor.corpus.shard import OpenShard, Shard
from auditor.errors import AuditorError
from auditor.sweep.corpus_model import fingerprint_sweep
from auditor.sweep.embeddings_writer import CHANGED, READINGS
from auditor.sweep.prefetch import Prefetch
from auditor.sweep.sample_pieces import describe_samples
from auditor.sweep.sampled_shards import skip_swept_samples
from auditor.sweep.shard_encoder import ShardFile
from auditor.sweep.sweep_config import SweepConfig
from auditor.sweep.sweep_events import (
    DecodedSample,
    DecodeEvent,
    FramePart,
    OpenedShard,
    ReadSample,
    SamplePiece,
    ShardEnd,
    ShardFailure,
    ShardReport,
    ShardStart,
    SweepEvent,
    Watch,
)
from auditor.workers.decoder_pool import Decoded, DecoderPool, SpanStream
from model.backbone import Backbone

SampleTask = tuple[DecodedSample | ReadSample, bytes | SpanStream | None, Kind]
ReadTask = SampleTask | tuple[DecodeEvent, None, Kind]
AHEAD = 256 * 2**20  # bytes of decoded pixels that wait for the encoder
OUTAGES = (errno.EBUSY, errno.EREMOTEIO)  # 503 and 500 of S3
PUBLISHING = 2  # finished files that are moved to storage at once


class Sweeper:
    """An encoder and its decoder processes, ready for any number of shards."""

    def __init__(self, backbone: Backbone, folder: Folder, config: SweepConfig):
        self.backbone, self.folder, self.config = backbone, folder, config
        self.settings = fingerprint_sweep(backbone, config)
        if backbone.temporal is not None:
            backbone.temporal.check_frame_count(config.frames)
        backbone.set_precision(config.precision, compiled=config.compiled)
        self.pool = config.open_decoder_pool(backbone.pixels, config.decoders)

    def __enter__(self) -> "Sweeper":
        # A search of all objects of torch and the model for garbage would stop every thread for 0.05 to 0.2 seconds.
        gc.freeze()
        self.pool.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.pool.__exit__(*error)
        gc.unfreeze()

    def sweep(self, shards: Iterable[Shard], watch: Watch = lambda rows, errors: None) -> Iterator[ShardReport]:
        """Sweep shards in order; report each when its file is in place."""
        remaining = (skip_swept_samples(self.folder, shard, self.settings) for shard in shards)
        opened_shards = Prefetch(open_shards(remaining), weigh=lambda _: 1, budget=1)
        decoded = Prefetch(self._decode(opened_shards), weigh=_count_bytes, budget=AHEAD // 2)
        events = Prefetch(describe_samples(self.backbone, decoded), weigh=_count_bytes, budget=AHEAD // 2)
        encoding = self._encode(events, watch)
        try:
            with ThreadPoolExecutor(1, "publish") as publisher:
                waiting: deque[Future[ShardReport]] = deque()
                for publish in encoding:
                    waiting.append(publisher.submit(publish))
                    while waiting and (len(waiting) > PUBLISHING or waiting[0].done()):
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
        finally:
            encoding.close()
            decoded.close()
            events.close()
            for unused in opened_shards.close():
                if isinstance(unused, OpenedShard):
                    unused.closing.close()

    def _decode(self, opened_shards: Prefetch[OpenedShard | ShardFailure]) -> Generator[DecodeEvent, None, None]:
        """Yield the decoded samples of the shards in order, with an event at the start and the end of each shard."""
        for opened in opened_shards:
            unfinished: deque[str] = deque()
            try:
                with closing(self._read_shards(opened, opened_shards, unfinished)) as tasks:
                    for event, result in self.pool.map(tasks, side_work=hash_medium):
                        if isinstance(event, ShardEnd | ShardFailure):
                            unfinished.popleft()
                        yield from complete_event(event, result)
            except (AuditorError, OSError) as error:  # of the decoders; those of reading are events
                yield from (ShardFailure(shard, str(error)) for shard in unfinished)

    def _read_shards(
        self, opened: OpenedShard | ShardFailure, shards: Prefetch[OpenedShard | ShardFailure], names: deque[str]
    ) -> Generator[ReadTask, None, None]:
        """Read a shard, and the next ones as long as they are open by then; append their names.

        So decoders do not run out of files at the end of a shard, and their results never wait for a download.
        """
        while True:
            names.append(opened.shard if isinstance(opened, ShardFailure) else opened.source.name)
            changed = yield from self._read_once(opened)
            for _ in range(READINGS - 1):
                if changed is not None:
                    changed = skip_swept_samples(self.folder, changed, self.settings)
                    changed = yield from self._read_once(open_shard(changed))
            if changed is not None:
                yield ShardFailure(changed.name, CHANGED), None, "image"
            if not shards.has_item:
                return
            opened = next(shards)

    def _read_once(self, opened: OpenedShard | ShardFailure) -> Generator[ReadTask, None, Shard | None]:
        """Read a shard. Returns it if it has changed since it was opened: then its events must be discarded."""
        if isinstance(opened, ShardFailure):
            yield opened, None, "image"
            return None
        shard, contents = opened.source, opened.contents
        with opened.closing:
            own_uids = any(sample.uid for sample in contents.samples)
            problems = tuple(contents.problems)
            keys, mask = len(contents.samples), contents.old_row_mask
            yield ShardStart(shard.name, opened.fingerprint, keys, problems, own_uids, mask), None, "image"
            end: DecodeEvent = ShardEnd()
            try:
                yield from read_samples(contents, self.config.context)
            except (AuditorError, OSError) as error:
                end = ShardFailure(shard.name, str(error))
            try:
                if shard.fingerprint() != opened.fingerprint:
                    return shard
            except (AuditorError, OSError) as error:  # the shard was removed in the meantime
                end = ShardFailure(shard.name, str(error))
            yield end, None, "image"
        return None

    def _encode(self, events: Iterable[SweepEvent], watch: Watch) -> Generator[Callable[[], ShardReport], None, None]:
        """Encode decoded samples; yield for each shard the function that publishes its file and returns its report."""
        file: ShardFile | None = None
        try:
            for event in events:
                if file is not None and isinstance(event, ShardStart | ShardFailure):
                    file.discard()  # if it starts, the shard has changed and is read again
                    file = None
                if isinstance(event, ShardStart):
                    file = ShardFile(self.folder, self.backbone, self.config.batch_size, event, self.settings)
                elif isinstance(event, ShardFailure):
                    yield partial(ShardReport, event.shard, failure=event.message)
                elif isinstance(event, FramePart) and file is not None:
                    file.add_frames(event)
                elif isinstance(event, SamplePiece) and file is not None:
                    file.add_piece(event, watch)
                elif file is not None:
                    file.finish(watch)
                    yield file.publish
                    file = None
        finally:
            if file is not None:
                file.discard()


def open_shards(shards: Iterable[Shard]) -> Generator[OpenedShard | ShardFailure, None, None]:
    """Open shards one after another; a remote shard is downloaded here while another one is encoded."""
    for shard in shards:
        opened = open_shard(shard)
        try:
            yield opened
        except GeneratorExit:
            if isinstance(opened, OpenedShard):
                opened.closing.close()
            raise


def open_shard(shard: Shard) -> OpenedShard | ShardFailure:
    closing = ExitStack()
    try:
        fingerprint = shard.fingerprint()  # before reading, so that a later change is noticed
        return OpenedShard(shard, fingerprint, closing.enter_context(shard.open()), closing)
    except (AuditorError, OSError) as error:
        closing.close()
        return ShardFailure(shard.name, str(error))


def decode_each_span(opened: OpenShard, pool: DecoderPool) -> Iterator[DecodedSample]:
    """Yield every sample of a shard in order, decoded or with its problem; each span of a video is its own sample."""
    samples = [span_sample for sample in opened.samples for span_sample in split_by_span(sample)]
    for sample, result in pool.map(read_samples(replace(opened, samples=samples)), side_work=hash_medium):
        medium = result.collect() if isinstance(result, SpanStream) else result
        yield sample if isinstance(sample, DecodedSample) else sample.complete(medium)


def read_samples(opened: OpenShard, context: float = 0.0) -> Iterator[SampleTask]:
    """Yield every sample of a shard, with what to decode unless the sample has a problem, and its kind."""
    return (read_sample(opened, sample, context) for sample in opened.samples)


def read_sample(opened: OpenShard, sample: Sample, context: float) -> SampleTask:
    if sample.problem is not None:
        return DecodedSample(sample, None, sample.problem), None, "image"
    assert sample.media is not None  # a sample without a medium has a problem
    try:
        data = opened.read(sample.media)
    except (AuditorError, OSError) as error:
        if is_outage(error):
            raise
        return DecodedSample(sample, None, Problem("missing_media", str(error))), None, "image"
    if sample.spans:
        return ReadSample(sample, digest(data)), SpanStream(data, sample.spans, context), sample.media.kind
    return ReadSample(sample), data, sample.media.kind


def hash_medium(event: DecodeEvent | ReadSample, data: bytes) -> None:
    assert isinstance(event, ReadSample)  # other events have no file
    event.digest = digest(data)


def complete_event(
    event: DecodeEvent | ReadSample, result: Decoded | Problem | SpanStream | None
) -> Iterator[DecodeEvent]:
    """Yield an event, or a sample with its result; frames of spans come before it in parts."""
    if not isinstance(event, ReadSample):
        yield event
    elif isinstance(result, SpanStream):
        with closing(result):
            yield from (FramePart(pixels) for pixels in result)
            yield event.complete(result.result())
    else:
        yield event.complete(result)


def is_outage(error: BaseException | None) -> bool:
    """Whether a store was down or throttled: the shard fails and is swept again, but its media are not missing."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in OUTAGES:
            return True
        error = error.__cause__
    return False


def _count_bytes(event: DecodeEvent | SweepEvent) -> int:
    """The bytes of the pixels and of the tokens."""
    if isinstance(event, FramePart):
        return event.pixels.nbytes
    if isinstance(event, SamplePiece):
        return sum(text.tokens.nbytes for text in event.texts)
    return event.medium.pixels.nbytes if isinstance(event, DecodedSample) and isinstance(event.medium, Decoded) else 0

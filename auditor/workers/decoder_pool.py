"""A pool of decoder processes: untrusted bytes in, pixels or a reason out, in the order of the input.

Whatever a file does to its decoder costs that file only. A process that hangs is killed at the deadline (`timeout`). A
crash is retried once in a new process and then blamed on the file (`corrupt`). Too much memory is refused
(`too_large`). Small pictures go to a process (auditor.workers.decode_worker) in batches, two at a time, so that the
process never waits for this one. If a process dies, each file that it had is decoded again, alone.

    with DecoderPool(PixelSpec(), workers=2) as pool:
        for key, result in pool.map([("a", jpeg_bytes, "image")]):
            ...
"""

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import asdict, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from auditor.corpus.sample import Kind, Problem, Span
from auditor.workers.decode_worker import PART
from auditor.workers.decoder_process import DecodeBatch, Decoded, Decoder, DecodeTask
from auditor.workers.fork_server import DecoderError
from auditor.workers.pixel_slots import HALF
from model.pixels import DecodeLimits, Pixels, PixelSpec
from model.video.video_formats import is_video

__all__ = ["DecodeLimits", "Decoded", "DecoderError", "DecoderPool", "PixelSpec", "Problem", "SpanStream"]

T = TypeVar("T")
S = TypeVar("S", bound="SpanStream | None")  # None if some tasks have no file
HELD_BYTES = 256 << 20  # of files and pixels that a `map` holds ahead of its reader
BATCH_FILES = 8
LOOKAHEAD = 4  # batches read ahead for each process: two that it has, and two that are being read
Pending = tuple[Any, int | None]  # what a result comes from: a batch and a number, a future, or the result itself
WAITING_PARTS = 2  # parts of a stream that wait for its reader


class SpanStream(DecodeTask):
    """The frames of a video's spans, which arrive in parts: iterate over the parts, then read the `result`.

    Only a few parts are in memory at a time, however many spans there are.
    """

    def __init__(self, data: bytes, spans: Sequence[Span | None], context: float = 0.0) -> None:
        super().__init__(data, [None if span is None else (span.start, span.end) for span in spans], context)
        self.parts: queue.Queue[Pixels | None] = queue.Queue(WAITING_PARTS)
        self.closed = threading.Event()

    def deliver(self, pixels: Pixels | None) -> None:
        """Queue a part, or None after the last one. Runs in the thread of a decoder."""
        while not self.closed.is_set():
            with contextlib.suppress(queue.Full):
                self.parts.put(pixels, timeout=0.2)
                return

    def __iter__(self) -> Iterator[Pixels]:
        while (pixels := self.parts.get()) is not None:
            yield pixels

    def result(self) -> Decoded | Problem:
        """Return the result without pixels, which were in the parts."""
        return self.future.result()

    def collect(self) -> Decoded | Problem:
        """Return the result of a stream of one span, with all its frames."""
        parts = list(self)
        result = self.result()
        if isinstance(result, Problem) or result.span_frames is None:
            return result
        reason = result.span_frames.by_span[0]
        return Problem("bad_span", reason) if isinstance(reason, str) else replace(result, pixels=np.concatenate(parts))

    def close(self) -> None:
        """Stop the stream; its remaining parts are dropped."""
        self.closed.set()
        self.future.cancel()


class DecoderPool:
    """Threads of this process, each with one decoder process; `close` ends all of them."""

    def __init__(
        self,
        pixels: PixelSpec,
        frames: int = 12,
        workers: int = 2,
        limits: DecodeLimits = DecodeLimits(),  # noqa: B008 (frozen)
        exact: bool = True,  # the pixels of open_clip's own transform, or those of model.fast_pixels
        motion: bool = False,  # whether to decode videos densely
        measure: bool = False,  # whether to measure the pixels (auditor.workers.pixel_facts)
        each_second: bool = False,  # whether frames of a whole video are a second apart, not in equal segments
    ) -> None:
        if frames < 1 or workers < 1:
            raise DecoderError(f"a decoder pool needs frames and workers, not {frames} and {workers}")
        self.limits = limits
        options = {"frames": frames, "exact": exact, "motion": motion, "measure": measure, "each_second": each_second}
        settings = {"pixels": pixels.to_dict(), "limits": asdict(limits), **options}
        self._max_shape = (frames, *pixels.size, 3)
        self._frame_bytes = 3 * pixels.size[0] * pixels.size[1]
        self._result_bytes = {"image": self._frame_bytes, "video": frames * self._frame_bytes}  # at most
        self._tasks: queue.SimpleQueue[DecodeTask | DecodeBatch | None] = queue.SimpleQueue()
        self._closed = False
        self._streams: set[SpanStream] = set()
        self._decoders = [Decoder(settings, self._max_shape, limits.seconds) for _ in range(workers)]
        self._threads = [threading.Thread(target=self._serve, args=(d,), daemon=True) for d in self._decoders]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> "DecoderPool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        return [decoder.pid for decoder in self._decoders if decoder.pid is not None]

    def map(
        self,
        tasks: Iterable[tuple[T, bytes | Problem | S, Kind]],
        lookahead: int | None = None,
        side_work: Callable[[T, bytes], None] = lambda tag, data: None,
    ) -> Iterator[tuple[T, Decoded | Problem | S]]:
        """Yield results in the order of `tasks`, as soon as they are there, reading at most `lookahead` tasks ahead.

        The kind is only a guess at the size of the result: the content decides. A task with a problem or None instead
        of a file gets it back in its turn. So does a `SpanStream`, whose decoding has started by then. `side_work`
        gets each file in a thread that would only wait for the decoder.
        """
        lookahead = max(256, LOOKAHEAD * BATCH_FILES * len(self._decoders)) if lookahead is None else lookahead
        size = min(BATCH_FILES, max(1, lookahead // (LOOKAHEAD * len(self._decoders))))
        pending: deque[tuple[T, int, Pending]] = deque()
        batch, held = DecodeBatch(), 0
        try:
            for tag, data, kind in tasks:
                if isinstance(data, bytes):
                    if batch.files and (len(batch.files) >= size or batch.size + len(data) > HALF):
                        batch = self._send_batch(batch)
                    waiting = self._add_file(data, batch, partial(side_work, tag, data))
                    cost = len(data) + self._result_bytes[kind]
                else:
                    waiting, cost = (data, None), 0
                    if isinstance(
                        data, SpanStream
                    ):  # its decoder waits for its reader, who first takes what came before
                        batch = self._send_batch(batch)
                        cost = self._start_stream(data)
                pending.append((tag, cost, waiting))
                held += cost
                while pending and (len(pending) > lookahead or held > HELD_BYTES or is_ready(pending[0][2][0])):
                    tag, cost, waiting = pending.popleft()
                    held -= cost
                    if waiting[0] is batch:
                        batch = self._send_batch(batch)
                    yield tag, get_result(*waiting)
            self._send_batch(batch)
            while pending:
                tag, _, waiting = pending.popleft()
                yield tag, get_result(*waiting)
        finally:  # also if the reader stops early
            for _, _, (source, _) in pending:
                cancel_decoding(source)

    def _add_file(self, data: bytes, batch: DecodeBatch, side_work: Callable[[], None]) -> "Pending":
        """Start a file that is large or a video; a small picture goes into the batch."""
        if len(data) > min(HALF, self.limits.max_bytes) or is_video(data):
            future = self.submit(data)
            side_work()
            return future, None
        batch.add(data, side_work)
        return batch, len(batch.files) - 1

    def _send_batch(self, batch: DecodeBatch) -> DecodeBatch:
        """Queue a batch; return the next one."""
        if self._closed:
            raise DecoderError("the decoder pool is closed")
        if not batch.files:
            return batch
        self._tasks.put(batch)
        return DecodeBatch()

    def map_spans(
        self,
        tasks: Iterable[tuple[T, bytes | Problem | None, Kind, Sequence[Span | None]]],
        lookahead: int | None = None,
    ) -> Iterator[tuple[T, Decoded | Problem | None]]:
        """Like `map`, for tasks that end with the span to decode, in a list, or with an empty list."""
        files = (
            (tag, SpanStream(data, spans) if spans and isinstance(data, bytes) else data, kind)
            for tag, data, kind, spans in tasks
        )
        for tag, result in self.map(files, lookahead):
            yield tag, result.collect() if isinstance(result, SpanStream) else result

    def decode(self, data: bytes, kind: Kind, span: Span | None = None) -> Decoded | Problem:
        ((_, result),) = self.map_spans([(None, data, kind, [span] if span else [])])
        assert result is not None
        return result

    def submit(self, data: bytes) -> "Future[Decoded | Problem]":
        return self._enqueue(DecodeTask(data))

    def _start_stream(self, stream: SpanStream) -> int:
        """Start a stream; return the bytes it holds."""
        self._streams.add(stream)
        stream.future.add_done_callback(lambda _: stream.deliver(None))
        stream.future.add_done_callback(lambda _: self._streams.discard(stream))
        self._enqueue(stream)
        return len(stream.data) + WAITING_PARTS * PART * self._frame_bytes

    def _enqueue(self, task: DecodeTask) -> "Future[Decoded | Problem]":
        if self._closed:
            raise DecoderError("the decoder pool is closed")
        if len(task.data) > self.limits.max_bytes:
            message = f"{len(task.data):,} bytes, above the limit of {self.limits.max_bytes:,}"
            task.future.set_result(Problem("too_large", message))
        else:
            self._tasks.put(task)
        return task.future

    def close(self) -> None:
        """End every process and thread now; files that are not decoded yet are dropped."""
        self._closed = True
        for stream in list(self._streams):
            stream.closed.set()
        for decoder in self._decoders:
            decoder.stop()
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join()
        while not self._tasks.empty():
            if task := self._tasks.get():
                task.future.cancel()

    def _serve(self, decoder: Decoder) -> None:
        """Run in a thread: decode files until the pool closes."""
        with contextlib.suppress(DecoderError):  # the first file raises it again, to a caller who can handle it
            decoder.start()
        task: DecodeTask | DecodeBatch | None = None
        closing = False
        while task is not None or decoder.sent or not closing:
            if task is None and not closing:
                with contextlib.suppress(queue.Empty):
                    task = self._tasks.get(block=not decoder.sent)
                    closing = task is None
            if isinstance(task, DecodeBatch) and decoder.takes_batch:
                send_batch(decoder, task)
                task = None
            elif decoder.sent:
                settle(decoder.sent[0].batch.future, decoder.receive)
            elif isinstance(task, DecodeTask):
                if task.future.set_running_or_notify_cancel():
                    settle(task.future, partial(decoder.decode, task))
                task = None  # not held while waiting
        decoder.close()


def send_batch(decoder: Decoder, batch: DecodeBatch) -> None:
    if batch.future.set_running_or_notify_cancel():
        try:
            decoder.send(batch)
            for work in batch.side_work:
                work()
        except Exception as error:
            batch.future.set_exception(error)


def settle(future: Future[T], compute: Callable[[], T]) -> None:
    """Give a future the result of a function, or its error."""
    try:
        future.set_result(compute())
    except Exception as error:
        future.set_exception(error)


def is_ready(source: Any) -> bool:
    """Whether a result can be had without waiting. A stream never is: its reader waits for each part."""
    future = source.future if isinstance(source, DecodeBatch) else source
    return future.done() if isinstance(future, Future) else not isinstance(future, SpanStream)


def get_result(source: Any, number: int | None) -> Any:
    """Wait for the result of a file, in a batch or alone. Whatever is given in place of a file is the result itself."""
    if isinstance(source, DecodeBatch):
        return source.future.result()[number or 0]
    return source.result() if isinstance(source, Future) else source


def cancel_decoding(source: Any) -> None:
    if isinstance(source, DecodeBatch):
        source.future.cancel()
    elif isinstance(source, Future):
        source.cancel()
    elif isinstance(source, SpanStream):
        source.close()
